// Non-owning views of the feature matrix and the weights.
#pragma once

#include <cstdint>

#include "core/index.hpp"

namespace ltls {

// A feature matrix, sparse (CSR) or dense.
struct Features {
    enum Kind { csr_f32_i32, csr_f32_i64, csr_f64_i32, csr_f64_i64, dense_f32, dense_f64 } kind;
    const void* values;
    const void* indices;  // CSR only, as is indptr
    const void* indptr;
    Index n_rows, n_features;
    Index longest_row;  // upper bound on the non-zeros of a row
    Index n_values;     // CSR only: the length of values and indices
    bool intercept;     // adds a feature that is always 1
    bool unit_length;   // scales rows to length 1, before the intercept is added
};

// Weights for prediction: one row of `stride` numbers per feature. A row has one block of edges per
// trellis. Pruned rows list only the weights that are kept, with their places in the row.
struct Weights {
    enum Kind { f32, f16, i8, pruned_i8 } kind;
    const void* rows;
    const float* scales;  // one factor per row, or null
    Index stride;
    const Index* row_ptr;          // pruned only: row i is entries row_ptr[i] … row_ptr[i + 1]−1
    const std::uint16_t* columns;  // pruned only
};

// Sparse vectors, by feature: those that have feature i are entries ptr[i] … ptr[i + 1]−1 of `ids`,
// which increase, and of `values`. Ids are 16-bit integers, or 32-bit ones if `wide`. The values of
// a vector are multiplied by its scale. Features of many vectors may have a column, where the
// value of every vector is found at once: number `columns[i]` of `column_values`, if that is not
// negative.
struct SparseVectors {
    static constexpr Index lanes = 64;  // columns are padded with 0 to a multiple of it
    static constexpr Index share =
        32;  // columns are of features that 1 / share of the vectors have
    const Index* ptr;
    const void* ids;
    bool wide;
    const std::int8_t* values;
    const float* scales;
    Index n_vectors, n_features;
    const std::int32_t* columns;
    const std::int8_t* column_values;
    const float* largest_scales;  // of every `lanes` vectors

    Index n_chunks() const { return (n_vectors + lanes - 1) / lanes; }
    const std::int8_t* column(Index feature) const {
        return columns[feature] < 0 ? nullptr
                                    : column_values + columns[feature] * n_chunks() * lanes;
    }
};

// Dense vectors: the values of `lanes` vectors are side by side, two features of each at a time,
// and those of further vectors follow. The last vectors and the last feature are padded with 0. The
// score of a vector is its inner product with a row, times its scale, plus its offset.
struct DenseVectors {
    static constexpr Index lanes = 16;
    const std::int8_t* values;
    const float* scales;
    const float* offsets;
    Index n_vectors, n_pairs;  // of features
};

// Sparse vectors by vector: vector i has entries ptr[i] … ptr[i + 1]−1 of `features`, which
// increase, and of `values`, which are multiplied by its scale.
struct SparseRows {
    const Index* ptr;
    const std::int32_t* features;
    const std::int8_t* values;
    const float* scales;
    Index n_rows, n_features;
};

}  // namespace ltls
