// Arguments and interface of the prediction kernels.
#pragma once

#include "linear/features.hpp"
#include "structure/label_map.hpp"
#include "structure/loss_info.hpp"

namespace ltls {

// How to decode rows of edge scores of one or several trellises: the labels of the `n_paths` best
// paths of each trellis are the candidates, ranked by the sum of their scores over all trellises.
struct DecodeOptions {
    LossId loss;
    Index block;  // numbers per trellis in a row of h, padding included
    const LabelMap* const* codebooks;
    Index n_trellises;
    Index n_labels;  // labels from here on are not returned
    Index n_paths;
    Index k;
};

// How to rerank the candidates that decoding finds: the k best by label weights, where `weight` is
// that of the decode scores.
struct Reranking {
    const LabelWeights* weights;
    float weight;
    Index k;
};

// Predicts the best labels of rows of features. It owns scratch memory, so each thread needs one.
class RowPredictor {
  public:
    virtual ~RowPredictor();
    // Writes k labels and scores for each of rows first … last−1; −1s if there are fewer, or if
    // there are too few candidates to rerank. Returns the first row whose edge
    // scores are NaN or +∞, or −1.
    virtual Index predict(const Features& x, Index first, Index last, Index* labels,
                          float* scores) = 0;
};

}  // namespace ltls
