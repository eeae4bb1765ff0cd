// The codebook as the kernels see it: lookups between labels and paths.
#pragma once

#include "core/index.hpp"

namespace ltls {

// Labels that share paths: label l has path paths[l], and path p has the labels
// labels[start[p]] … labels[start[p + 1] − 1], in increasing order.
struct Buckets {
    const Index* paths;
    const Index* labels;
    const Index* start;
    Index n_labels;
};

// An assignment of labels to paths.
class LabelMap {
  public:
    virtual Index path_of(Index label) const = 0;  // −1 if the label has no path
    virtual Index label_of(Index path) const = 0;  // −1 if the path is free, the first of several
    // Null if every path has at most one label.
    virtual const Buckets* buckets() const { return nullptr; }

  protected:
    ~LabelMap() = default;
};

// Assigns paths to labels when they first occur in training.
class PathAssigner {
  public:
    virtual Index path_of(Index label) const = 0;  // −1 if it has none yet
    virtual Index n_ranked() const = 0;            // how many of the best paths assign() considers
    virtual Index assign(Index label, const Index* ranked, Index count) = 0;

  protected:
    ~PathAssigner() = default;
};

}  // namespace ltls
