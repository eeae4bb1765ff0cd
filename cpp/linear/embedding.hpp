// The embedding reranker: score(x, label) = xA·b + c, with features and labels as vectors of a
// small rank.
#pragma once

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

// Adds weight × the embedding's score to the candidates of a row and sorts them, best first. Ties
// keep their order. `labels` may end with −1s.
LTLS_INLINE void rerank_row(const LabelVectors& vectors, const float* vector, float weight,
                            Index count, Index* labels, float* scores) {
    for (Index i = 0; i < count && labels[i] >= 0; ++i) {
        const float* b = vectors.rows + labels[i] * vectors.stride;
        const float score = scores[i] + weight * inner_product(vector, b, vectors.stride);
        const Index label = labels[i];
        Index place = i;
        for (; place > 0 && score > scores[place - 1]; --place) {
            labels[place] = labels[place - 1];
            scores[place] = scores[place - 1];
        }
        labels[place] = label;
        scores[place] = score;
    }
}

}  // namespace ltls::LTLS_ISA
