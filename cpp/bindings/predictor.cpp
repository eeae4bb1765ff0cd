// Bindings of the predictor, which any number of threads may call.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
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

// A model for prediction, with a pool of RowPredictors: as many as were ever in use at once.
class ModelPredictor {
  public:
    ModelPredictor(const Trellis& trellis, nb::list codebooks, const WeightArrays& weights,
                   bool intercept, bool unit_length, std::string_view loss, Index n_labels,
                   Index n_paths, Index k, std::optional<SparseVectorArrays> label_weights,
                   float weight, Index n_candidates,
                   std::optional<SparseVectorArrays> cluster_weights, float cluster_weight)
        : trellis_(trellis),
          codebooks_(codebooks),
          maps_(label_maps(trellis, codebooks)),
          weight_arrays_(weights),
          weights_(weights.view),
          intercept_(intercept),
          unit_length_(unit_length),
          k_(k),
          label_weights_(label_weights),
          cluster_weights_(cluster_weights) {
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
            if (!intercept || label_weights_->view.n_features != weights.n_rows ||
                label_weights_->view.n_vectors < n_labels)
                throw std::invalid_argument(
                    "label_weights must have the features of weights, an intercept, and all "
                    "labels");
            reranking_ = {&label_weights_->view, weight, k,
                          cluster_weights_ ? &cluster_weights_->view : nullptr, cluster_weight};
        }
        if (cluster_weights_ &&
            (!label_weights_ || !maps_[0]->buckets() || trellis.n_classes > most_scanned ||
             cluster_weights_->view.n_features != weights.n_rows ||
             cluster_weights_->view.n_vectors != trellis.n_classes))
            throw std::invalid_argument(
                "cluster_weights need label_weights, labels that share paths, the features of "
                "weights, and a vector for every path, of at most " +
                std::to_string(most_scanned));
        options_ = {
            loss_of(loss), weights_.stride / n_trellises,    maps_.data(), n_trellises, n_labels,
            n_paths,       label_weights_ ? n_candidates : k};
    }
    ModelPredictor(const ModelPredictor&) = delete;

    // The best labels of as many rows of x, from row `first` on, as `labels` has.
    void predict(const FeatureArrays& x, Index first, OutMatrix<Index> labels,
                 OutMatrix<float> scores, int n_jobs) {
        check_size("a row of labels", labels.shape(1), k_);
        check_size("scores", scores.size(), size(labels.size()));
        Index* const out = labels.data();
        run(x, first, size(labels.shape(0)), n_jobs,
            [&](RowPredictor& predictor, Index begin, Index end) {
                return predictor.predict(x.view, first + begin, first + end, out + begin * k_,
                                         scores.data() + begin * k_);
            });
    }

    // The scores of given labels of as many rows.
    void score(const FeatureArrays& x, Index first, InMatrix<Index> labels, OutMatrix<float> scores,
               int n_jobs) {
        const Index count = size(labels.shape(1));
        check_size("scores", scores.size(), size(labels.size()));
        check_range("labels", labels.data(), size(labels.size()), -1, options_.n_labels);
        run(x, first, size(labels.shape(0)), n_jobs,
            [&](RowPredictor& predictor, Index begin, Index end) {
                return predictor.score(x.view, first + begin, first + end, count,
                                       labels.data() + begin * count,
                                       scores.data() + begin * count);
            });
    }

    Index k() const { return k_; }

  private:
    template <class Work>
    void run(const FeatureArrays& x, Index first, Index rows, int n_jobs, Work&& work) {
        check_rows(x.view, first, rows, n_features_ + intercept_);
        if (x.view.intercept != intercept_ || x.view.unit_length != unit_length_)
            throw std::invalid_argument("X must be scaled and have an intercept as in training");
        const int threads = threads_for(n_jobs);
        std::atomic<bool> bad{false};
        {
            const GilRelease release(rows * (x.view.longest_row * weights_.stride + decode_cost()));
            in_parallel(rows, threads, [&](Index begin, Index end) {
                std::unique_ptr<RowPredictor> predictor = take();
                if (work(*predictor, begin, end) >= 0) bad = true;
                const std::lock_guard<std::mutex> lock(shared_state());
                idle_.push_back(std::move(predictor));
            });
        }
        if (bad) throw_not_finite();
    }

    Index decode_cost() const { return 256 * options_.n_trellises * options_.n_paths; }

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
    const std::optional<SparseVectorArrays> label_weights_, cluster_weights_;
    Reranking reranking_;
    Index n_features_;
    DecodeOptions options_;
    std::vector<std::unique_ptr<RowPredictor>> idle_;
};

}  // namespace

void bind_predictor(nb::module_& module) {
    nb::class_<ModelPredictor>(module, "Predictor")
        .def(nb::init<const Trellis&, nb::list, const WeightArrays&, bool, bool, std::string_view,
                      Index, Index, Index, std::optional<SparseVectorArrays>, float, Index,
                      std::optional<SparseVectorArrays>, float>(),
             "trellis"_a, "codebooks"_a, "weights"_a, "intercept"_a, "unit_length"_a, "loss"_a,
             "n_labels"_a, "n_paths"_a, "k"_a, "label_weights"_a.none() = nb::none(),
             "weight"_a = 0.0f, "n_candidates"_a = 0, "cluster_weights"_a.none() = nb::none(),
             "cluster_weight"_a = 0.0f)
        .def_prop_ro("k", &ModelPredictor::k)
        .def("predict", &ModelPredictor::predict, "x"_a, "first"_a, "labels"_a, "scores"_a,
             "n_jobs"_a)
        .def("score", &ModelPredictor::score, "x"_a, "first"_a, "labels"_a, "scores"_a, "n_jobs"_a);
}

}  // namespace ltls
