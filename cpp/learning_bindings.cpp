// Features, weights and learning for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <bit>
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

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// A feature matrix that keeps the arrays it looks into.
struct FeatureArrays {
    Features view;
    AnyArray values, indices, indptr;
};

template <class Int>
void check_csr(const Features& x, Index n_values) {
    const Int* indptr = static_cast<const Int*>(x.indptr);
    const Int* indices = static_cast<const Int*>(x.indices);
    for (Index row = 0; row < x.n_rows; ++row)
        if (indptr[row] < 0 || indptr[row] > indptr[row + 1] || indptr[row + 1] > n_values)
            throw std::invalid_argument("X is not a valid CSR matrix: indptr of row " +
                                        std::to_string(row) + " points outside its data");
    for (Index row = 0; row < x.n_rows; ++row)
        for (Int i = indptr[row]; i < indptr[row + 1]; ++i)
            if (indices[i] < 0 || indices[i] >= x.n_features)
                throw std::invalid_argument("X is not a valid CSR matrix: row " +
                                            std::to_string(row) + " has feature " +
                                            std::to_string(indices[i]) + ", not one of 0 to " +
                                            std::to_string(x.n_features - 1));
}

template <class Int>
Index longest_row(const Features& x) {
    const Int* indptr = static_cast<const Int*>(x.indptr);
    Index longest = 0;
    for (Index row = 0; row < x.n_rows; ++row)
        longest = std::max<Index>(longest, indptr[row + 1] - indptr[row]);
    return longest;
}

FeatureArrays csr(AnyArray values, AnyArray indices, AnyArray indptr, Index n_features,
                  bool intercept, bool unit_length) {
    const bool wide = indices.dtype() == nb::dtype<std::int64_t>();
    const bool exact = values.dtype() == nb::dtype<double>();
    if (indices.dtype() != indptr.dtype() ||
        (!wide && indices.dtype() != nb::dtype<std::int32_t>()))
        throw std::invalid_argument("indices and indptr must be both int32 or both int64");
    if (!exact && values.dtype() != nb::dtype<float>())
        throw std::invalid_argument("values must be float32 or float64");
    if (indptr.size() < 1) throw std::invalid_argument("indptr must not be empty");
    Features x{};
    x.kind = exact ? (wide ? Features::csr_f64_i64 : Features::csr_f64_i32)
                   : (wide ? Features::csr_f32_i64 : Features::csr_f32_i32);
    x.values = values.data();
    x.indices = indices.data();
    x.indptr = indptr.data();
    x.n_rows = size(indptr.size()) - 1;
    x.n_features = n_features;
    x.intercept = intercept;
    x.unit_length = unit_length;
    const Index n_values = size(std::min(values.size(), indices.size()));
    if (wide) {
        check_csr<std::int64_t>(x, n_values);
        x.longest_row = longest_row<std::int64_t>(x);
    } else {
        check_csr<std::int32_t>(x, n_values);
        x.longest_row = longest_row<std::int32_t>(x);
    }
    return {x, values, indices, indptr};
}

FeatureArrays dense(AnyArray values, bool intercept, bool unit_length) {
    if (values.ndim() != 2) throw std::invalid_argument("values must have two dimensions");
    const bool exact = values.dtype() == nb::dtype<double>();
    if (!exact && values.dtype() != nb::dtype<float>())
        throw std::invalid_argument("values must be float32 or float64");
    Features x{};
    x.kind = exact ? Features::dense_f64 : Features::dense_f32;
    x.values = values.data();
    x.n_rows = size(values.shape(0));
    x.n_features = x.longest_row = size(values.shape(1));
    x.intercept = intercept;
    x.unit_length = unit_length;
    return {x, values, {}, {}};
}

// Checks that a matrix has one row per feature and room for the edges.
template <class Matrix>
void check_weights(const char* name, const Matrix& matrix, const Features& x, Index edges) {
    const Index rows = x.n_features + x.intercept;
    if (matrix.ndim() != 2 || size(matrix.shape(0)) != rows || size(matrix.shape(1)) < edges)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(rows) +
                                    " rows of at least " + std::to_string(edges) + " numbers");
}

void edge_scores(const FeatureArrays& x, AnyArray weights, std::optional<In<float>> scales,
                 OutMatrix<float> h, Index first, int n_jobs) {
    const Index edges = size(h.shape(1)), rows = size(h.shape(0));
    check_weights("weights", weights, x.view, edges);
    if (first < 0 || first + rows > x.view.n_rows)
        throw std::invalid_argument("h has more rows than X has from row " + std::to_string(first));
    if (scales) same_size("scales", scales->size(), size(weights.shape(0)));
    Weights w{};
    if (weights.dtype() == nb::dtype<float>())
        w.kind = Weights::f32;
    else if (weights.dtype() == nb::dtype<std::uint16_t>())
        w.kind = Weights::f16;
    else if (weights.dtype() == nb::dtype<std::int8_t>())
        w.kind = Weights::i8;
    else
        throw std::invalid_argument("weights must be float32, float16 (as uint16) or int8");
    w.rows = weights.data();
    w.scales = scales ? scales->data() : nullptr;
    w.stride = size(weights.shape(1));
    const int threads = threads_for(n_jobs);
    nb::gil_scoped_release release;
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().linear.edge_scores(x.view, w, edges, first + begin, first + end,
                                     h.data() + begin * edges);
    });
}

void logistic_scores(const Trellis& trellis, InMatrix<float> h, OutMatrix<float> g) {
    same_size("a row of h", h.shape(1), trellis.n_edges);
    same_size("g", g.size(), size(h.size()));
    nb::gil_scoped_release release;
    kernels().linear.logistic_scores(trellis, h.data(), size(h.shape(0)), g.data());
}

Loss loss_of(const std::string& name) {
    if (name == "separation") return Loss::separation;
    if (name == "softmax") return Loss::softmax;
    if (name == "logistic") return Loss::logistic;
    throw std::invalid_argument("loss must be separation, softmax or logistic, got '" + name + "'");
}

// A codebook of either kind as the kernels see it.
const LabelMap& label_map(nb::handle codebook) {
    if (nb::isinstance<TableCodebook>(codebook)) return nb::cast<const TableCodebook&>(codebook);
    return nb::cast<const RandomCodebook&>(codebook);
}

// Finds the best labels of rows of h, which holds the edges of all trellises side by side.
void decode(const Trellis& trellis, nb::list codebooks, InMatrix<float> h, const std::string& loss,
            Index n_labels, Index n_paths, OutMatrix<Index> labels, OutMatrix<float> scores,
            int n_jobs) {
    std::vector<const LabelMap*> maps;
    for (nb::handle codebook : codebooks) {
        if (nb::cast<Index>(codebook.attr("n_paths")) != trellis.n_classes)
            throw std::invalid_argument("codebooks must have a path per class of the trellis");
        maps.push_back(&label_map(codebook));
    }
    const Index rows = size(h.shape(0)), k = size(labels.shape(1));
    const Index n_trellises = size(maps.size());
    if (n_trellises < 1 || size(h.shape(1)) % n_trellises != 0 ||
        size(h.shape(1)) / n_trellises < trellis.n_edges)
        throw std::invalid_argument("h must hold a block of edge scores per codebook");
    if (k < 1 || n_paths < 1 || n_paths > trellis.n_classes)
        throw std::invalid_argument("k and n_paths must be at least 1, n_paths at most " +
                                    std::to_string(trellis.n_classes));
    same_size("labels", labels.size(), rows * k);
    same_size("scores", scores.size(), rows * k);
    const Index block = size(h.shape(1)) / n_trellises;
    const Decoding decoding{loss_of(loss), block, maps.data(), n_trellises, n_labels, n_paths, k};
    const int threads = threads_for(n_jobs);
    std::atomic<bool> bad{false};
    {
        nb::gil_scoped_release release;
        in_parallel(rows, threads, [&](Index first, Index last) {
            const Index bad_row = kernels().linear.decode(
                trellis, decoding, h.data() + first * n_trellises * block, last - first,
                labels.data() + first * k, scores.data() + first * k);
            if (bad_row >= 0) bad = true;
        });
    }
    if (bad)
        throw std::invalid_argument(
            "edge scores are not finite: X or the weights are too large for float32");
}

void check_lesson(const Trellis& trellis, const Features& x, const In<Index>& order,
                  const In<Index>& label_ptr, const In<Index>& labels,
                  const OutMatrix<Index>& paths, const std::vector<TableCodebook*>& codebooks) {
    same_size("label_ptr", label_ptr.size(), x.n_rows + 1);
    same_size("a row of paths", paths.shape(1), size(labels.size()));
    for (Index row = 0; row < x.n_rows; ++row)
        if (label_ptr.data()[row] < 0 || label_ptr.data()[row] > label_ptr.data()[row + 1] ||
            label_ptr.data()[row + 1] > size(labels.size()))
            throw std::invalid_argument("label_ptr is not that of a CSR matrix");
    for (Index i = 0; i < size(order.size()); ++i)
        if (order.data()[i] < 0 || order.data()[i] >= x.n_rows)
            throw std::invalid_argument("order must name rows of X, got " +
                                        std::to_string(order.data()[i]));
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

// Learns from some rows, every trellis by itself: threads take one each, so their number changes
// nothing. Returns the summed loss, hits and examples, means over the trellises.
std::tuple<double, double, Index> train(
    const Trellis& trellis, const FeatureArrays& x, OutMatrix<float> weights,
    std::optional<OutMatrix<float>> squares, std::optional<OutMatrix<double>> sums,
    const std::string& loss, bool multilabel, float rate, float threshold, bool count_hits,
    Index clock, In<Index> order, In<Index> label_ptr, In<Index> labels, OutMatrix<Index> paths,
    std::optional<In<float>> example_weights, std::vector<TableCodebook*> codebooks,
    Index ranking_multiplier, int n_jobs) {
    const Index n_trellises = size(paths.shape(0)), stride = size(weights.shape(1));
    check_weights("weights", weights, x.view, n_trellises * trellis.n_edges);
    if (n_trellises < 1 || stride % n_trellises != 0)
        throw std::invalid_argument("weights must hold a block of edges per row of paths");
    if (squares) same_size("squares", squares->size(), size(weights.size()));
    if (sums) same_size("sums", sums->size(), size(weights.size()));
    if (example_weights) same_size("example_weights", example_weights->size(), x.view.n_rows);
    check_lesson(trellis, x.view, order, label_ptr, labels, paths, codebooks);
    const Loss rule = loss_of(loss);
    const int threads = threads_for(n_jobs);

    std::vector<Learnt> learnt(static_cast<std::size_t>(n_trellises));
    nb::gil_scoped_release release;
    in_parallel(n_trellises, threads, [&](Index first, Index last) {
        for (Index r = first; r < last; ++r) {
            const Index block = r * (stride / n_trellises);
            const Learned learned{weights.data() + block,
                                  squares ? squares->data() + block : nullptr,
                                  sums ? sums->data() + block : nullptr, stride};
            std::optional<Ranking> ranking;
            if (!codebooks.empty())
                ranking.emplace(*codebooks[static_cast<std::size_t>(r)], ranking_multiplier);
            const Lesson lesson{rule,
                                multilabel,
                                rate,
                                threshold,
                                count_hits,
                                clock,
                                order.data(),
                                size(order.size()),
                                label_ptr.data(),
                                labels.data(),
                                paths.data() + r * size(paths.shape(1)),
                                example_weights ? example_weights->data() : nullptr,
                                ranking ? &*ranking : nullptr};
            learnt[static_cast<std::size_t>(r)] =
                kernels().linear.train(trellis, x.view, learned, lesson);
        }
    });
    double total_loss = 0, hits = 0;
    for (const Learnt& one : learnt) {
        total_loss += one.loss;
        hits += static_cast<double>(one.hits);
    }
    const double share = 1.0 / static_cast<double>(n_trellises);
    return {total_loss * share, hits * share, learnt[0].examples};
}

}  // namespace

void bind_learning(nb::module_& module) {
    nb::class_<FeatureArrays>(module, "Features")
        .def_static("csr", &csr, "values"_a, "indices"_a, "indptr"_a, "n_features"_a, "intercept"_a,
                    "unit_length"_a)
        .def_static("dense", &dense, "values"_a, "intercept"_a, "unit_length"_a)
        .def_prop_ro("n_rows", [](const FeatureArrays& x) { return x.view.n_rows; })
        .def("edge_scores", &edge_scores, "weights"_a, "scales"_a.none(), "h"_a, "first"_a,
             "n_jobs"_a);
    module.def("logistic_scores", &logistic_scores, "trellis"_a, "h"_a, "g"_a);
    module.def("decode", &decode, "trellis"_a, "codebooks"_a, "h"_a, "loss"_a, "n_labels"_a,
               "n_paths"_a, "labels"_a, "scores"_a, "n_jobs"_a);
    module.def("train", &train, "trellis"_a, "x"_a, "weights"_a, "squares"_a.none(),
               "sums"_a.none(), "loss"_a, "multilabel"_a, "rate"_a, "threshold"_a, "count_hits"_a,
               "clock"_a, "order"_a, "label_ptr"_a, "labels"_a, "paths"_a,
               "example_weights"_a.none(), "codebooks"_a, "ranking_multiplier"_a, "n_jobs"_a);
}

}  // namespace ltls
