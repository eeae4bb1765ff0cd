// The embedding reranker: score(x, label) = xA·b + c, with features and labels as vectors of a
// small rank.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/instruction_set.hpp"
#include "linear/features.hpp"

namespace ltls::LTLS_ISA {

// Inner product of a row's vector and a label's. Both are padded to a multiple of 16 numbers, and
// each of 16 lanes has its own sum.
LTLS_INLINE float inner_product(const float* a, const float* b, Index length) {
    constexpr Index lanes = 16;
    float sums[lanes] = {};
    for (Index first = 0; first < length; first += lanes)
        for (Index lane = 0; lane < lanes; ++lane) sums[lane] += a[first + lane] * b[first + lane];
    float sum = 0;
    for (Index lane = 0; lane < lanes; ++lane) sum += sums[lane];
    return sum;
}

// A candidate and its place before sorting.
struct RankedLabel {
    float score;
    std::int32_t place;
    Index label;
};

// Adds weight × the embedding's score to the candidates of a row and sorts them, best first. Ties
// keep their order. `labels` may end with −1s. `scratch` has room for `count` entries.
LTLS_INLINE void rerank_row(const LabelVectors& vectors, const float* vector, float weight,
                            Index count, Index* labels, float* scores, RankedLabel* scratch) {
    Index n = 0;
    for (; n < count && labels[n] >= 0; ++n) {
        const float* b = vectors.rows + labels[n] * vectors.stride;
        const float score = scores[n] + weight * inner_product(vector, b, vectors.stride);
        scratch[n] = {score, static_cast<std::int32_t>(n), labels[n]};
    }
    std::sort(scratch, scratch + n, [](const RankedLabel& a, const RankedLabel& b) {
        return a.score != b.score ? a.score > b.score : a.place < b.place;
    });
    for (Index i = 0; i < n; ++i) {
        labels[i] = scratch[i].label;
        scores[i] = scratch[i].score;
    }
}

}  // namespace ltls::LTLS_ISA
