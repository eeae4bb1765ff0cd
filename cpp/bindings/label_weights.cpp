// Bindings of label weights: training and reranking.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

// Labels to train, those with the most rows first, so that threads finish at about the same time.
class LongestFirst {
  public:
    // `list_ptr` as in LabelExamples. `check`, unless None, is called by the first thread before a
    // label if it was not called for so many seconds; its exception ends training.
    LongestFirst(const In<Index>& labels, const std::vector<Index>& list_ptr, nb::handle check,
                 double seconds)
        : labels_(labels.data()), order_(labels.size()), check_(check), seconds_(seconds) {
        const auto count = [&](Index task) {
            const std::size_t label = static_cast<std::size_t>(labels_[task]);
            return list_ptr[label + 1] - list_ptr[label];
        };
        std::iota(order_.begin(), order_.end(), Index{0});
        std::stable_sort(order_.begin(), order_.end(),
                         [&](Index a, Index b) { return count(a) > count(b); });
    }

    // The queue as one thread sees it.
    class View final : public LabelQueue {
      public:
        View(LongestFirst& all, bool first) : all_(all), first_(first) {}
        Task next() override {
            if (first_) all_.call_check();
            const std::size_t at = all_.taken_++;
            if (all_.ended_ || at >= all_.order_.size()) return {-1, -1};
            return {all_.order_[at], all_.labels_[all_.order_[at]]};
        }

      private:
        LongestFirst& all_;
        const bool first_;
    };

    void end() { ended_ = true; }

  private:
    using Clock = std::chrono::steady_clock;

    void call_check() {
        if (check_.is_none() || Clock::now() < due_) return;
        const TakenGil gil;
        check_();
        due_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds_);
    }

    const Index* const labels_;
    std::vector<Index> order_;
    const nb::handle check_;
    const std::chrono::duration<double> seconds_;
    Clock::time_point due_{};
    std::atomic<std::size_t> taken_{0};
    std::atomic<bool> ended_{false};
};

// Labelled rows to train label weights on. A label is trained on its own rows and on those that
// have it among their candidates.
class LabelTask {
  public:
    LabelTask(const FeatureArrays& features, In<Index> label_ptr, In<Index> labels,
              InMatrix<std::int32_t> candidates, std::optional<In<float>> example_weights,
              Index n_labels)
        : features_(features), example_weights_(example_weights), n_labels_(n_labels) {
        const Index rows = features.view.n_rows;
        check_size("label_ptr", label_ptr.size(), rows + 1);
        check_size("candidates", candidates.shape(0), rows);
        if (rows > Index{1} << 30) throw std::invalid_argument("X must have at most 2**30 rows");
        check_range("label_ptr", label_ptr.data(), rows + 1, 0, size(labels.size()) + 1);
        check_range("labels", labels.data(), size(labels.size()), 0, n_labels);
        check_range("candidates", candidates.data(), size(candidates.size()), -1, n_labels);
        if (example_weights) check_size("example_weights", example_weights->size(), rows);
        nb::gil_scoped_release release;
        list_rows(label_ptr.data(), labels.data(), candidates.data(), size(candidates.shape(1)));
    }

    // Trains some labels. Returns how many weights each has, their features and values. `check` is
    // called every so many seconds: Ctrl-C and time limits are handled there.
    std::tuple<Numpy<Index>, Numpy<std::int32_t>, Numpy<float>> run(
        In<Index> labels, double cost, Index passes, double tolerance, float threshold,
        std::optional<std::tuple<In<Index>, In<std::int32_t>, In<float>>> initial, nb::object check,
        double seconds, int n_jobs) {
        const Index count = size(labels.size());
        check_range("labels", labels.data(), count, 0, n_labels_);
        LabelOptions options{cost, passes, tolerance, threshold, {}};
        if (initial) options.initial = checked(*initial);
        const LabelExamples examples{list_ptr_.data(), rows_.data(),
                                     example_weights_ ? example_weights_->data() : nullptr};
        const int threads = static_cast<int>(std::min<Index>(threads_for(n_jobs), count));
        std::vector<LabelWeightLists> parts(static_cast<std::size_t>(std::max(threads, 1)));
        {
            const ReleasedGil release;
            const std::unique_ptr<LabelTrainer> trainer(
                kernels().label_trainer(features_.view, examples, options));
            LongestFirst all(labels, list_ptr_, check, seconds);
            in_parallel(threads, threads, [&](Index first, Index last) {
                for (Index part = first; part < last; ++part) {
                    LongestFirst::View queue(all, part == 0);
                    try {
                        trainer->run(queue, parts[static_cast<std::size_t>(part)]);
                    } catch (...) {
                        all.end();
                        throw;
                    }
                }
            });
        }
        return in_order(parts, count);
    }

    Index n_pairs() const { return list_ptr_.back(); }

  private:
    // The weights of all labels, in the order in which the labels were given.
    static std::tuple<Numpy<Index>, Numpy<std::int32_t>, Numpy<float>> in_order(
        const std::vector<LabelWeightLists>& parts, Index n_labels) {
        const Numpy<Index> counts = new_array<Index>(n_labels);
        for (const LabelWeightLists& part : parts)
            for (const LabelWeightLists::Label& label : part.labels)
                counts.data()[label.task] = label.count;
        std::vector<Index> starts(static_cast<std::size_t>(n_labels) + 1, 0);
        std::partial_sum(counts.data(), counts.data() + n_labels, starts.begin() + 1);
        const Numpy<std::int32_t> features = new_array<std::int32_t>(starts.back());
        const Numpy<float> values = new_array<float>(starts.back());
        for (const LabelWeightLists& part : parts)
            for (const LabelWeightLists::Label& label : part.labels) {
                const Index to = starts[static_cast<std::size_t>(label.task)];
                std::copy_n(part.features.data() + label.first, label.count, features.data() + to);
                std::copy_n(part.values.data() + label.first, label.count, values.data() + to);
            }
        return {counts, features, values};
    }

    // Collects the rows of every label, by counting sort.
    void list_rows(const Index* label_ptr, const Index* labels, const std::int32_t* candidates,
                   Index n_candidates) {
        const Index rows = features_.view.n_rows;
        const auto each_pair = [&](auto&& use) {
            for (Index row = 0; row < rows; ++row) {
                if (example_weights_ && !(example_weights_->data()[row] > 0)) continue;
                const Index* const begin = labels + label_ptr[row];
                const Index* const end = labels + std::max(label_ptr[row], label_ptr[row + 1]);
                for (const Index* label = begin; label < end; ++label)
                    if (std::find(begin, label, *label) == label)
                        use(*label, static_cast<std::int32_t>(row));
                for (Index i = row * n_candidates; i < (row + 1) * n_candidates; ++i)
                    if (candidates[i] >= 0 && std::find(begin, end, candidates[i]) == end)
                        use(candidates[i], static_cast<std::int32_t>(-1 - row));
            }
        };
        list_ptr_.assign(static_cast<std::size_t>(n_labels_) + 1, 0);
        each_pair(
            [&](Index label, std::int32_t) { ++list_ptr_[static_cast<std::size_t>(label) + 1]; });
        for (std::size_t label = 0; label + 1 < list_ptr_.size(); ++label)
            list_ptr_[label + 1] += list_ptr_[label];
        rows_.resize(static_cast<std::size_t>(list_ptr_.back()));
        std::vector<Index> next(list_ptr_);
        each_pair([&](Index label, std::int32_t row) {
            rows_[static_cast<std::size_t>(next[static_cast<std::size_t>(label)]++)] = row;
        });
    }

    InitialLabelWeights checked(
        const std::tuple<In<Index>, In<std::int32_t>, In<float>>& initial) const {
        const auto& [ptr, features, values] = initial;
        check_size("the pointers of initial", ptr.size(), n_labels_ + 1);
        check_size("the values of initial", values.size(), size(features.size()));
        for (Index label = 0; label < n_labels_; ++label)
            if (ptr.data()[label] < 0 || ptr.data()[label] > ptr.data()[label + 1] ||
                ptr.data()[label + 1] > size(values.size()))
                throw std::invalid_argument("initial weights must be a CSR matrix");
        check_range("the features of initial", features.data(), size(features.size()), 0,
                    features_.view.n_features + features_.view.intercept);
        return {ptr.data(), features.data(), values.data()};
    }

    const FeatureArrays features_;
    const std::optional<In<float>> example_weights_;
    const Index n_labels_;
    std::vector<Index> list_ptr_;
    std::vector<std::int32_t> rows_;
};

// Checks that the labels of every row are valid and increase.
template <class Label>
void check_labels(const Label* labels, const Index* row_ptr, Index n_rows, Index n_labels) {
    check_range("labels", labels, row_ptr[n_rows], 0, n_labels);
    for (Index row = 0; row < n_rows; ++row)
        for (Index i = row_ptr[row] + 1; i < row_ptr[row + 1]; ++i)
            if (labels[i - 1] >= labels[i])
                throw std::invalid_argument("labels of row " + std::to_string(row) +
                                            " must increase");
}

LabelWeightArrays label_weight_arrays(In<Index> row_ptr, AnyArray labels, In<std::int8_t> values,
                                      In<float> scales, Index n_labels) {
    const bool wide = labels.dtype() == nb::dtype<std::uint32_t>();
    if (labels.ndim() != 1 || (!wide && labels.dtype() != nb::dtype<std::uint16_t>()))
        throw std::invalid_argument("labels must be a vector of uint16 or uint32");
    if (row_ptr.size() < 1) throw std::invalid_argument("row_ptr must not be empty");
    const Index n_rows = size(row_ptr.size()) - 1, count = size(values.size());
    check_size("labels", labels.size(), count);
    check_size("scales", scales.size(), n_rows);
    check_at_least("n_labels", n_labels, 1);
    const Index* const ptr = row_ptr.data();
    for (Index row = 0; row < n_rows; ++row)
        if (ptr[row] < 0 || ptr[row] > ptr[row + 1] || ptr[row + 1] > count)
            throw std::invalid_argument("row_ptr of row " + std::to_string(row) +
                                        " points outside values");
    if (wide)
        check_labels(static_cast<const std::uint32_t*>(labels.data()), ptr, n_rows, n_labels);
    else
        check_labels(static_cast<const std::uint16_t*>(labels.data()), ptr, n_rows, n_labels);
    const LabelWeights view{ptr, labels.data(), wide, values.data(), scales.data(), n_labels};
    return {view, n_rows, row_ptr, labels, values, scales};
}

// Reranks the candidates of as many rows of x, from row `first` on, as `labels` has.
void rerank(const LabelWeightArrays& weights, const FeatureArrays& x, Index first, float weight,
            OutMatrix<Index> labels, OutMatrix<float> scores, int n_jobs) {
    const Index rows = size(labels.shape(0)), count = size(labels.shape(1));
    if (x.view.n_features + x.view.intercept != weights.n_rows)
        throw std::invalid_argument("X must have " + std::to_string(weights.n_rows) +
                                    " features with the intercept, got " +
                                    std::to_string(x.view.n_features + x.view.intercept));
    if (first < 0 || first + rows > x.view.n_rows)
        throw std::invalid_argument("labels has more rows than X has from row " +
                                    std::to_string(first));
    check_size("scores", scores.size(), rows * count);
    check_range("labels", labels.data(), rows * count, -1, weights.view.n_labels);
    const int threads = threads_for(n_jobs);
    const GilRelease release(rows * count * (x.view.longest_row + 1));
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().rerank_by_weights(x.view, weights.view, weight, first + begin, first + end, count,
                                    labels.data() + begin * count, scores.data() + begin * count);
    });
}

}  // namespace

void bind_label_weights(nb::module_& module) {
    nb::class_<LabelTask>(module, "LabelTask")
        .def(nb::init<const FeatureArrays&, In<Index>, In<Index>, InMatrix<std::int32_t>,
                      std::optional<In<float>>, Index>(),
             "features"_a, "label_ptr"_a, "labels"_a, "candidates"_a, "example_weights"_a.none(),
             nb::kw_only(), "n_labels"_a)
        .def_prop_ro("n_pairs", &LabelTask::n_pairs)
        .def("run", &LabelTask::run, "labels"_a, nb::kw_only(), "cost"_a, "passes"_a, "tolerance"_a,
             "threshold"_a, "initial"_a.none(), "check"_a.none() = nb::none(), "seconds"_a = 0.1,
             "n_jobs"_a);
    nb::class_<LabelWeightArrays>(module, "LabelWeights")
        .def(
            "__init__",
            [](LabelWeightArrays* self, In<Index> row_ptr, AnyArray labels, In<std::int8_t> values,
               In<float> scales, Index n_labels) {
                new (self) LabelWeightArrays(
                    label_weight_arrays(row_ptr, labels, values, scales, n_labels));
            },
            "row_ptr"_a, "labels"_a, "values"_a, "scales"_a, "n_labels"_a)
        .def_ro("n_rows", &LabelWeightArrays::n_rows)
        .def("rerank", &rerank, "x"_a, "first"_a, "weight"_a, "labels"_a, "scores"_a, "n_jobs"_a);
}

}  // namespace ltls
