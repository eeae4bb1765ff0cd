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

}  // namespace ltls
