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

// Weights of consecutive labels: `counts` has the number of weights of every label.
struct LabelWeightLists {
    std::vector<Index> counts;
    std::vector<std::int32_t> features;
    std::vector<float> values;

    // Adds the weights of one more label.
    void add(const std::int32_t* features, const float* values, Index count);
};

// Trains label weights. Any number of threads may run one at the same time.
class LabelTrainer {
  public:
    virtual ~LabelTrainer();
    // Appends the weights of labels first … last−1.
    virtual void run(Index first, Index last, LabelWeightLists& out) const = 0;
};

}  // namespace ltls
