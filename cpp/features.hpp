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
    bool unit_length;   // rows are divided by their length, before the intercept comes in
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

}  // namespace ltls
