// What the kernels are given: a feature matrix as Python holds it, weights, and what to do with
// them. One or several trellises of the same shape share the features; their edges lie side by side
// in the rows of the weights and of h, a block each.
#pragma once

#include "trellis.hpp"

namespace ltls {

// Rows of features, sparse (CSR) or dense, without a copy.
struct Features {
    enum Kind { csr_f32_i32, csr_f32_i64, csr_f64_i32, csr_f64_i64, dense_f32, dense_f64 } kind;
    const void* values;
    const void* indices;  // of CSR only, with indptr
    const void* indptr;
    Index n_rows, n_features;
    Index longest_row;  // the most non-zeros that a row can have
    bool intercept;     // one more feature, always 1
};

// Weights at prediction, one row of `stride` numbers per feature.
struct Weights {
    enum Kind { f32, f16, i8 } kind;
    const void* rows;
    const float* scales;  // a factor per row, or null
    Index stride;
};

// Weights while they are learned. `squares` is AdaGrad's memory and null for plain SGD; `sums` adds
// up clock × step for the average over all examples and is null without averaging.
struct Learned {
    float* rows;
    float* squares;
    double* sums;
    Index stride;
};

enum class Loss { separation, softmax, logistic };

// Gives paths to labels that have none when learning meets them.
class Assigner {
  public:
    virtual Index path_of(Index label) const = 0;  // −1 if it has none yet
    virtual Index n_ranked() const = 0;            // how many best paths to rank for the next label
    virtual Index assign(Index label, const Index* ranked, Index count) = 0;

  protected:
    ~Assigner() = default;
};

// How to learn, and from what: `order` lists the rows to take, labels and their paths come as CSR.
struct Lesson {
    Loss loss;
    bool multilabel;
    float rate;
    float threshold;  // soft threshold when scoring; 0 is none
    bool count_hits;  // whether to see if the best path is a positive, before the step
    Index clock;      // examples seen so far, plus one
    const Index* order;
    Index count;
    const Index* label_ptr;
    const Index* labels;
    Index* paths;                  // −1 where a label's path is still to be assigned
    const float* example_weights;  // or null
    Assigner* assigner;            // null if no path is −1
};

struct Learnt {
    double loss = 0;  // summed
    Index hits = 0;
    Index examples = 0;  // those that had a weight and what their loss needs
};

// Which label has which path; −1 for none.
class LabelMap {
  public:
    virtual Index path_of(Index label) const = 0;
    virtual Index label_of(Index path) const = 0;

  protected:
    ~LabelMap() = default;
};

// How to find the best labels of rows of edge scores: the best `n_paths` of every trellis are the
// candidates, and their sums over all trellises rank them.
struct Decoding {
    Loss loss;
    Index block;  // from one trellis' edges to the next one's, in a row of h
    const LabelMap* const* codebooks;
    Index n_trellises;
    Index n_labels;  // labels from here on are not known yet
    Index n_paths;
    Index k;
    bool normalise;  // softmax: take the log-partitions off, so that scores are log-probabilities
};

}  // namespace ltls
