// The libFuzzer target of the text parser: rows or the first error, the same for any number of
// threads.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/svmlight.hpp"

using namespace ltls;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
}

void check_rows(const TextRows& rows, const TextLimits& limits) {
    require(rows.feature_ends.size == rows.label_ends.size, "a row has features and labels");
    require(rows.feature_ends.size <= rows.n_lines, "no more rows than lines");
    require(rows.features.size == rows.values.size, "every feature has a value");
    Index feature = 0, label = 0;
    for (Index row = 0; row < rows.feature_ends.size; ++row) {
        const Index first_feature = feature, first_label = label;
        for (; feature < rows.feature_ends.data[row]; ++feature) {
            const std::int32_t* const at = &rows.features.data[feature];
            require(feature < rows.features.size, "features end within their array");
            require(*at >= limits.first_feature && *at <= limits.last_feature, "feature in range");
            require(feature == first_feature || at[-1] < at[0], "features increase");
            require(std::isfinite(rows.values.data[feature]), "values are finite");
            require(*at >= rows.lowest_feature && *at <= rows.highest_feature, "within extremes");
        }
        for (; label < rows.label_ends.data[row]; ++label) {
            const Index* const at = &rows.labels.data[label];
            require(label < rows.labels.size, "labels end within their array");
            require(*at >= limits.first_label && *at <= limits.last_label, "label in range");
            require(label == first_label || at[-1] < at[0], "labels increase");
        }
    }
    require(feature == rows.features.size && label == rows.labels.size, "nothing is left over");
}

template <class T>
bool equal(const TextArray<T>& a, const TextArray<T>& b) {
    return std::equal(a.data.get(), a.data.get() + a.size, b.data.get(), b.data.get() + b.size);
}

void check_equal(const TextRows& a, const TextRows& b) {
    require(a.error.has_value() == b.error.has_value(), "threads agree on errors");
    if (a.error) {
        require(a.error->kind == b.error->kind && a.error->line == b.error->line &&
                    a.error->word == b.error->word,
                "threads agree on the error");
        return;
    }
    require(equal(a.feature_ends, b.feature_ends) && equal(a.label_ends, b.label_ends) &&
                equal(a.features, b.features) && equal(a.values, b.values) &&
                equal(a.labels, b.labels),
            "threads agree on the rows");
    require(a.n_lines == b.n_lines && a.lowest_feature == b.lowest_feature &&
                a.highest_feature == b.highest_feature && a.highest_line == b.highest_line,
            "threads agree on lines and features");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const unsigned options = size ? data[size - 1] : 0;  // last, so that seeds are texts
    const TextLimits limits{
        .first_feature = options & 1,
        .last_feature = options & 2 ? 1000 : (Index{1} << 31) - 2,
        .first_label = options & 4 ? 0 : -1'000'000'000'000'000'000,
        .last_label = 1'000'000'000'000'000'000,
        .blank_rows = options & 8 ? 4 : 0,
    };
    const std::string_view text(reinterpret_cast<const char*>(data), size ? size - 1 : 0);
    const TextRows rows = parse_text(text, limits, 1);
    if (!rows.error) check_rows(rows, limits);
    check_equal(rows, parse_text(text, limits, 2 + static_cast<int>(options >> 6)));
    return 0;
}
