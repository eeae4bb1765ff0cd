// Arguments and interface of the prediction kernels.
#pragma once

#include "linear/features.hpp"
#include "structure/label_map.hpp"
#include "structure/loss_info.hpp"

namespace ltls {

constexpr Index most_scanned = 1 << 14;  // paths; among more, list Viterbi is faster

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

// Label weights, which tell the candidates that decoding finds apart: the score of a label is
// −max(0, 1 − s)³ + weight · b, where s is the inner product with its weights and b its score so
// far. Clusters of labels, which are paths, may have weights, too: these add
// −cluster_weight · max(0, 1 − s)³ to the score of a path.
struct Reranking {
    const SparseVectors* weights;
    float weight;
    Index k;
    const SparseVectors* cluster_weights;  // or null
    float cluster_weight;
};

// By how much the output of a linear classifier falls short of the margin.
LTLS_INLINE float shortfall_of(float output) {
    const float gap = 1.0f - output;
    return gap > 0 ? gap : 0.0f;
}

// Predicts labels of rows of features. It owns scratch memory, so each thread needs one. Both
// methods return the first row whose edge scores are NaN or +∞, or −1.
class RowPredictor {
  public:
    virtual ~RowPredictor();
    // Writes the k best labels of rows first … last−1 and their scores, best first, or in any order
    // if there are label weights; −1 and −∞ if fewer are found.
    virtual Index predict(const Features& x, Index first, Index last, Index* labels,
                          float* scores) = 0;
    // Writes the scores of `count` given labels per row; −∞ for label −1.
    virtual Index score(const Features& x, Index first, Index last, Index count,
                        const Index* labels, float* scores) = 0;
};

}  // namespace ltls
