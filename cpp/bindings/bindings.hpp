// Shared by the files of this folder, the only ones that know Python. Arrays are passed without
// copies: Python allocates results, the engine writes into them and releases the GIL meanwhile.
// Arguments are never std::string or std::vector: nanobind copies into these in functions that must
// not throw, and the process would end where memory is exhausted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "linear/features.hpp"
#include "structure/label_map.hpp"
#include "structure/loss_info.hpp"
#include "structure/trellis.hpp"

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
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

template <class T>
using Numpy = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// A NumPy array that owns `count` numbers.
template <class T>
Numpy<T> new_array(Index count) {
    std::unique_ptr<T[]> data(new T[static_cast<std::size_t>(count)]);
    const nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Numpy<T>(data.release(), {static_cast<std::size_t>(count)}, owner);
}

inline Index size(std::size_t n) { return static_cast<Index>(n); }

inline void check_size(const char* name, std::size_t given, Index expected) {
    if (size(given) != expected)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(expected) +
                                    " entries, got " + std::to_string(given));
}

inline void check_at_least(const char* name, Index given, Index lowest) {
    if (given < lowest)
        throw std::invalid_argument(std::string(name) + " must be at least " +
                                    std::to_string(lowest) + ", got " + std::to_string(given));
}

template <class Int>
void check_range(const char* name, const Int* values, Index count, Index lowest, Index limit) {
    for (Index i = 0; i < count; ++i)
        if (values[i] < lowest || values[i] >= limit)
            throw std::invalid_argument(
                std::string(name) + " must be between " + std::to_string(lowest) + " and " +
                std::to_string(limit - 1) + ", got " + std::to_string(values[i]));
}

// Releases the GIL for its lifetime. When the interpreter exits, Python before 3.14 ends a daemon
// thread that takes the GIL by unwinding its stack. No frame of nanobind may be unwound: the
// process would abort. The thread waits here instead, until the process is gone.
class ReleasedGil {
  public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ~ReleasedGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    ReleasedGil(const ReleasedGil&) = delete;

  private:
    PyThreadState* const state_;
};

// Takes the GIL for its lifetime, in the thread that has released it.
class TakenGil {
  public:
    TakenGil() {
        try {
            state_ = PyGILState_Ensure();
        } catch (...) {  // as above
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    ~TakenGil() { PyGILState_Release(state_); }
    TakenGil(const TakenGil&) = delete;

  private:
    PyGILState_STATE state_;
};

// Releases the GIL for its lifetime if the work, in weights read, takes longer than another thread
// needs to start running.
class GilRelease {
  public:
    explicit GilRelease(Index work) {
        if (work >= min_work) release_.emplace();
    }

  private:
    static constexpr Index min_work = 1 << 17;
    std::optional<ReleasedGil> release_;
};

// A feature matrix that keeps its arrays alive.
struct FeatureArrays {
    Features view;
    AnyArray values, indices, indptr;
};

// Weights for prediction that keep their arrays alive.
struct WeightArrays {
    Weights view;
    Index n_rows;
    AnyArray values;
    std::optional<In<float>> scales;
    std::optional<In<Index>> row_ptr;
    std::optional<In<std::uint16_t>> columns;
};

// What is computed from sparse vectors once; see SparseVectors.
struct VectorColumns {
    std::vector<std::int32_t> numbers;
    std::vector<std::int8_t> values;
    std::vector<float> largest_scales;
};

// Sparse vectors that keep their arrays alive.
struct SparseVectorArrays {
    SparseVectors view;
    In<Index> ptr;
    AnyArray ids;
    In<std::int8_t> values;
    In<float> scales;
    std::shared_ptr<const VectorColumns> columns;
};

// Checks that a matrix has one row per feature with room for the edges.
template <class Matrix>
void check_weights(const char* name, const Matrix& matrix, const Features& x, Index edges) {
    const Index rows = x.n_features + x.intercept;
    if (matrix.ndim() != 2 || size(matrix.shape(0)) != rows || size(matrix.shape(1)) < edges)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(rows) +
                                    " rows of at least " + std::to_string(edges) + " numbers");
}

// Checks that X has rows first … first + rows−1, and, with the intercept, so many features.
inline void check_rows(const Features& x, Index first, Index rows, Index n_features) {
    if (x.n_features + x.intercept != n_features)
        throw std::invalid_argument("X must have " + std::to_string(n_features) +
                                    " features with the intercept, got " +
                                    std::to_string(x.n_features + x.intercept));
    if (first < 0 || first + rows > x.n_rows)
        throw std::invalid_argument("X must have " + std::to_string(first + rows) + " rows, got " +
                                    std::to_string(x.n_rows));
}

LossId loss_of(std::string_view name);
std::vector<const LabelMap*> label_maps(const Trellis& trellis, nb::list codebooks);
void check_decoding(const Trellis& trellis, const std::vector<const LabelMap*>& maps,
                    Index n_labels, Index n_paths, Index k);
[[noreturn]] void throw_not_finite();

void bind_structure(nb::module_& module);
void bind_linear(nb::module_& module);
void bind_training(nb::module_& module);
void bind_inference(nb::module_& module);
void bind_predictor(nb::module_& module);
void bind_siblings(nb::module_& module);
void bind_vectors(nb::module_& module);
void bind_text(nb::module_& module);
void bind_ngrams(nb::module_& module);

}  // namespace ltls
