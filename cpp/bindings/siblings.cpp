// Bindings of the training of label weights.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

using Lists = std::tuple<Numpy<Index>, Numpy<std::int32_t>, Numpy<float>>;

// Clusters of labels as tasks for threads: the largest first, so that all finish at about the same
// time. The labels of a large cluster are several tasks, which share its rows.
class ClusterTasks {
  public:
    struct Task {
        Index cluster, first, last;  // labels of the cluster
    };

    ClusterTasks(const Index* cluster_ptr, Index n_clusters, const std::vector<Index>& costs,
                 int threads)
        : slots_(static_cast<std::size_t>(n_clusters)) {
        std::vector<Index> order(static_cast<std::size_t>(n_clusters));
        std::iota(order.begin(), order.end(), Index{0});
        const auto cost = [&](Index c) { return costs[static_cast<std::size_t>(c)]; };
        std::stable_sort(order.begin(), order.end(),
                         [&](Index a, Index b) { return cost(a) > cost(b); });
        const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
        for (const Index c : order) {
            const Index first = cluster_ptr[c], n = cluster_ptr[c + 1] - first;
            const double share = total > 0 ? static_cast<double>(cost(c)) / total : 0;
            const Index parts =
                threads == 1 ? 1 : std::clamp<Index>(static_cast<Index>(4 * share * threads), 1, n);
            for (Index part = 0; part < parts && n > 0; ++part)
                tasks_.push_back({c, n * part / parts, n * (part + 1) / parts});
            slots_[static_cast<std::size_t>(c)].left = parts;
        }
    }

    // The next task, or null.
    const Task* next() {
        const std::size_t at = taken_++;
        return ended_ || at >= tasks_.size() ? nullptr : &tasks_[at];
    }
    void end() { ended_ = true; }

    // Calls use(rows) with the rows of a task's cluster, which gather() returns once.
    template <class Gather, class Use>
    void with_rows(const Task& task, Gather&& gather, Use&& use) {
        Slot& slot = slots_[static_cast<std::size_t>(task.cluster)];
        {
            const std::lock_guard lock(slot.mutex);
            if (!slot.rows) slot.rows.reset(gather());
        }
        use(*slot.rows);
        if (--slot.left == 0) slot.rows.reset();
    }

  private:
    struct Slot {
        std::mutex mutex;
        std::unique_ptr<const ClusterRows> rows;
        std::atomic<Index> left{0};
    };
    std::vector<Task> tasks_;
    std::vector<Slot> slots_;
    std::atomic<std::size_t> taken_{0};
    std::atomic<bool> ended_{false};
};

// Calls a Python function every so many seconds: Ctrl-C and time limits are handled there.
class Check {
  public:
    Check(nb::handle function, double seconds) : function_(function), seconds_(seconds) {}

    void operator()() {
        if (function_.is_none() || Clock::now() < due_) return;
        const TakenGil gil;
        function_();
        due_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds_);
    }

  private:
    using Clock = std::chrono::steady_clock;
    const nb::handle function_;
    const std::chrono::duration<double> seconds_;
    Clock::time_point due_{};
};

// Labelled rows to train label weights on. Rows of weight 0 are left out.
class SiblingTask {
  public:
    SiblingTask(const FeatureArrays& features, In<Index> label_ptr, In<Index> labels,
                std::optional<In<float>> example_weights, Index n_labels)
        : features_(features), example_weights_(example_weights), n_labels_(n_labels) {
        const Index rows = features.view.n_rows;
        check_size("label_ptr", label_ptr.size(), rows + 1);
        if (rows > Index{1} << 30) throw std::invalid_argument("X must have at most 2**30 rows");
        check_range("label_ptr", label_ptr.data(), rows + 1, 0, size(labels.size()) + 1);
        check_range("labels", labels.data(), size(labels.size()), 0, n_labels);
        if (example_weights) check_size("example_weights", example_weights->size(), rows);
        const ReleasedGil release;
        list_rows(label_ptr.data(), labels.data());
    }

    // Trains the labels of some clusters against each other. Returns how many weights each of these
    // labels has, in their order in `labels`, and the features and values of these. With
    // `held_out`, a mask of rows, also returns weights that have not seen these rows.
    std::tuple<Lists, std::optional<Lists>> run(
        In<Index> cluster_ptr, In<Index> labels, double cost, Index passes, double tolerance,
        float threshold, std::optional<std::tuple<In<Index>, In<std::int32_t>, In<float>>> initial,
        std::optional<In<bool>> held_out, nb::object check, double seconds, int n_jobs) const {
        const Index n_labels = size(labels.size());
        check_at_least("the number of cluster_ptr", size(cluster_ptr.size()), 1);
        const Index n_clusters = size(cluster_ptr.size()) - 1;
        check_range("labels", labels.data(), n_labels, 0, n_labels_);
        for (Index c = 0; c < n_clusters; ++c)
            if (cluster_ptr.data()[c] < 0 || cluster_ptr.data()[c] > cluster_ptr.data()[c + 1] ||
                cluster_ptr.data()[c + 1] > n_labels)
                throw std::invalid_argument("cluster_ptr must be that of a CSR matrix");
        if (held_out) check_size("held_out", held_out->size(), features_.view.n_rows);
        SiblingOptions options{cost, passes, tolerance, threshold, {}};
        if (initial) options.initial = checked(*initial);
        const LabelRows rows{list_ptr_.data(), rows_.data(),
                             example_weights_ ? example_weights_->data() : nullptr,
                             held_out ? held_out->data() : nullptr};
        const int threads = threads_for(n_jobs);
        const auto n_threads = static_cast<std::size_t>(threads);
        std::vector<LabelWeightLists> all(n_threads), without(n_threads);
        {
            const ReleasedGil release;
            ClusterTasks tasks(cluster_ptr.data(), n_clusters,
                               costs(cluster_ptr.data(), n_clusters, labels.data()), threads);
            in_parallel(threads, threads, [&](Index first, Index last) {
                for (Index part = first; part < last; ++part) {
                    const auto own = static_cast<std::size_t>(part);
                    try {
                        const std::unique_ptr<SiblingTrainer> trainer(
                            kernels().sibling_trainer(features_.view, rows, options));
                        Check stop(part == 0 ? check : nb::handle(Py_None), seconds);
                        stop();  // even if other threads take all tasks
                        work(tasks, *trainer, cluster_ptr.data(), labels.data(), stop, all[own],
                             held_out ? &without[own] : nullptr);
                    } catch (...) {
                        tasks.end();
                        throw;
                    }
                }
            });
        }
        std::optional<Lists> others;
        if (held_out) others = in_order(without, n_labels);
        return {in_order(all, n_labels), others};
    }

  private:
    static void work(ClusterTasks& tasks, SiblingTrainer& trainer, const Index* cluster_ptr,
                     const Index* labels, Check& check, LabelWeightLists& all,
                     LabelWeightLists* without) {
        while (const ClusterTasks::Task* const task = tasks.next()) {
            const Index first = cluster_ptr[task->cluster];
            const Index count = cluster_ptr[task->cluster + 1] - first;
            tasks.with_rows(
                *task, [&] { return trainer.gather(labels + first, count); },
                [&](const ClusterRows& rows) {
                    for (Index label = task->first; label < task->last; ++label) {
                        check();
                        trainer.train(rows, label, first + label, all, without);
                    }
                });
        }
    }

    // Roughly what training each cluster costs: its rows times its labels.
    std::vector<Index> costs(const Index* cluster_ptr, Index n_clusters,
                             const Index* labels) const {
        std::vector<Index> found;
        for (Index c = 0; c < n_clusters; ++c) {
            Index rows = 0;
            for (Index i = cluster_ptr[c]; i < cluster_ptr[c + 1]; ++i) {
                const auto label = static_cast<std::size_t>(labels[i]);
                rows += list_ptr_[label + 1] - list_ptr_[label];
            }
            found.push_back(rows * (cluster_ptr[c + 1] - cluster_ptr[c]));
        }
        return found;
    }

    // The weights of all labels, in the order in which the labels were given.
    static Lists in_order(const std::vector<LabelWeightLists>& parts, Index n_labels) {
        const Numpy<Index> counts = new_array<Index>(n_labels);
        std::fill_n(counts.data(), n_labels, 0);
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
    void list_rows(const Index* label_ptr, const Index* labels) {
        const auto each_pair = [&](auto&& use) {
            for (Index row = 0; row < features_.view.n_rows; ++row) {
                if (example_weights_ && !(example_weights_->data()[row] > 0)) continue;
                const Index* const begin = labels + label_ptr[row];
                const Index* const end = labels + std::max(label_ptr[row], label_ptr[row + 1]);
                for (const Index* label = begin; label < end; ++label)
                    if (std::find(begin, label, *label) == label)
                        use(static_cast<std::size_t>(*label), static_cast<std::int32_t>(row));
            }
        };
        list_ptr_.assign(static_cast<std::size_t>(n_labels_) + 1, 0);
        each_pair([&](std::size_t label, std::int32_t) { ++list_ptr_[label + 1]; });
        for (std::size_t label = 0; label + 1 < list_ptr_.size(); ++label)
            list_ptr_[label + 1] += list_ptr_[label];
        rows_.resize(static_cast<std::size_t>(list_ptr_.back()));
        std::vector<Index> next(list_ptr_);
        each_pair([&](std::size_t label, std::int32_t row) {
            rows_[static_cast<std::size_t>(next[label]++)] = row;
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

}  // namespace

void bind_siblings(nb::module_& module) {
    nb::class_<SiblingTask>(module, "SiblingTask")
        .def(
            nb::init<const FeatureArrays&, In<Index>, In<Index>, std::optional<In<float>>, Index>(),
            "features"_a, "label_ptr"_a, "labels"_a, "example_weights"_a.none(), nb::kw_only(),
            "n_labels"_a)
        .def("run", &SiblingTask::run, "cluster_ptr"_a, "labels"_a, nb::kw_only(), "cost"_a,
             "passes"_a, "tolerance"_a, "threshold"_a, "initial"_a.none() = nb::none(),
             "held_out"_a.none() = nb::none(), "check"_a.none() = nb::none(), "seconds"_a = 0.1,
             "n_jobs"_a);
}

}  // namespace ltls
