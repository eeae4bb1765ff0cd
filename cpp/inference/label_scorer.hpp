// Scores of labels by their weights and what decoding says of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/buffer.hpp"
#include "inference/decode_options.hpp"
#include "linear/sparse_vectors.hpp"

namespace ltls::LTLS_ISA {

class LabelScorer {
  public:
    explicit LabelScorer(const Reranking& reranking)
        : weight_(reranking.weight), k_(reranking.k), products_(*reranking.weights) {}

    // Replaces the scores of some labels of row i. Labels of −1 keep theirs.
    LTLS_ONE_COPY void score(const Rows& rows, Index i, const Index* labels, Index count,
                             float* scores) {
        outputs_.reserve(count);
        products_.some(rows, i, labels, count, outputs_);
        for (Index j = 0; j < count; ++j) {
            if (labels[j] < 0) continue;
            const float shortfall = shortfall_of(outputs_[j]);
            scores[j] = weight_ * scores[j] - shortfall * shortfall * shortfall;
        }
    }

    // Writes the k best of some labels of row i, which may be in any order and end with −1s. Ties
    // go to the smaller label.
    void select(const Rows& rows, Index i, const Index* labels, Index count, float* scores,
                Index* best_labels, float* best_scores) {
        while (count > 0 && labels[count - 1] < 0) --count;
        score(rows, i, labels, count, scores);
        ranked_.reserve(count);
        Ranked* const ranked = ranked_;
        for (Index j = 0; j < count; ++j) ranked[j] = {scores[j], labels[j]};
        const Index found = count < k_ ? count : k_;
        if (found < count)
            std::nth_element(ranked, ranked + found, ranked + count,
                             [](const Ranked& a, const Ranked& b) {
                                 return a.score != b.score ? a.score > b.score : a.label < b.label;
                             });
        for (Index j = 0; j < k_; ++j) {
            best_labels[j] = j < found ? ranked[j].label : -1;
            best_scores[j] = j < found ? ranked[j].score : minus_infinity<float>;
        }
    }

  private:
    struct Ranked {
        float score;
        Index label;
    };

    const float weight_;
    const Index k_;
    VectorProducts products_;
    Buffer<float> outputs_;
    Buffer<Ranked> ranked_;
};

}  // namespace ltls::LTLS_ISA
