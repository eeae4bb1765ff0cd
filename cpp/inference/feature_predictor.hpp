// Prediction from features: scoring, decoding and reranking a few rows at a time.
#pragma once

#include <memory>

#include "inference/decoder.hpp"
#include "inference/label_scorer.hpp"
#include "linear/edge_scores.hpp"

namespace ltls::LTLS_ISA {

// Decodes rows while their edge scores are still in the cache.
class FeaturePredictor final : public RowPredictor {
  public:
    // The arguments must outlive the predictor.
    FeaturePredictor(const Trellis& trellis, const DecodeOptions& options, const Weights& weights,
                     const Reranking* reranking)
        : n_candidates_(options.k),
          k_(reranking ? reranking->k : options.k),
          edges_(options.n_trellises * options.block),
          scorer_(weights, edges_),
          decoder_(trellis, options) {
        if (!reranking) return;
        label_scorer_ = std::make_unique<LabelScorer>(*reranking);
        if (!reranking->cluster_weights) return;
        clusters_ = std::make_unique<VectorProducts>(*reranking->cluster_weights);
        n_clusters_ = trellis.n_classes;
        cluster_weight_ = reranking->cluster_weight;
    }

    Index predict(const Features& x, Index first, Index last, Index* labels,
                  float* scores) override {
        return each_chunk(x, first, last, [&](Index row, Index rows) {
            Index* const out = labels + row * k_;
            float* const out_scores = scores + row * k_;
            if (!label_scorer_) return decoder_.run(h_, rows, out, out_scores);
            candidates_.reserve(rows * n_candidates_);
            their_scores_.reserve(rows * n_candidates_);
            const Index bad =
                decoder_.run(h_, rows, candidates_, their_scores_, false, cluster_scores(rows));
            for (Index i = 0; bad < 0 && i < rows; ++i)
                label_scorer_->select(scorer_.rows(), i, candidates_ + i * n_candidates_,
                                      n_candidates_, their_scores_ + i * n_candidates_,
                                      out + i * k_, out_scores + i * k_);
            return bad;
        });
    }

    Index score(const Features& x, Index first, Index last, Index count, const Index* labels,
                float* scores) override {
        return each_chunk(x, first, last, [&](Index row, Index rows) {
            const Index bad = decoder_.score(h_, rows, count, labels + row * count,
                                             scores + row * count, cluster_scores(rows));
            for (Index i = 0; bad < 0 && label_scorer_ && i < rows; ++i)
                label_scorer_->score(scorer_.rows(), i, labels + (row + i) * count, count,
                                     scores + (row + i) * count);
            return bad;
        });
    }

  private:
    // Computes the edge scores of some rows at a time and calls use(first row, number of rows).
    template <class Use>
    Index each_chunk(const Features& x, Index first, Index last, Use&& use) {
        const Index step = EdgeScorer::chunk_rows(x);
        h_.reserve(step * edges_);
        for (Index row = first; row < last; row += step) {
            const Index end = row + step < last ? row + step : last;
            scorer_.run(x, row, end, h_);
            const Index bad = use(row - first, end - row);
            if (bad >= 0) return row + bad;
        }
        return -1;
    }

    // What the weights of clusters add to the scores of paths; null if there are none.
    const float* cluster_scores(Index rows) {
        if (!clusters_) return nullptr;
        bonus_.reserve(rows * n_clusters_);
        for (Index i = 0; i < rows; ++i) {
            float* const own = bonus_ + i * n_clusters_;
            clusters_->all(scorer_.rows(), i, own);
            for (Index path = 0; path < n_clusters_; ++path) {
                const float shortfall = shortfall_of(own[path]);
                own[path] = -cluster_weight_ * (shortfall * shortfall * shortfall);
            }
        }
        return bonus_;
    }

    const Index n_candidates_, k_, edges_;
    EdgeScorer scorer_;
    Decoder decoder_;
    std::unique_ptr<LabelScorer> label_scorer_;  // null if there are no label weights
    std::unique_ptr<VectorProducts> clusters_;   // null if clusters have no weights
    Index n_clusters_ = 0;
    float cluster_weight_ = 0;
    Buffer<float> h_, their_scores_, bonus_;
    Buffer<Index> candidates_;
};

}  // namespace ltls::LTLS_ISA
