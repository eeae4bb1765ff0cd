// Bindings of the predictor: single rows and batches, from any number of threads.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

// An array accessed by the buffer protocol, in a tenth of the time that nb::ndarray takes.
class BufferView {
  public:
    explicit BufferView(nb::handle array, bool writable = false) {
        const int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
        held_ = PyObject_GetBuffer(array.ptr(), &buffer_, flags) == 0;
        if (!held_) PyErr_Clear();
    }
    ~BufferView() {
        if (held_) PyBuffer_Release(&buffer_);
    }
    BufferView(const BufferView&) = delete;

    // Whether its elements have one of these format characters and this size, and are aligned.
    bool holds(const char* kinds, Index bytes) const {
        return held_ && buffer_.format && buffer_.format[0] && !buffer_.format[1] &&
               std::string_view(kinds).find(buffer_.format[0]) != std::string_view::npos &&
               buffer_.itemsize == bytes &&
               reinterpret_cast<std::uintptr_t>(buffer_.buf) % static_cast<std::uintptr_t>(bytes) ==
                   0;
    }
    Index count() const { return buffer_.len / buffer_.itemsize; }
    void* data() const { return buffer_.buf; }

  private:
    Py_buffer buffer_;
    bool held_;
};

// Validates features and values. Returns whether the features of every row are increasing.
template <class Int, class Value>
bool check_entries(const Features& x, Index count) {
    const Int* indptr = static_cast<const Int*>(x.indptr);
    const Int* indices = static_cast<const Int*>(x.indices);
    const Value* values = static_cast<const Value*>(x.values);
    for (Index row = 0; row < x.n_rows; ++row)
        if (indptr[row] < 0 || indptr[row] > indptr[row + 1] || indptr[row + 1] > count)
            throw std::invalid_argument("indptr of row " + std::to_string(row) +
                                        " points outside indices and values");
    for (Index i = 0; i < count; ++i) {
        if (indices[i] < 0 || indices[i] >= x.n_features)
            throw std::invalid_argument("indices must be between 0 and " +
                                        std::to_string(x.n_features - 1) + ", got " +
                                        std::to_string(indices[i]));
        if (!(std::fabs(values[i]) <= Value(1e15)))
            throw std::invalid_argument("values must be finite and at most 1e15, got " +
                                        std::to_string(values[i]));
    }
    bool increase = true;
    for (Index row = 0; row < x.n_rows; ++row)
        for (Int i = indptr[row] + 1; i < indptr[row + 1]; ++i)
            increase = increase && indices[i - 1] < indices[i];
    return increase;
}

bool check_entries(const Features& x, Index count) {
    switch (x.kind) {
        case Features::csr_f32_i32:
            return check_entries<std::int32_t, float>(x, count);
        case Features::csr_f32_i64:
            return check_entries<std::int64_t, float>(x, count);
        case Features::csr_f64_i32:
            return check_entries<std::int32_t, double>(x, count);
        default:
            return check_entries<std::int64_t, double>(x, count);
    }
}

// A model for prediction, with a pool of RowPredictors: as many as were ever in use at once.
class ModelPredictor {
  public:
    ModelPredictor(const Trellis& trellis, nb::list codebooks, const WeightArrays& weights,
                   bool intercept, bool unit_length, std::string_view loss, Index n_labels,
                   Index n_paths, Index k, std::optional<LabelWeightArrays> label_weights,
                   float weight, Index n_candidates)
        : trellis_(trellis),
          codebooks_(codebooks),
          maps_(label_maps(trellis, codebooks)),
          weight_arrays_(weights),
          weights_(weights.view),
          intercept_(intercept),
          unit_length_(unit_length),
          k_(k),
          label_weights_(label_weights) {
        const Index n_trellises = size(maps_.size());
        if (n_trellises < 1 || weights_.stride % n_trellises != 0 ||
            weights_.stride / n_trellises < trellis.n_edges || weights.n_rows < intercept)
            throw std::invalid_argument("weights must hold a block of edges per codebook");
        check_decoding(trellis, maps_, n_labels, n_paths, k);
        n_features_ = weights.n_rows - intercept;
        if (label_weights_) {
            if (n_candidates < k)
                throw std::invalid_argument(
                    "n_candidates must be at least k = " + std::to_string(k) + ", got " +
                    std::to_string(n_candidates));
            if (!intercept || label_weights_->n_rows != weights.n_rows ||
                label_weights_->view.n_labels < n_labels)
                throw std::invalid_argument(
                    "label_weights must have the features of weights, an intercept, and all "
                    "labels");
            reranking_ = {&label_weights_->view, weight, k};
        }
        options_ = {
            loss_of(loss), weights_.stride / n_trellises,    maps_.data(), n_trellises, n_labels,
            n_paths,       label_weights_ ? n_candidates : k};
    }
    ModelPredictor(const ModelPredictor&) = delete;

    // The best labels of as many rows of x, from row `first` on, as `labels` has.
    void predict(const FeatureArrays& x, Index first, OutMatrix<Index> labels,
                 OutMatrix<float> scores, int n_jobs) {
        const Index rows = size(labels.shape(0));
        if (x.view.n_features != n_features_ || x.view.intercept != intercept_ ||
            x.view.unit_length != unit_length_)
            throw std::invalid_argument("X must have " + std::to_string(n_features_) +
                                        " features, got " + std::to_string(x.view.n_features));
        if (first < 0 || first + rows > x.view.n_rows)
            throw std::invalid_argument("labels has more rows than X has from row " +
                                        std::to_string(first));
        check_size("labels", labels.size(), rows * k_);
        check_size("scores", scores.size(), rows * k_);
        const int threads = threads_for(n_jobs);
        std::atomic<bool> bad{false};
        {
            const ReleasedGil release;
            in_parallel(rows, threads, [&](Index begin, Index end) {
                if (!run(x.view, first + begin, first + end, labels.data() + begin * k_,
                         scores.data() + begin * k_))
                    bad = true;
            });
        }
        if (bad) throw_not_finite();
    }

    // The same for the arrays of a CSR matrix, with minimal overhead; indptr is None for one row.
    // Returns whether every row has k labels, or None if the arrays need conversion or sorting.
    std::optional<bool> predict_csr(nb::handle indptr, nb::handle indices, nb::handle values,
                                    nb::handle labels, nb::handle scores) {
        const BufferView index(indices), value(values), start(indptr);
        const BufferView label_out(labels, true), score_out(scores, true);
        const bool one_row = indptr.is_none();
        if (!label_out.holds("lq", 8) || !score_out.holds("f", 4)) return std::nullopt;
        const bool wide = index.holds("lq", 8), exact = value.holds("d", 8);
        if (!wide && !index.holds("il", 4)) return std::nullopt;
        if (!exact && !value.holds("f", 4)) return std::nullopt;
        if (!one_row && !start.holds(wide ? "lq" : "il", wide ? 8 : 4)) return std::nullopt;

        if (index.count() != value.count())
            throw std::invalid_argument("indices and values must be of one length, got " +
                                        std::to_string(index.count()) + " and " +
                                        std::to_string(value.count()));
        if (!one_row && start.count() < 1) throw std::invalid_argument("indptr must not be empty");
        const std::int64_t ends[2] = {0, index.count()};
        const std::int32_t short_ends[2] = {0, static_cast<std::int32_t>(index.count())};
        Features x{};
        x.kind = exact ? (wide ? Features::csr_f64_i64 : Features::csr_f64_i32)
                       : (wide ? Features::csr_f32_i64 : Features::csr_f32_i32);
        x.values = value.data();
        x.indices = index.data();
        x.indptr = !one_row ? start.data() : wide ? static_cast<const void*>(ends) : short_ends;
        x.n_rows = one_row ? 1 : start.count() - 1;
        x.n_features = n_features_;
        x.intercept = intercept_;
        x.unit_length = unit_length_;
        x.longest_row = x.n_values = index.count();
        check_size("labels", static_cast<std::size_t>(label_out.count()), x.n_rows * k_);
        check_size("scores", static_cast<std::size_t>(score_out.count()), x.n_rows * k_);
        if (!check_entries(x, index.count()) && unit_length_) return std::nullopt;

        Index* const out = static_cast<Index*>(label_out.data());
        float* const out_scores = static_cast<float*>(score_out.data());
        bool finite;
        {
            const GilRelease release(index.count() * weights_.stride + x.n_rows * decode_cost());
            finite = run(x, 0, x.n_rows, out, out_scores);
        }
        if (!finite) throw_not_finite();
        for (Index row = 1; row <= x.n_rows; ++row)
            if (out[row * k_ - 1] < 0) return false;
        return true;
    }

    Index n_features() const { return n_features_; }

  private:
    Index decode_cost() const { return 256 * options_.n_trellises * options_.n_paths; }

    bool run(const Features& x, Index first, Index last, Index* labels, float* scores) {
        std::unique_ptr<RowPredictor> predictor = take();
        const bool finite = predictor->predict(x, first, last, labels, scores) < 0;
        const std::lock_guard<std::mutex> lock(shared_state());
        idle_.push_back(std::move(predictor));
        return finite;
    }
    std::unique_ptr<RowPredictor> take() {
        {
            const std::lock_guard<std::mutex> lock(shared_state());
            if (!idle_.empty()) {
                std::unique_ptr<RowPredictor> predictor = std::move(idle_.back());
                idle_.pop_back();
                return predictor;
            }
        }
        return std::unique_ptr<RowPredictor>(kernels().predictor(
            trellis_, options_, weights_, label_weights_ ? &reranking_ : nullptr));
    }

    const Trellis trellis_;
    const nb::list codebooks_;  // keeps them alive, as the arrays below
    const std::vector<const LabelMap*> maps_;
    const WeightArrays weight_arrays_;
    const Weights weights_;
    const bool intercept_, unit_length_;
    const Index k_;
    const std::optional<LabelWeightArrays> label_weights_;
    Reranking reranking_;
    Index n_features_;
    DecodeOptions options_;
    std::vector<std::unique_ptr<RowPredictor>> idle_;
};

}  // namespace

void bind_predictor(nb::module_& module) {
    nb::class_<ModelPredictor>(module, "Predictor")
        .def(nb::init<const Trellis&, nb::list, const WeightArrays&, bool, bool, std::string_view,
                      Index, Index, Index, std::optional<LabelWeightArrays>, float, Index>(),
             "trellis"_a, "codebooks"_a, "weights"_a, "intercept"_a, "unit_length"_a, "loss"_a,
             "n_labels"_a, "n_paths"_a, "k"_a, "label_weights"_a.none() = nb::none(),
             "weight"_a = 0.0f, "n_candidates"_a = 0)
        .def("predict", &ModelPredictor::predict, "x"_a, "first"_a, "labels"_a, "scores"_a,
             "n_jobs"_a)
        .def("predict_csr", &ModelPredictor::predict_csr, "indptr"_a.none(), "indices"_a,
             "values"_a, "labels"_a, "scores"_a);
}

}  // namespace ltls
