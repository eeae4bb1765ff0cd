// Inner products of rows with dense int8 vectors. Rows are integers, so sums are exact: the same
// for any number of threads and any instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "inference/best_labels.hpp"
#include "linear/features.hpp"

namespace ltls::LTLS_ISA {

// The sums of one row with `DenseVectors::lanes` vectors, side by side.
class LaneSums {
  public:
    // Adds the products of two features: their values in the row, and those of all vectors.
    LTLS_INLINE void add(const std::int16_t* row, const std::int8_t* vectors) {
        std::int32_t both;
        std::memcpy(&both, row, sizeof both);
#if defined(__AVX512BW__)
        const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(vectors));
        const __m512i products =
            _mm512_madd_epi16(_mm512_cvtepi8_epi16(narrow), _mm512_set1_epi32(both));
        sums_ = _mm512_add_epi32(sums_, products);
#elif defined(__AVX2__)
        const __m256i pair = _mm256_set1_epi32(both);
        for (int half = 0; half < 2; ++half) {
            const __m128i narrow =
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(vectors + 16 * half));
            const __m256i products = _mm256_madd_epi16(_mm256_cvtepi8_epi16(narrow), pair);
            sums_[half] = _mm256_add_epi32(sums_[half], products);
        }
#else
        for (Index lane = 0; lane < DenseVectors::lanes; ++lane)
            sums_[lane] += row[0] * vectors[2 * lane] + row[1] * vectors[2 * lane + 1];
#endif
    }
    LTLS_INLINE void store(std::int32_t* sums) const { std::memcpy(sums, &sums_, sizeof sums_); }

  private:
#if defined(__AVX512BW__)
    __m512i sums_ = _mm512_setzero_si512();
#elif defined(__AVX2__)
    __m256i sums_[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#else
    std::int32_t sums_[DenseVectors::lanes] = {};
#endif
};

class DenseProducts {
  public:
    static constexpr int rows_at_once = 8;

    explicit DenseProducts(const DenseVectors& vectors) : vectors_(vectors) {}

    // Calls use(row, first, scores) with the scores of `BestLabels::block` vectors from `first` on,
    // −∞ beyond the last, for each of some rows: what is read of the vectors serves them all.
    template <int Rows, class Use>
    void each_block(const std::int16_t* rows, const float* units, Use&& use) const {
        constexpr Index lanes = DenseVectors::lanes, block = BestLabels::block;
        const Index n = vectors_.n_vectors, pairs = vectors_.n_pairs;
        float scores[Rows][block];
        for (Index first = 0; first < n; first += block) {
            for (Index part = 0; part < block && first + part < n; part += lanes) {
                const std::int8_t* const values = vectors_.values + (first + part) * 2 * pairs;
                LaneSums sums[Rows];
                for (Index pair = 0; pair < pairs; ++pair)
                    for (int row = 0; row < Rows; ++row)
                        sums[row].add(rows + row * 2 * pairs + 2 * pair, values + pair * 2 * lanes);
                for (int row = 0; row < Rows; ++row) {
                    std::int32_t own[lanes];
                    sums[row].store(own);
                    const Index count = n - first - part < lanes ? n - first - part : lanes;
                    for (Index lane = 0; lane < count; ++lane)
                        scores[row][part + lane] =
                            score(own[lane], units[row], first + part + lane);
                }
            }
            for (int row = 0; row < Rows; ++row) {
                for (Index j = n - first; j < block; ++j) scores[row][j] = minus_infinity<float>;
                use(row, first, scores[row]);
            }
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
