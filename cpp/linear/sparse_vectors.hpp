// Inner products of rows with sparse vectors: those of given vectors, or the largest.
#pragma once

#include <cstdint>
#include <limits>

#include "core/buffer.hpp"
#include "inference/best_labels.hpp"
#include "linear/features.hpp"
#include "linear/integer_row.hpp"

namespace ltls::LTLS_ISA {

// It owns scratch memory, so each thread needs one.
class VectorProducts {
  public:
    explicit VectorProducts(const SparseVectors& vectors)
        : vectors_(vectors), sums_(vectors.n_chunks() * lanes) {
        for (Index id = 0; id < vectors.n_chunks() * lanes; ++id) sums_[id] = 0;
    }

    // Writes the inner products of row i with some vectors. That with vector −1 is 0.
    void some(const Rows& rows, Index i, const Index* ids, Index count, float* products) {
        row_.load(rows, i, vectors_.n_features);
        looked_up_.reserve(count);
        for (Index j = 0; j < count; ++j) {
            looked_up_[j] = 0;
            if (ids[j] >= 0) sums_[ids[j]] = 0;
        }
        if (vectors_.wide)
            add_some<std::uint32_t>(ids, count);
        else
            add_some<std::uint16_t>(ids, count);
        for (Index j = 0; j < count; ++j)
            products[j] = ids[j] < 0 ? 0.0f : product(ids[j], sums_[ids[j]] + looked_up_[j]);
    }

    // Writes the inner products of row i with all vectors.
    void all(const Rows& rows, Index i, float* products) {
        each_block(rows, i, [&](Index first, Index last) {
            for (Index id = first; id < last; ++id) products[id] = product(id);
        });
    }

    // Collects the vectors with the largest inner products with row i, of those above 0.
    void best(const Rows& rows, Index i, BestLabels& found) {
        // Not the smallest number above 0, which is 0 in threads that flush subnormal numbers.
        found.clear(std::numeric_limits<float>::min());
        each_block(rows, i, [&](Index first, Index last) {
            constexpr Index n = block / lanes;
            float highest[n], ranked[n], products[lanes];
            Index n_ranked = 0;
            for (Index chunk = 0; first + chunk * lanes < last; ++chunk) {
                highest[chunk] = largest_product(first + chunk * lanes, found.lowest());
                ranked[n_ranked] = highest[chunk];
                n_ranked += highest[chunk] > 0;
            }
            found.expect(ranked, n_ranked);
            for (Index chunk = 0; first + chunk * lanes < last; ++chunk) {
                if (highest[chunk] < found.lowest()) continue;
                products_of_chunk(first + chunk * lanes, products);
                found.add_block(products, first + chunk * lanes);
            }
        });
    }

    // Writes the inner products of the present row with some vectors, any ones after `best`.
    void products_of(const Index* ids, Index count, float* products) const {
        for (Index j = 0; j < count; ++j) products[j] = ids[j] < 0 ? 0.0f : product(ids[j]);
    }

  private:
    static constexpr Index lanes = SparseVectors::lanes;
    static_assert(lanes == BestLabels::block);

    LTLS_INLINE float product(Index id, std::uint32_t sum) const {
        return static_cast<float>(static_cast<std::int32_t>(sum)) *
               (row_.unit() * vectors_.scales[id]);
    }
    LTLS_INLINE float product(Index id) const { return product(id, sums_[id]); }
    // Writes the inner products with `lanes` vectors; 0 behind the last.
    LTLS_INLINE void products_of_chunk(Index first, float* products) const {
        if (first + lanes <= vectors_.n_vectors)
            for (Index j = 0; j < lanes; ++j) products[j] = product(first + j);
        else
            for (Index j = 0; j < lanes; ++j)
                products[j] = first + j < vectors_.n_vectors ? product(first + j) : 0;
    }
    // Returns the largest of these; perhaps 0 if it is below `lowest`.
    LTLS_INLINE float largest_product(Index first, float lowest) const {
        const std::uint32_t* const sums = sums_ + first;
        std::int32_t largest_sum = 0;
        for (Index j = 0; j < lanes; ++j) {
            const auto sum = static_cast<std::int32_t>(sums[j]);
            largest_sum = sum > largest_sum ? sum : largest_sum;
        }
        const float bound = static_cast<float>(largest_sum) *
                            (row_.unit() * vectors_.largest_scales[first / lanes]);
        if (!(bound >= lowest)) return 0;
        float products[lanes];
        products_of_chunk(first, products);
        return BestLabels::highest(products);
    }

    // If many vectors have a feature, those that are wanted are looked up in its column or
    // searched. Otherwise all are added: the sums of other vectors are never read, and a test would
    // take longer than the addition. So these sums may overflow, and are unsigned.
    template <class Id>
    void add_some(const Index* wanted, Index count) {
        const Id* const ids = static_cast<const Id*>(vectors_.ids);
        for (Index j = 0; j < row_.size(); ++j) {
            if (const std::int8_t* const column = vectors_.column(row_.feature(j))) {
                for (Index k = 0; k < count; ++k)
                    if (wanted[k] >= 0) looked_up_[k] += times(column[wanted[k]], j);
                continue;
            }
            const Index begin = vectors_.ptr[row_.feature(j)];
            const Index end = vectors_.ptr[row_.feature(j) + 1];
            if (end - begin <= steps_per_search * count) {
                for (Index at = begin; at < end; ++at)
                    sums_[ids[at]] += times(vectors_.values[at], j);
                continue;
            }
            for (Index k = 0; k < count; ++k) {
                if (wanted[k] < 0) continue;
                const Index at = lower_bound(ids, begin, end, wanted[k]);
                if (at < end && ids[at] == static_cast<Id>(wanted[k]))
                    looked_up_[k] += times(vectors_.values[at], j);
            }
        }
    }

    // Adds up all vectors, a block of them at a time, and calls use(first, last) for each: the sums
    // of a block stay in the cache.
    template <class Use>
    void each_block(const Rows& rows, Index i, Use&& use) {
        row_.load(rows, i, vectors_.n_features);
        next_.reserve(row_.size());
        for (Index j = 0; j < row_.size(); ++j) {
            const Index feature = row_.feature(j);
            next_[j] = vectors_.ptr[feature + (vectors_.columns[feature] >= 0)];
        }
        for (Index first = 0; first < vectors_.n_vectors; first += block) {
            const Index end = first + block, n = vectors_.n_vectors;
            add_columns(first, end < n ? end : vectors_.n_chunks() * lanes);
            if (vectors_.wide)
                add_lists<std::uint32_t>(end);
            else
                add_lists<std::uint16_t>(end);
            use(first, end < n ? end : n);
        }
    }
    // Sets the sums of a block to those over the columns.
    void add_columns(Index first, Index last) {
        for (; first < last; first += lanes) {
            std::uint32_t sums[lanes] = {};
            for (Index j = 0; j < row_.size(); ++j)
                if (const std::int8_t* const column = vectors_.column(row_.feature(j)))
                    for (Index k = 0; k < lanes; ++k) sums[k] += times(column[first + k], j);
            for (Index k = 0; k < lanes; ++k) sums_[first + k] = sums[k];
        }
    }
    template <class Id>
    void add_lists(Index end) {
        const Id* const ids = static_cast<const Id*>(vectors_.ids);
        for (Index j = 0; j < row_.size(); ++j) {
            const Index last = vectors_.ptr[row_.feature(j) + 1];
            Index at = next_[j];
            for (; at < last && static_cast<Index>(ids[at]) < end; ++at)
                sums_[ids[at]] += times(vectors_.values[at], j);
            next_[j] = at;
        }
    }
    LTLS_INLINE std::uint32_t times(std::int8_t value, Index j) const {
        return static_cast<std::uint32_t>(row_.value(j) * value);
    }

    template <class Id>
    static Index lower_bound(const Id* ids, Index first, Index last, Index id) {
        while (first < last) {
            const Index middle = first + (last - first) / 2;
            if (static_cast<Index>(ids[middle]) < id)
                first = middle + 1;
            else
                last = middle;
        }
        return first;
    }

    static constexpr Index steps_per_search = 64;   // a search costs as much as so many additions
    static constexpr Index block = Index{1} << 15;  // vectors

    const SparseVectors vectors_;
    IntegerRow row_;
    Buffer<Index> next_;               // entry of every feature of the row
    Buffer<std::uint32_t> sums_;       // those that are not wanted have any value
    Buffer<std::uint32_t> looked_up_;  // beside the sums: in columns and by searching
};

}  // namespace ltls::LTLS_ISA
