// Bindings of training. A task validates its examples once, however often it is run.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"
#include "structure/codebook.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

void check_label_ptr(const Features& x, const In<Index>& label_ptr, Index n_labels) {
    check_size("label_ptr", label_ptr.size(), x.n_rows + 1);
    const Index* ptr = label_ptr.data();
    for (Index row = 0; row < x.n_rows; ++row)
        if (ptr[row] < 0 || ptr[row] > ptr[row + 1] || ptr[row + 1] > n_labels)
            throw std::invalid_argument("label_ptr must be that of a CSR matrix, row " +
                                        std::to_string(row) + " is not");
}

// Labelled rows to train several trellises on. It keeps everything it refers to alive; the arrays
// must not be changed while it is in use.
class TrainTask {
  public:
    TrainTask(const Trellis& trellis, const FeatureArrays& features, In<Index> label_ptr,
              In<Index> labels, OutMatrix<Index> paths, std::optional<In<float>> example_weights,
              nb::typed<nb::list, TableCodebook> codebooks, std::string_view loss, bool multilabel,
              Index ranking_multiplier)
        : trellis_(trellis),
          features_(features),
          label_ptr_(label_ptr),
          labels_(labels),
          paths_(paths),
          example_weights_(example_weights),
          codebook_list_(codebooks),
          loss_(loss_of(loss)),
          multilabel_(multilabel),
          ranking_multiplier_(ranking_multiplier),
          n_trellises_(size(paths.shape(0))) {
        check_at_least("the number of rows of paths", n_trellises_, 1);
        check_at_least("ranking_multiplier", ranking_multiplier, 1);
        check_label_ptr(features.view, label_ptr, size(labels.size()));
        check_size("a row of paths", paths.shape(1), size(labels.size()));
        if (example_weights)
            check_size("example_weights", example_weights->size(), features.view.n_rows);
        for (nb::handle codebook : codebooks) {
            if (!nb::isinstance<TableCodebook>(codebook))
                throw nb::type_error("codebooks must be a list of TableCodebook");
            codebooks_.push_back(nb::cast<TableCodebook*>(codebook));
        }
        check_codebooks();
        const bool assigns = !codebooks_.empty();
        check_range("paths", paths.data(), size(paths.size()), assigns ? -1 : 0, trellis.n_classes);
        if (assigns) check_range("labels", labels.data(), size(labels.size()), 0, max_classes);
    }

    // Trains on the rows in `order`, each trellis independently. Threads take one trellis each, or
    // share its mini-batches if there are more threads than trellises; the result does not depend
    // on their number. Returns the summed loss and hits, means over the trellises, and the number
    // of examples.
    std::tuple<double, double, Index> run(OutMatrix<float> weights,
                                          std::optional<OutMatrix<float>> squares,
                                          std::optional<OutMatrix<double>> sums, In<Index> order,
                                          Index step, float learning_rate, float threshold,
                                          bool count_hits, Index batch_size, int n_jobs) {
        const Index stride = size(weights.shape(1));
        check_weights("weights", weights, features_.view, n_trellises_ * trellis_.n_edges);
        if (stride % n_trellises_ != 0)
            throw std::invalid_argument("weights must hold one block of edges per row of paths");
        if (squares) check_size("squares", squares->size(), size(weights.size()));
        if (sums) check_size("sums", sums->size(), size(weights.size()));
        check_range("order", order.data(), size(order.size()), 0, features_.view.n_rows);
        check_at_least("batch_size", batch_size, 1);
        check_codebooks();
        const int threads = threads_for(n_jobs);
        const bool share_batches = batch_size > 1 && threads > n_trellises_;
        const TrainOptions options{loss_,
                                   multilabel_,
                                   learning_rate,
                                   threshold,
                                   count_hits,
                                   batch_size,
                                   share_batches ? threads : 1};

        std::vector<TrainStats> stats(static_cast<std::size_t>(n_trellises_));
        const ReleasedGil release;
        // If the trellises do not divide evenly among the threads, threads switch between them
        // after some batches.
        const Index count = size(order.size()), batches = (count + batch_size - 1) / batch_size;
        const Index tasks =
            share_batches || n_trellises_ % threads == 0 ? 1 : std::min<Index>(batches, 16);
        run_queues(n_trellises_, tasks, share_batches ? 1 : threads, [&](Index r, Index task) {
            const Index first = std::min(count, batches * task / tasks * batch_size);
            const Index last = std::min(count, batches * (task + 1) / tasks * batch_size);
            const Index block = r * (stride / n_trellises_);
            std::optional<RankingAssigner> assigner;
            if (!codebooks_.empty())
                assigner.emplace(*codebooks_[static_cast<std::size_t>(r)], ranking_multiplier_);
            stats[static_cast<std::size_t>(r)] += kernels().train(
                trellis_, features_.view,
                {weights.data() + block, squares ? squares->data() + block : nullptr,
                 sums ? sums->data() + block : nullptr, stride},
                {label_ptr_.data(), labels_.data(), paths_.data() + r * size(paths_.shape(1)),
                 example_weights_ ? example_weights_->data() : nullptr,
                 assigner ? &*assigner : nullptr},
                options, {order.data() + first, last - first, step + first});
        });
        double loss = 0, hits = 0;
        for (const TrainStats& one : stats) {
            loss += one.loss;
            hits += static_cast<double>(one.hits);
        }
        const double share = 1.0 / static_cast<double>(n_trellises_);
        return {loss * share, hits * share, stats[0].examples};
    }

  private:
    void check_codebooks() const {
        if (!codebooks_.empty() && size(codebooks_.size()) != n_trellises_)
            throw std::invalid_argument("codebooks must be empty or one per trellis");
        for (std::size_t r = 0; r < codebooks_.size(); ++r) {
            if (codebooks_[r]->n_paths() != trellis_.n_classes)
                throw std::invalid_argument("codebooks must have a path per class of the trellis");
            for (std::size_t other = 0; other < r; ++other)
                if (codebooks_[r] == codebooks_[other])
                    throw std::invalid_argument("every trellis must have a codebook of its own");
        }
    }

    const Trellis trellis_;
    const FeatureArrays features_;
    const In<Index> label_ptr_, labels_;
    const OutMatrix<Index> paths_;
    const std::optional<In<float>> example_weights_;
    const nb::list codebook_list_;
    std::vector<TableCodebook*> codebooks_;
    const LossId loss_;
    const bool multilabel_;
    const Index ranking_multiplier_, n_trellises_;
};

}  // namespace

void bind_training(nb::module_& module) {
    nb::class_<TrainTask>(module, "TrainTask")
        .def(nb::init<const Trellis&, const FeatureArrays&, In<Index>, In<Index>, OutMatrix<Index>,
                      std::optional<In<float>>, nb::typed<nb::list, TableCodebook>,
                      std::string_view, bool, Index>(),
             "trellis"_a, "features"_a, "label_ptr"_a, "labels"_a, "paths"_a,
             "example_weights"_a.none(), "codebooks"_a, nb::kw_only(), "loss"_a, "multilabel"_a,
             "ranking_multiplier"_a)
        .def("run", &TrainTask::run, "weights"_a, "squares"_a.none(), "sums"_a.none(), "order"_a,
             nb::kw_only(), "step"_a, "learning_rate"_a, "threshold"_a, "count_hits"_a,
             "batch_size"_a, "n_jobs"_a);
}

}  // namespace ltls
