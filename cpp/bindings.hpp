// What the files that know Python share: *bindings.cpp, and no others.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "features.hpp"
#include "tasks.hpp"
#include "trellis.hpp"

namespace nb = nanobind;

namespace ltls {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline Index size(std::size_t n) { return static_cast<Index>(n); }

inline void same_size(const char* name, std::size_t given, Index expected) {
    if (size(given) != expected)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(expected) +
                                    " entries, got " + std::to_string(given));
}

// Lets other threads run Python for as long as it lives, where that is worth it: another thread
// takes longer to get going than a few rows take. `work` is in weights read.
class Unlocked {
  public:
    explicit Unlocked(Index work) {
        if (work >= worth_releasing) release_.emplace();
    }

  private:
    static constexpr Index worth_releasing = 1 << 17;
    std::optional<nb::gil_scoped_release> release_;
};

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// A feature matrix that keeps the arrays it looks into.
struct FeatureArrays {
    Features view;
    AnyArray values, indices, indptr;
};

// Checks that a matrix has one row per feature and room for the edges.
template <class Matrix>
void check_weights(const char* name, const Matrix& matrix, const Features& x, Index edges) {
    const Index rows = x.n_features + x.intercept;
    if (matrix.ndim() != 2 || size(matrix.shape(0)) != rows || size(matrix.shape(1)) < edges)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(rows) +
                                    " rows of at least " + std::to_string(edges) + " numbers");
}

Loss loss_of(const std::string& name);
Weights weights_of(const AnyArray& weights, const std::optional<In<float>>& scales);
std::vector<const LabelMap*> label_maps(const Trellis& trellis, nb::list codebooks);
[[noreturn]] void throw_not_finite();

void bind_learning(nb::module_& module);
void bind_predicting(nb::module_& module);
void bind_serving(nb::module_& module);
void bind_reading(nb::module_& module);

}  // namespace ltls
