// What the kernels are asked to do: learn from examples, decode rows of edge scores.
#pragma once

#include <cstdint>

#include "features.hpp"
#include "trellis.hpp"

namespace ltls {

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
    Index batch;      // how many examples find their steps from the same weights
    int threads;      // that share a batch
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

// Vectors of features and labels whose inner products rescore candidates: rows of `stride` numbers,
// of which the first `rank` are the vector. A label's next number is its bias, a feature's is 0.
struct Embedding {
    float* features;
    float* feature_squares;  // AdaGrad's memory; null when it does not learn
    float* labels;
    float* label_squares;
    Index rank, stride, n_labels;
};

// How an embedding learns, and from what; see `Lesson`. Every row of x has `n_candidates` labels
// that are likely, −1 for none. Every place in `order` has `n_samples` labels drawn at random, −1
// for none, with the log of how many labels each stands for.
struct EmbeddingLesson {
    float rate;
    const Index* order;
    Index count;
    const Index* label_ptr;
    const Index* labels;
    const Index* candidates;
    Index n_candidates;
    const Index* samples;
    const float* stands_for;
    Index n_samples;
    const float* example_weights;  // or null
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
};

// Finds the best labels of rows of features. It has room of its own, so every thread needs one.
class RowPredictor {
  public:
    virtual ~RowPredictor();
    // Writes the labels and scores of rows first … last−1, k each; returns the first of them whose
    // edge scores are NaN or +∞, or −1.
    virtual Index predict(const Features& x, Index first, Index last, Index* labels,
                          float* scores) = 0;
};

}  // namespace ltls
