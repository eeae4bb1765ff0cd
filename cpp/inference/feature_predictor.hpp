// Prediction from features: scoring and decoding a few rows at a time.
#pragma once

#include "inference/decoder.hpp"
#include "linear/edge_scores.hpp"

namespace ltls::LTLS_ISA {

// Decodes rows while their edge scores are still in the cache.
class FeaturePredictor final : public RowPredictor {
  public:
    // The arguments must outlive the predictor.
    FeaturePredictor(const Trellis& trellis, const DecodeOptions& options, const Weights& weights)
        : k_(options.k),
          edges_(options.n_trellises * options.block),
          scorer_(weights, edges_),
          decoder_(trellis, options) {}

    Index predict(const Features& x, Index first, Index last, Index* labels,
                  float* scores) override {
        const Index step = EdgeScorer::chunk_rows(x);
        h_.reserve(step * edges_);
        for (Index row = first; row < last; row += step) {
            const Index end = row + step < last ? row + step : last;
            scorer_.run(x, row, end, h_);
            const Index out = (row - first) * k_;
            const Index bad = decoder_.run(h_, end - row, labels + out, scores + out);
            if (bad >= 0) return row + bad;
        }
        return -1;
    }

  private:
    const Index k_, edges_;
    EdgeScorer scorer_;
    Decoder decoder_;
    Buffer<float> h_;
};

}  // namespace ltls::LTLS_ISA
