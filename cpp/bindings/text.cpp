// Bindings of the text parser.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string_view>
#include <tuple>

#include "bindings/bindings.hpp"
#include "text/svmlight.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

// A NumPy view of one of the arrays, which keeps the rows alive.
template <class T>
auto array_of(TextArray<T> TextRows::* member) {
    return [member](nb::handle self) {
        const TextArray<T>& array = nb::cast<const TextRows&>(self).*member;
        return nb::ndarray<nb::numpy, T, nb::ndim<1>>(array.data.get(),
                                                      {static_cast<std::size_t>(array.size)}, self);
    };
}

const char* name_of(ParseError::Kind kind) {
    switch (kind) {
        case ParseError::label:
            return "label";
        case ParseError::pair:
            return "pair";
        case ParseError::feature:
            return "feature";
        case ParseError::value:
            return "value";
        default:
            return "twice";
    }
}

// The line, the kind and the word of the first error.
std::optional<std::tuple<Index, std::string, nb::bytes>> error_of(const TextRows& rows) {
    if (!rows.error) return std::nullopt;
    const ParseError& error = *rows.error;
    return std::tuple(error.line, std::string(name_of(error.kind)),
                      nb::bytes(error.word.data(), error.word.size()));
}

TextRows parse(nb::bytes text, Index first_feature, Index last_feature, Index first_label,
               Index last_label, Index blank_rows, int n_jobs) {
    constexpr Index most_features = (Index{1} << 31) - 1, most_labels = 1'000'000'000'000'000'000;
    if (first_feature < 0 || last_feature >= most_features)
        throw std::invalid_argument("features must be from 0 to 2**31 - 2");
    if (first_label < -most_labels || last_label > most_labels)
        throw std::invalid_argument("labels must be from -10**18 to 10**18");
    const int threads = threads_for(n_jobs);
    const std::string_view view(text.c_str(), text.size());
    const TextLimits limits{first_feature, last_feature, first_label, last_label, blank_rows};
    const ReleasedGil release;
    return parse_text(view, limits, threads);
}

}  // namespace

void bind_text(nb::module_& module) {
    nb::class_<TextRows>(module, "TextRows")
        .def_static("parse", &parse, "text"_a, "first_feature"_a, "last_feature"_a, "first_label"_a,
                    "last_label"_a, "blank_rows"_a, "n_jobs"_a)
        .def_prop_ro("feature_ends", array_of(&TextRows::feature_ends))
        .def_prop_ro("features", array_of(&TextRows::features))
        .def_prop_ro("values", array_of(&TextRows::values))
        .def_prop_ro("label_ends", array_of(&TextRows::label_ends))
        .def_prop_ro("labels", array_of(&TextRows::labels))
        .def_ro("n_lines", &TextRows::n_lines)
        .def_ro("lowest_feature", &TextRows::lowest_feature)
        .def_ro("highest_feature", &TextRows::highest_feature)
        .def_ro("highest_line", &TextRows::highest_line)
        .def_prop_ro("error", &error_of);
}

}  // namespace ltls
