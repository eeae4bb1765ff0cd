// Arguments of the training kernels: examples, weights and options.
#pragma once

#include "core/instruction_set.hpp"
#include "structure/label_map.hpp"
#include "structure/loss_info.hpp"

namespace ltls {

// Labelled rows for one trellis. The labels of row i and their paths are entries
// label_ptr[i] … label_ptr[i + 1]−1 of `labels` and `paths`.
struct TrainExamples {
    const Index* label_ptr;
    const Index* labels;
    Index* paths;                  // −1 until a path is assigned
    const float* example_weights;  // or null
    PathAssigner* assigner;        // null if no path is −1
};

// How to train.
struct TrainOptions {
    LossId loss;
    bool multilabel;
    float learning_rate;
    float threshold;   // soft threshold on the weights when scoring; 0 for none
    bool count_hits;   // whether to test if the best path is a positive, before the update
    Index batch_size;  // examples whose steps are computed from the same weights
    int n_threads;     // that share a mini-batch
};

// The rows to train on, in this order. `step` counts examples from 1 over the whole training.
struct TrainChunk {
    const Index* rows;
    Index count;
    Index step;
};

// Weights under training, one row of `stride` numbers per feature.
struct TrainableWeights {
    float* rows;
    float* squares;  // AdaGrad's sums of squared gradients, or null for SGD
    double* sums;    // sums of step × update for averaging, or null
    Index stride;
};

// The result of a training run.
struct TrainStats {
    double loss = 0;  // summed
    Index hits = 0;
    Index examples = 0;  // examples with a nonzero weight and, if the loss needs them, labels

    LTLS_INLINE TrainStats& operator+=(const TrainStats& other) {
        loss += other.loss;
        hits += other.hits;
        examples += other.examples;
        return *this;
    }
};

// Labelled rows for the embedding, each with `n_candidates` hard negatives, −1 for none.
struct EmbeddingExamples {
    const Index* label_ptr;
    const Index* labels;
    const Index* candidates;
    Index n_candidates;
    const float* example_weights;  // or null
};

// The rows to train on. Each has `n_samples` sampled negatives, −1 for none, with the logarithms of
// their importance weights.
struct EmbeddingChunk {
    const Index* rows;
    Index count;
    const Index* samples;
    const float* log_importance;
    Index n_samples;
};

// Vectors of features and labels under training with AdaGrad: rows of `stride` numbers, the first
// `rank` of which are the vector. A label's next number is its bias, a feature's is 0.
struct TrainableEmbedding {
    float* features;
    float* feature_squares;
    float* labels;
    float* label_squares;
    Index rank, stride, n_labels;
};

}  // namespace ltls
