// Arguments and interface of the training of label weights.
#pragma once

#include <cstdint>
#include <vector>

#include "core/index.hpp"

namespace ltls {

// The rows of every label: those of label l are entries list_ptr[l] … list_ptr[l + 1]−1 of `rows`.
struct LabelRows {
    const Index* list_ptr;
    const std::int32_t* rows;
    const float* example_weights;  // or null
    const bool* held_out;          // rows that some weights must not be trained on, or null
};

// Sparse weights to start from, by label: features increase. Null pointers stand for 0.
struct InitialLabelWeights {
    const Index* label_ptr;
    const std::int32_t* features;
    const float* values;
};

struct SiblingOptions {
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

// The rows of a cluster of labels, with only the features that they have.
class ClusterRows {
  public:
    virtual ~ClusterRows();
};

// Trains label weights in one thread. It owns scratch memory.
class SiblingTrainer {
  public:
    virtual ~SiblingTrainer();
    // The caller owns the result.
    virtual const ClusterRows* gather(const Index* labels, Index count) = 0;
    // Trains label number `label` of a cluster and appends its weights to `all`; those before it
    // has seen the held-out rows to `without`, unless that is null.
    virtual void train(const ClusterRows& cluster, Index label, Index task, LabelWeightLists& all,
                       LabelWeightLists* without) = 0;
};

}  // namespace ltls
