// Bindings of the feature matrix, the linear model and the embedding reranker.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;

namespace ltls {

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
    if (scales) check_size("scales", scales->size(), size(weights.shape(0)));
    w.rows = weights.data();
    w.scales = scales ? scales->data() : nullptr;
    w.stride = size(weights.shape(1));
    return w;
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
    const GilRelease release(rows * (x.view.longest_row + 1) * edges);
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().edge_scores(x.view, w, edges, first + begin, first + end,
                              h.data() + begin * edges);
    });
}

// Reranks candidates in place by the sum of their scores and the weighted scores of an embedding.
void rerank(InMatrix<float> row_vectors, InMatrix<float> label_vectors, Index rank, float weight,
            OutMatrix<Index> labels, OutMatrix<float> scores, int n_jobs) {
    const Index stride = size(label_vectors.shape(1)), n_labels = size(label_vectors.shape(0));
    const Index rows = size(row_vectors.shape(0)), count = size(labels.shape(1));
    check_embedding(rank, stride);
    check_size("a row of row_vectors", row_vectors.shape(1), stride);
    check_size("labels", labels.size(), rows * count);
    check_size("scores", scores.size(), rows * count);
    check_range("labels", labels.data(), size(labels.size()), -1, n_labels);
    const LabelVectors vectors{label_vectors.data(), rank, stride, n_labels};
    const int threads = threads_for(n_jobs);
    const GilRelease release(rows * count * stride);
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().rerank(vectors, row_vectors.data() + begin * stride, weight, end - begin, count,
                         labels.data() + begin * count, scores.data() + begin * count);
    });
}

}  // namespace

void bind_linear(nb::module_& module) {
    nb::class_<FeatureArrays>(module, "Features")
        .def_static("csr", &csr, "values"_a, "indices"_a, "indptr"_a, "n_features"_a, "intercept"_a,
                    "unit_length"_a)
        .def_static("dense", &dense, "values"_a, "intercept"_a, "unit_length"_a)
        .def_prop_ro("n_rows", [](const FeatureArrays& x) { return x.view.n_rows; })
        .def("edge_scores", &edge_scores, "weights"_a, "scales"_a.none(), "h"_a, "first"_a,
             "n_jobs"_a);
    module.def("rerank", &rerank, "row_vectors"_a, "label_vectors"_a, "rank"_a, "weight"_a,
               "labels"_a, "scores"_a, "n_jobs"_a);
}

}  // namespace ltls
