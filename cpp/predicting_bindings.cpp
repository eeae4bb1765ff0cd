// Features, weights and prediction for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <optional>
#include <vector>

#include "bindings.hpp"
#include "codebook.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

using namespace nb::literals;

namespace ltls {

Loss loss_of(const std::string& name) {
    if (name == "separation") return Loss::separation;
    if (name == "softmax") return Loss::softmax;
    if (name == "logistic") return Loss::logistic;
    throw std::invalid_argument("loss must be separation, softmax or logistic, got '" + name + "'");
}

Weights weights_of(const AnyArray& weights, const std::optional<In<float>>& scales) {
    Weights w{};
    if (weights.dtype() == nb::dtype<float>())
        w.kind = Weights::f32;
    else if (weights.dtype() == nb::dtype<std::uint16_t>())
        w.kind = Weights::f16;
    else if (weights.dtype() == nb::dtype<std::int8_t>())
        w.kind = Weights::i8;
    else
        throw std::invalid_argument("weights must be float32, float16 (as uint16) or int8");
    if (scales) same_size("scales", scales->size(), size(weights.shape(0)));
    w.rows = weights.data();
    w.scales = scales ? scales->data() : nullptr;
    w.stride = size(weights.shape(1));
    return w;
}

// A codebook of either kind as the kernels see it.
static const LabelMap& label_map(nb::handle codebook) {
    if (nb::isinstance<TableCodebook>(codebook)) return nb::cast<const TableCodebook&>(codebook);
    return nb::cast<const RandomCodebook&>(codebook);
}

std::vector<const LabelMap*> label_maps(const Trellis& trellis, nb::list codebooks) {
    std::vector<const LabelMap*> maps;
    for (nb::handle codebook : codebooks) {
        if (nb::cast<Index>(codebook.attr("n_paths")) != trellis.n_classes)
            throw std::invalid_argument("codebooks must have a path per class of the trellis");
        maps.push_back(&label_map(codebook));
    }
    return maps;
}

void throw_not_finite() {
    throw std::invalid_argument(
        "edge scores are not finite: X or the weights are too large for float32");
}

namespace {

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

void edge_scores(const FeatureArrays& x, AnyArray weights, std::optional<In<float>> scales,
                 OutMatrix<float> h, Index first, int n_jobs) {
    const Index edges = size(h.shape(1)), rows = size(h.shape(0));
    check_weights("weights", weights, x.view, edges);
    if (first < 0 || first + rows > x.view.n_rows)
        throw std::invalid_argument("h has more rows than X has from row " + std::to_string(first));
    const Weights w = weights_of(weights, scales);
    const int threads = threads_for(n_jobs);
    const Unlocked unlocked(rows * (x.view.longest_row + 1) * edges);
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().linear.edge_scores(x.view, w, edges, first + begin, first + end,
                                     h.data() + begin * edges);
    });
}

std::uint32_t read_rows(const FeatureArrays& x, AnyArray weights, int n_jobs) {
    check_weights("weights", weights, x.view, 1);
    const Weights w = weights_of(weights, std::nullopt);
    const int threads = threads_for(n_jobs);
    std::atomic<std::uint32_t> result{0};
    nb::gil_scoped_release release;
    in_parallel(x.view.n_rows, threads, [&](Index begin, Index end) {
        result ^= kernels().linear.read_rows(x.view, w, begin, end);
    });
    return result;
}

void logistic_scores(const Trellis& trellis, InMatrix<float> h, OutMatrix<float> g) {
    same_size("a row of h", h.shape(1), trellis.n_edges);
    same_size("g", g.size(), size(h.size()));
    nb::gil_scoped_release release;
    kernels().linear.logistic_scores(trellis, h.data(), size(h.shape(0)), g.data());
}

// Finds the best labels of rows of h, which holds the edges of all trellises side by side.
void decode(const Trellis& trellis, nb::list codebooks, InMatrix<float> h, const std::string& loss,
            Index n_labels, Index n_paths, OutMatrix<Index> labels, OutMatrix<float> scores,
            int n_jobs) {
    const std::vector<const LabelMap*> maps = label_maps(trellis, codebooks);
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
    if (bad) throw_not_finite();
}

}  // namespace

void bind_predicting(nb::module_& module) {
    nb::class_<FeatureArrays>(module, "Features")
        .def_static("csr", &csr, "values"_a, "indices"_a, "indptr"_a, "n_features"_a, "intercept"_a,
                    "unit_length"_a)
        .def_static("dense", &dense, "values"_a, "intercept"_a, "unit_length"_a)
        .def_prop_ro("n_rows", [](const FeatureArrays& x) { return x.view.n_rows; })
        .def("edge_scores", &edge_scores, "weights"_a, "scales"_a.none(), "h"_a, "first"_a,
             "n_jobs"_a)
        .def("read_rows", &read_rows, "weights"_a, "n_jobs"_a);
    module.def("logistic_scores", &logistic_scores, "trellis"_a, "h"_a, "g"_a);
    module.def("decode", &decode, "trellis"_a, "codebooks"_a, "h"_a, "loss"_a, "n_labels"_a,
               "n_paths"_a, "labels"_a, "scores"_a, "n_jobs"_a);
}

}  // namespace ltls
