// Inner products of rows with sparse vectors: those of given vectors, or the largest.
#pragma once

#include <cstdint>

#include "core/buffer.hpp"
#include "inference/best_labels.hpp"
#include "linear/features.hpp"
#include "linear/integer_row.hpp"

namespace ltls::LTLS_ISA {

// It owns scratch memory, so each thread needs one.
class VectorProducts {
  public:
    explicit VectorProducts(const SparseVectors& vectors)
        : vectors_(vectors), sums_(vectors.n_vectors) {
        for (Index id = 0; id < vectors.n_vectors; ++id) sums_[id] = 0;
    }

    // Writes the inner products of row i with some vectors. That with vector −1 is 0.
    void some(const Rows& rows, Index i, const Index* ids, Index count, float* products) {
        row_.load(rows, i, vectors_.n_features);
        for (Index j = 0; j < count; ++j)
            if (ids[j] >= 0) sums_[ids[j]] = 0;
        if (vectors_.wide)
            add_some<std::uint32_t>(ids, count);
        else
            add_some<std::uint16_t>(ids, count);
        products_of(ids, count, products);
    }

    // Writes the inner products of row i with all vectors.
    void all(const Rows& rows, Index i, float* products) {
        sum_all(rows, i);
        for (Index id = 0; id < vectors_.n_vectors; ++id) products[id] = product(id);
    }

    // Collects the vectors with the largest inner products with row i, of those above 0.
    void best(const Rows& rows, Index i, BestLabels& found) {
        found.clear();
        sum_all(rows, i);
        constexpr Index block = BestLabels::block;
        float products[block];
        Index first = 0;
        for (; first + block <= vectors_.n_vectors; first += block) {
            for (Index j = 0; j < block; ++j) {
                const float value = product(first + j);
                products[j] = value > 0 ? value : minus_infinity<float>;
            }
            found.add_block(products, first);
        }
        for (; first < vectors_.n_vectors; ++first)
            if (product(first) > 0) found.add(product(first), first);
    }

    // Writes the inner products of the present row with some vectors, any ones after `best`.
    void products_of(const Index* ids, Index count, float* products) const {
        for (Index j = 0; j < count; ++j) products[j] = ids[j] < 0 ? 0.0f : product(ids[j]);
    }

  private:
    LTLS_INLINE float product(Index id) const {
        const auto sum = static_cast<std::int32_t>(sums_[id]);
        return static_cast<float>(sum) * (row_.unit() * vectors_.scales[id]);
    }

    // If many vectors have a feature, some of them are looked up or searched. Otherwise all are
    // added: the sums of other vectors are never read, and a test would take longer than the
    // addition. So these sums may overflow, and are unsigned.
    template <class Id>
    void add_some(const Index* wanted, Index count) {
        const Id* const ids = static_cast<const Id*>(vectors_.ids);
        for (Index j = 0; j < row_.size(); ++j) {
            const Index begin = vectors_.ptr[row_.feature(j)];
            const Index end = vectors_.ptr[row_.feature(j) + 1];
            if (end - begin <= steps_per_search * count && end - begin < vectors_.n_vectors) {
                for (Index at = begin; at < end; ++at) add(ids[at], at, j);
                continue;
            }
            for (Index k = 0; k < count; ++k) {
                if (wanted[k] < 0) continue;
                const Index at = end - begin == vectors_.n_vectors
                                     ? begin + wanted[k]
                                     : lower_bound(ids, begin, end, wanted[k]);
                if (at < end && ids[at] == static_cast<Id>(wanted[k])) add(wanted[k], at, j);
            }
        }
    }
    void sum_all(const Rows& rows, Index i) {
        row_.load(rows, i, vectors_.n_features);
        for (Index id = 0; id < vectors_.n_vectors; ++id) sums_[id] = 0;
        if (vectors_.wide)
            add_all<std::uint32_t>();
        else
            add_all<std::uint16_t>();
    }
    template <class Id>
    void add_all() {
        const Id* const ids = static_cast<const Id*>(vectors_.ids);
        for (Index j = 0; j < row_.size(); ++j)
            for (Index at = vectors_.ptr[row_.feature(j)]; at < vectors_.ptr[row_.feature(j) + 1];
                 ++at)
                add(ids[at], at, j);
    }
    LTLS_INLINE void add(Index id, Index at, Index j) {
        sums_[id] += static_cast<std::uint32_t>(row_.value(j) * vectors_.values[at]);
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

    static constexpr Index steps_per_search = 64;  // a search costs as much as so many additions

    const SparseVectors vectors_;
    IntegerRow row_;
    Buffer<std::uint32_t> sums_;  // those that are not wanted have any value
};

}  // namespace ltls::LTLS_ISA
