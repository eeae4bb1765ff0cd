// Learning for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "codebook.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

void check_rows(const Features& x, const In<Index>& order, const In<Index>& label_ptr,
                const In<Index>& labels) {
    same_size("label_ptr", label_ptr.size(), x.n_rows + 1);
    for (Index row = 0; row < x.n_rows; ++row)
        if (label_ptr.data()[row] < 0 || label_ptr.data()[row] > label_ptr.data()[row + 1] ||
            label_ptr.data()[row + 1] > size(labels.size()))
            throw std::invalid_argument("label_ptr is not that of a CSR matrix");
    for (Index i = 0; i < size(order.size()); ++i)
        if (order.data()[i] < 0 || order.data()[i] >= x.n_rows)
            throw std::invalid_argument("order must name rows of X, got " +
                                        std::to_string(order.data()[i]));
}

void check_lesson(const Trellis& trellis, const Features& x, const In<Index>& order,
                  const In<Index>& label_ptr, const In<Index>& labels,
                  const OutMatrix<Index>& paths, const std::vector<TableCodebook*>& codebooks) {
    check_rows(x, order, label_ptr, labels);
    same_size("a row of paths", paths.shape(1), size(labels.size()));
    const Index lowest = codebooks.empty() ? 0 : -1;
    for (Index i = 0; i < size(paths.size()); ++i)
        if (paths.data()[i] < lowest || paths.data()[i] >= trellis.n_classes)
            throw std::invalid_argument("paths must be paths of the trellis, got " +
                                        std::to_string(paths.data()[i]));
    if (!codebooks.empty() && codebooks.size() != paths.shape(0))
        throw std::invalid_argument("codebooks must be none or one per trellis");
    for (std::size_t r = 0; r < codebooks.size(); ++r) {
        if (codebooks[r]->n_paths() != trellis.n_classes)
            throw std::invalid_argument("codebooks must have a path per class of the trellis");
        for (std::size_t other = 0; other < r; ++other)
            if (codebooks[r] == codebooks[other])
                throw std::invalid_argument("every trellis must have a codebook of its own");
    }
}

// Learns from some rows, every trellis by itself: threads take one each by turns, or share its
// batches where there are more threads than trellises, and their number changes nothing either way.
// Returns the summed loss, hits and examples, means over the trellises.
std::tuple<double, double, Index> train(
    const Trellis& trellis, const FeatureArrays& x, OutMatrix<float> weights,
    std::optional<OutMatrix<float>> squares, std::optional<OutMatrix<double>> sums,
    const std::string& loss, bool multilabel, float rate, float threshold, bool count_hits,
    Index clock, In<Index> order, In<Index> label_ptr, In<Index> labels, OutMatrix<Index> paths,
    std::optional<In<float>> example_weights, std::vector<TableCodebook*> codebooks,
    Index ranking_multiplier, Index batch, int n_jobs) {
    const Index n_trellises = size(paths.shape(0)), stride = size(weights.shape(1));
    check_weights("weights", weights, x.view, n_trellises * trellis.n_edges);
    if (n_trellises < 1 || stride % n_trellises != 0)
        throw std::invalid_argument("weights must hold a block of edges per row of paths");
    if (squares) same_size("squares", squares->size(), size(weights.size()));
    if (sums) same_size("sums", sums->size(), size(weights.size()));
    if (example_weights) same_size("example_weights", example_weights->size(), x.view.n_rows);
    check_lesson(trellis, x.view, order, label_ptr, labels, paths, codebooks);
    const Loss rule = loss_of(loss);
    if (batch < 1)
        throw std::invalid_argument("batch must be at least 1, got " + std::to_string(batch));
    const int threads = threads_for(n_jobs);
    const bool share_batches = batch > 1 && threads > n_trellises;

    std::vector<Learnt> learnt(static_cast<std::size_t>(n_trellises));
    nb::gil_scoped_release release;
    // Trellises that threads cannot share out evenly take turns, some batches at a time.
    const Index count = size(order.size()), batches = (count + batch - 1) / batch;
    const Index turns =
        share_batches || n_trellises % threads == 0 ? 1 : std::min<Index>(batches, 16);
    in_turns(n_trellises, turns, share_batches ? 1 : threads, [&](Index r, Index turn) {
        const Index first = std::min(count, batches * turn / turns * batch);
        const Index last = std::min(count, batches * (turn + 1) / turns * batch);
        const Index block = r * (stride / n_trellises);
        const Learned learned{weights.data() + block, squares ? squares->data() + block : nullptr,
                              sums ? sums->data() + block : nullptr, stride};
        std::optional<Ranking> ranking;
        if (!codebooks.empty())
            ranking.emplace(*codebooks[static_cast<std::size_t>(r)], ranking_multiplier);
        const Lesson lesson{rule,
                            multilabel,
                            rate,
                            threshold,
                            count_hits,
                            clock + first,
                            batch,
                            share_batches ? threads : 1,
                            order.data() + first,
                            last - first,
                            label_ptr.data(),
                            labels.data(),
                            paths.data() + r * size(paths.shape(1)),
                            example_weights ? example_weights->data() : nullptr,
                            ranking ? &*ranking : nullptr};
        const Learnt one = kernels().linear.train(trellis, x.view, learned, lesson);
        Learnt& all = learnt[static_cast<std::size_t>(r)];
        all.loss += one.loss;
        all.hits += one.hits;
        all.examples += one.examples;
    });
    double total_loss = 0, hits = 0;
    for (const Learnt& one : learnt) {
        total_loss += one.loss;
        hits += static_cast<double>(one.hits);
    }
    const double share = 1.0 / static_cast<double>(n_trellises);
    return {total_loss * share, hits * share, learnt[0].examples};
}

Embedding embedding_of(float* features, float* feature_squares, float* labels, float* label_squares,
                       Index rank, Index stride, Index n_labels) {
    if (rank < 1 || rank >= stride)
        throw std::invalid_argument("rank must be from 1 to below the length of a row, got " +
                                    std::to_string(rank));
    return {features, feature_squares, labels, label_squares, rank, stride, n_labels};
}

void check_labels(const char* name, const Index* labels, Index count, Index lowest,
                  Index n_labels) {
    for (Index i = 0; i < count; ++i)
        if (labels[i] < lowest || labels[i] >= n_labels)
            throw std::invalid_argument(std::string(name) + " must be labels below " +
                                        std::to_string(n_labels) + ", got " +
                                        std::to_string(labels[i]));
}

double train_embedding(const FeatureArrays& x, OutMatrix<float> features,
                       OutMatrix<float> feature_squares, OutMatrix<float> vectors,
                       OutMatrix<float> vector_squares, Index rank, In<Index> order,
                       In<Index> label_ptr, In<Index> labels, InMatrix<Index> candidates,
                       InMatrix<Index> samples, InMatrix<float> stands_for,
                       std::optional<In<float>> example_weights, float rate) {
    const Index stride = size(vectors.shape(1)), n_labels = size(vectors.shape(0));
    check_weights("features", features, x.view, stride);
    same_size("a row of features", features.shape(1), stride);
    same_size("feature_squares", feature_squares.size(), size(features.size()));
    same_size("vector_squares", vector_squares.size(), size(vectors.size()));
    same_size("candidates", candidates.shape(0), x.view.n_rows);
    same_size("samples", samples.shape(0), size(order.size()));
    same_size("stands_for", stands_for.size(), size(samples.size()));
    if (example_weights) same_size("example_weights", example_weights->size(), x.view.n_rows);
    check_rows(x.view, order, label_ptr, labels);
    check_labels("labels", labels.data(), size(labels.size()), 0, n_labels);
    check_labels("candidates", candidates.data(), size(candidates.size()), -1, n_labels);
    check_labels("samples", samples.data(), size(samples.size()), -1, n_labels);
    const Embedding embedding =
        embedding_of(features.data(), feature_squares.data(), vectors.data(), vector_squares.data(),
                     rank, stride, n_labels);
    const EmbeddingLesson lesson{rate,
                                 order.data(),
                                 size(order.size()),
                                 label_ptr.data(),
                                 labels.data(),
                                 candidates.data(),
                                 size(candidates.shape(1)),
                                 samples.data(),
                                 stands_for.data(),
                                 size(samples.shape(1)),
                                 example_weights ? example_weights->data() : nullptr};
    nb::gil_scoped_release release;
    return kernels().linear.train_embedding(x.view, embedding, lesson);
}

void rescore(InMatrix<float> row_vectors, InMatrix<float> vectors, Index rank, float weight,
             OutMatrix<Index> labels, OutMatrix<float> scores, int n_jobs) {
    const Index stride = size(vectors.shape(1)), rows = size(row_vectors.shape(0));
    const Index count = size(labels.shape(1));
    same_size("a row of row_vectors", row_vectors.shape(1), stride);
    same_size("labels", labels.size(), rows * count);
    same_size("scores", scores.size(), rows * count);
    check_labels("labels", labels.data(), size(labels.size()), -1, size(vectors.shape(0)));
    const Embedding embedding = embedding_of(nullptr, nullptr, const_cast<float*>(vectors.data()),
                                             nullptr, rank, stride, size(vectors.shape(0)));
    const int threads = threads_for(n_jobs);
    const Unlocked unlocked(rows * count * stride);
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().linear.rescore(embedding, row_vectors.data() + begin * stride, weight,
                                 end - begin, count, labels.data() + begin * count,
                                 scores.data() + begin * count);
    });
}

}  // namespace

void bind_learning(nb::module_& module) {
    module.def("train_embedding", &train_embedding, "x"_a, "features"_a, "feature_squares"_a,
               "vectors"_a, "vector_squares"_a, "rank"_a, "order"_a, "label_ptr"_a, "labels"_a,
               "candidates"_a, "samples"_a, "stands_for"_a, "example_weights"_a.none(), "rate"_a);
    module.def("rescore", &rescore, "row_vectors"_a, "vectors"_a, "rank"_a, "weight"_a, "labels"_a,
               "scores"_a, "n_jobs"_a);
    module.def("train", &train, "trellis"_a, "x"_a, "weights"_a, "squares"_a.none(),
               "sums"_a.none(), "loss"_a, "multilabel"_a, "rate"_a, "threshold"_a, "count_hits"_a,
               "clock"_a, "order"_a, "label_ptr"_a, "labels"_a, "paths"_a,
               "example_weights"_a.none(), "codebooks"_a, "ranking_multiplier"_a, "batch"_a,
               "n_jobs"_a);
}

}  // namespace ltls
