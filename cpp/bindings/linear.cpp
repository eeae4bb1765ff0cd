// Bindings of the feature matrix and the linear model.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;

namespace ltls {

namespace {

WeightArrays dense_weights(AnyArray values, std::optional<In<float>> scales) {
    if (values.ndim() != 2) throw std::invalid_argument("values must have two dimensions");
    Weights w{};
    if (values.dtype() == nb::dtype<float>())
        w.kind = Weights::f32;
    else if (values.dtype() == nb::dtype<std::uint16_t>())
        w.kind = Weights::f16;
    else if (values.dtype() == nb::dtype<std::int8_t>())
        w.kind = Weights::i8;
    else
        throw std::invalid_argument("values must be float32, float16 (as uint16) or int8");
    const Index n_rows = size(values.shape(0));
    if (scales) check_size("scales", scales->size(), n_rows);
    w.rows = values.data();
    w.scales = scales ? scales->data() : nullptr;
    w.stride = size(values.shape(1));
    return {w, n_rows, values, scales, {}, {}};
}

WeightArrays pruned_weights(In<Index> row_ptr, In<std::uint16_t> columns, In<std::int8_t> values,
                            In<float> scales, Index stride) {
    if (row_ptr.size() < 1) throw std::invalid_argument("row_ptr must not be empty");
    const Index n_rows = size(row_ptr.size()) - 1, count = size(values.size());
    check_size("columns", columns.size(), count);
    check_size("scales", scales.size(), n_rows);
    const Index* const ptr = row_ptr.data();
    for (Index row = 0; row < n_rows; ++row)
        if (ptr[row] < 0 || ptr[row] > ptr[row + 1] || ptr[row + 1] > count)
            throw std::invalid_argument("row_ptr of row " + std::to_string(row) +
                                        " points outside values");
    for (Index i = 0; i < count; ++i)
        if (columns.data()[i] >= stride)
            throw std::invalid_argument("columns must be below " + std::to_string(stride) +
                                        ", got " + std::to_string(columns.data()[i]));
    const Weights w{Weights::pruned_i8, values.data(), scales.data(), stride, ptr, columns.data()};
    return {w, n_rows, AnyArray(values), scales, row_ptr, columns};
}

template <class Int>
void check_csr(const Features& x) {
    const Int* indptr = static_cast<const Int*>(x.indptr);
    const Int* indices = static_cast<const Int*>(x.indices);
    for (Index row = 0; row < x.n_rows; ++row)
        if (indptr[row] < 0 || indptr[row] > indptr[row + 1] || indptr[row + 1] > x.n_values)
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
    x.n_values = size(std::min(values.size(), indices.size()));
    if (wide) {
        check_csr<std::int64_t>(x);
        x.longest_row = longest_row<std::int64_t>(x);
    } else {
        check_csr<std::int32_t>(x);
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

void edge_scores(const FeatureArrays& x, const WeightArrays& weights, OutMatrix<float> h,
                 Index first, int n_jobs) {
    const Index edges = size(h.shape(1)), rows = size(h.shape(0));
    const Index n_rows = x.view.n_features + x.view.intercept;
    const bool fits = weights.view.kind == Weights::pruned_i8 ? weights.view.stride == edges
                                                              : weights.view.stride >= edges;
    if (weights.n_rows != n_rows || !fits)
        throw std::invalid_argument("weights must have " + std::to_string(n_rows) + " rows of " +
                                    std::to_string(edges) + " numbers, got " +
                                    std::to_string(weights.n_rows) + " of " +
                                    std::to_string(weights.view.stride));
    if (first < 0 || first + rows > x.view.n_rows)
        throw std::invalid_argument("h has more rows than X has from row " + std::to_string(first));
    const int threads = threads_for(n_jobs);
    const GilRelease release(rows * (x.view.longest_row + 1) * edges);
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().edge_scores(x.view, weights.view, edges, first + begin, first + end,
                              h.data() + begin * edges);
    });
}

}  // namespace

void bind_linear(nb::module_& module) {
    nb::class_<FeatureArrays>(module, "Features")
        .def_static("csr", &csr, "values"_a, "indices"_a, "indptr"_a, "n_features"_a, "intercept"_a,
                    "unit_length"_a)
        .def_static("dense", &dense, "values"_a, "intercept"_a, "unit_length"_a)
        .def_prop_ro("n_rows", [](const FeatureArrays& x) { return x.view.n_rows; })
        .def("edge_scores", &edge_scores, "weights"_a, "h"_a, "first"_a, "n_jobs"_a);
    nb::class_<WeightArrays>(module, "Weights")
        .def_static("dense", &dense_weights, "values"_a, "scales"_a.none())
        .def_static("pruned", &pruned_weights, "row_ptr"_a, "columns"_a, "values"_a, "scales"_a,
                    "stride"_a)
        .def_ro("n_rows", &WeightArrays::n_rows);
}

}  // namespace ltls
