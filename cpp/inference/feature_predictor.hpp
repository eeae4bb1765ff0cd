// Prediction from features: scoring, decoding and reranking a few rows at a time.
#pragma once

#include <memory>

#include "inference/decoder.hpp"
#include "linear/edge_scores.hpp"
#include "linear/label_weights.hpp"

namespace ltls::LTLS_ISA {

// Decodes rows while their edge scores are still in the cache.
class FeaturePredictor final : public RowPredictor {
  public:
    // The arguments must outlive the predictor.
    FeaturePredictor(const Trellis& trellis, const DecodeOptions& options, const Weights& weights,
                     const Reranking* reranking)
        : n_candidates_(options.k),
          edges_(options.n_trellises * options.block),
          reranking_(reranking),
          scorer_(weights, edges_),
          decoder_(trellis, options) {
        if (reranking)
            label_scorer_ = std::make_unique<LabelScorer>(*reranking->weights, n_candidates_);
    }

    Index predict(const Features& x, Index first, Index last, Index* labels,
                  float* scores) override {
        const Index step = EdgeScorer::chunk_rows(x),
                    k = reranking_ ? reranking_->k : n_candidates_;
        h_.reserve(step * edges_);
        for (Index row = first; row < last; row += step) {
            const Index end = row + step < last ? row + step : last;
            scorer_.run(x, row, end, h_);
            const Index out = (row - first) * k;
            const Index bad = reranking_ ? rerank(end - row, labels + out, scores + out)
                                         : decoder_.run(h_, end - row, labels + out, scores + out);
            if (bad >= 0) return row + bad;
        }
        return -1;
    }

  private:
    // Decodes the rows that were scored last and reranks their candidates.
    Index rerank(Index rows, Index* labels, float* scores) {
        candidates_.reserve(rows * n_candidates_);
        their_scores_.reserve(rows * n_candidates_);
        const Index bad = decoder_.run(h_, rows, candidates_, their_scores_, false);
        if (bad >= 0) return bad;
        for (Index i = 0; i < rows; ++i)
            label_scorer_->select(scorer_.rows(), i, reranking_->weight,
                                  candidates_ + i * n_candidates_,
                                  their_scores_ + i * n_candidates_, reranking_->k,
                                  labels + i * reranking_->k, scores + i * reranking_->k);
        return -1;
    }

    const Index n_candidates_, edges_;
    const Reranking* const reranking_;  // null if the candidates are returned as they are
    EdgeScorer scorer_;
    Decoder decoder_;
    std::unique_ptr<LabelScorer> label_scorer_;
    Buffer<float> h_, their_scores_;
    Buffer<Index> candidates_;
};

}  // namespace ltls::LTLS_ISA
