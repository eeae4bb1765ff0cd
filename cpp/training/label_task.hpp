// Arguments and interface of the training of label weights.
#pragma once

#include <cstdint>
#include <vector>

#include "core/index.hpp"

namespace ltls {

// The rows that each label is trained on: those of label l are entries list_ptr[l] …
// list_ptr[l + 1]−1 of `rows`, where a row that lacks the label is stored as −1 − row.
struct LabelExamples {
    const Index* list_ptr;
    const std::int32_t* rows;
    const float* example_weights;  // or null
};

// Sparse weights to start from, by label: features increase. Null pointers stand for 0.
struct InitialLabelWeights {
    const Index* label_ptr;
    const std::int32_t* features;
    const float* values;
};

struct LabelOptions {
    double cost;       // of a violated margin, against the squared length of the weights
    Index passes;      // over the rows of a label, at most
    double tolerance;  // of the projected gradient: training ends when it is reached
    float threshold;   // smaller weights are dropped
    InitialLabelWeights initial;
};

// Weights of some labels, one after the other.
struct LabelWeightLists {
    struct Label {
        Index task, first, count;  // the place of its weights in `features` and `values`
    };
    std::vector<Label> labels;
    std::vector<std::int32_t> features;
    std::vector<float> values;

    // Adds the weights of one more label.
    void add(Index task, const std::int32_t* features, const float* values, Index count);
};

// The labels that are left to train, in the order in which threads take them.
class LabelQueue {
  public:
    struct Task {
        Index number, label;  // a label of −1: there is none left
    };
    virtual ~LabelQueue();
    virtual Task next() = 0;
};

// Trains label weights. Any number of threads may run one at the same time.
class LabelTrainer {
  public:
    virtual ~LabelTrainer();
    // Trains labels of the queue until none is left, and appends their weights.
    virtual void run(LabelQueue& queue, LabelWeightLists& out) const = 0;
};

}  // namespace ltls
