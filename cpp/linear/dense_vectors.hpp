// Inner products of rows with dense int8 vectors. Rows are integers, so sums are exact: the same
// for any number of threads and any instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "inference/best_labels.hpp"
#include "linear/features.hpp"

namespace ltls::LTLS_ISA {

// The values of two features in a row, as the vector instructions take them.
LTLS_INLINE std::int32_t two_features(const std::int16_t* row, Index pair) {
    std::int32_t both;
    std::memcpy(&both, row + 2 * pair, sizeof both);
    return both;
}

// Writes the sums of products of `Rows` rows with `Groups` groups of `DenseVectors::lanes` vectors;
// those of a row are `stride` apart. What is loaded of a row serves all groups, and what is loaded
// of the vectors all rows.
template <int Rows, int Groups>
LTLS_INLINE void lane_sums(const std::int16_t* rows, const std::int8_t* vectors, Index pairs,
                           std::int32_t* found, Index stride) {
    constexpr Index lanes = DenseVectors::lanes;
#if defined(__AVX512BW__)
    __m512i sums[Rows][Groups];
    for (int row = 0; row < Rows; ++row)
        for (int group = 0; group < Groups; ++group) sums[row][group] = _mm512_setzero_si512();
    for (Index pair = 0; pair < pairs; ++pair) {
        __m512i wide[Groups];
        for (int group = 0; group < Groups; ++group)
            wide[group] = _mm512_cvtepi8_epi16(_mm256_loadu_si256(
                reinterpret_cast<const __m256i*>(vectors + (group * pairs + pair) * 2 * lanes)));
        for (int row = 0; row < Rows; ++row) {
            const __m512i both = _mm512_set1_epi32(two_features(rows + row * 2 * pairs, pair));
            for (int group = 0; group < Groups; ++group)
                sums[row][group] =
                    _mm512_add_epi32(sums[row][group], _mm512_madd_epi16(wide[group], both));
        }
    }
    for (int row = 0; row < Rows; ++row)
        for (int group = 0; group < Groups; ++group)
            _mm512_storeu_si512(found + row * stride + group * lanes, sums[row][group]);
#elif defined(__AVX2__)
    for (int group = 0; group < Groups; ++group, vectors += pairs * 2 * lanes, found += lanes) {
        __m256i sums[Rows][2];
        for (int row = 0; row < Rows; ++row) sums[row][0] = sums[row][1] = _mm256_setzero_si256();
        for (Index pair = 0; pair < pairs; ++pair) {
            __m256i wide[2];
            for (int half = 0; half < 2; ++half)
                wide[half] = _mm256_cvtepi8_epi16(_mm_loadu_si128(
                    reinterpret_cast<const __m128i*>(vectors + (2 * pair + half) * lanes)));
            for (int row = 0; row < Rows; ++row) {
                const __m256i both = _mm256_set1_epi32(two_features(rows + row * 2 * pairs, pair));
                for (int half = 0; half < 2; ++half)
                    sums[row][half] =
                        _mm256_add_epi32(sums[row][half], _mm256_madd_epi16(wide[half], both));
            }
        }
        for (int row = 0; row < Rows; ++row)
            for (int half = 0; half < 2; ++half)
                _mm256_storeu_si256(
                    reinterpret_cast<__m256i*>(found + row * stride + half * lanes / 2),
                    sums[row][half]);
    }
#else
    for (int group = 0; group < Groups; ++group, vectors += pairs * 2 * lanes, found += lanes)
        for (int row = 0; row < Rows; ++row) {
            std::int32_t sums[lanes] = {};
            for (Index pair = 0; pair < pairs; ++pair)
                for (Index lane = 0; lane < lanes; ++lane)
                    for (Index j = 0; j < 2; ++j)
                        sums[lane] += rows[row * 2 * pairs + 2 * pair + j] *
                                      vectors[(pair * lanes + lane) * 2 + j];
            std::copy(sums, sums + lanes, found + row * stride);
        }
#endif
}

class DenseProducts {
  public:
    static constexpr Index most_rows = 64;  // at a time

    explicit DenseProducts(const DenseVectors& vectors) : vectors_(vectors) {}

    // Calls use(row, first, scores) with the scores of `BestLabels::block` vectors from `first` on,
    // −∞ beyond the last, for each of some rows. A block is compared with all rows before the next
    // one: it is read from memory once, and then from a cache.
    template <class Use>
    void each_block(const std::int16_t* rows, const float* units, Index n_rows, Use&& use) const {
        for (Index first = 0; first < vectors_.n_vectors; first += BestLabels::block) {
            Index row = 0;
            for (; row + several <= n_rows; row += several)
                block_of<several>(rows, units, row, first, use);
            for (; row < n_rows; ++row) block_of<1>(rows, units, row, first, use);
        }
    }

    // The score of one vector.
    float one(const std::int16_t* row, float unit, Index id) const {
        const Index lane = id % DenseVectors::lanes;
        const std::int8_t* values = vectors_.values + (id - lane) * 2 * vectors_.n_pairs + 2 * lane;
        std::int32_t sum = 0;
        for (Index pair = 0; pair < vectors_.n_pairs; ++pair)
            for (Index j = 0; j < 2; ++j)
                sum += row[2 * pair + j] * values[pair * 2 * DenseVectors::lanes + j];
        return score(sum, unit, id);
    }

  private:
    static constexpr int several = 4;  // rows, whose sums with a block fit into registers

    template <int Rows, class Use>
    LTLS_INLINE void block_of(const std::int16_t* rows, const float* units, Index row, Index first,
                              Use& use) const {
        constexpr Index lanes = DenseVectors::lanes, block = BestLabels::block;
        const Index pairs = vectors_.n_pairs, left = vectors_.n_vectors - first;
        const std::int8_t* const values = vectors_.values + first * 2 * pairs;
        std::int32_t sums[Rows * block];
        float scores[block];
        rows += row * 2 * pairs;
        if (left >= block)
            lane_sums<Rows, block / lanes>(rows, values, pairs, sums, block);
        else
            for (Index part = 0; part < left; part += lanes)
                lane_sums<Rows, 1>(rows, values + part * 2 * pairs, pairs, sums + part, block);
        for (int i = 0; i < Rows; ++i) {
            if (left >= block) {  // a number that is known becomes vector instructions
                to_scores(sums + i * block, block, units[row + i], first, scores);
            } else {
                to_scores(sums + i * block, left, units[row + i], first, scores);
                std::fill(scores + left, scores + block, minus_infinity<float>);
            }
            use(row + i, first, scores);
        }
    }

    LTLS_INLINE void to_scores(const std::int32_t* sums, Index count, float unit, Index first,
                               float* scores) const {
        for (Index i = 0; i < count; ++i) scores[i] = score(sums[i], unit, first + i);
    }

    // The offset is rounded and added as an integer: a fused multiply-add, which not all
    // instruction sets have, would round otherwise.
    LTLS_INLINE float score(std::int32_t sum, float unit, Index id) const {
        const float scale = unit * vectors_.scales[id];
        float offset = vectors_.offsets[id] / scale;
        offset = offset < -largest_offset ? -largest_offset : offset;
        offset = offset > largest_offset ? largest_offset : offset;
        return static_cast<float>(sum + static_cast<std::int32_t>(offset)) * scale;
    }

    static constexpr float largest_offset = 5e8f;  // the sum is below 1.27e9

    const DenseVectors vectors_;
};

}  // namespace ltls::LTLS_ISA
