// Bindings of the counting of n-grams.
#include "text/ngrams.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings/bindings.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

using Texts = nb::typed<nb::list, nb::str>;

// The texts as UTF-8, which Python keeps beside them. Raises UnicodeEncodeError for surrogates.
std::vector<std::string_view> views_of(const Texts& texts) {
    std::vector<std::string_view> views;
    views.reserve(texts.size());
    for (nb::handle text : texts) {
        Py_ssize_t length = 0;
        const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &length);
        if (!bytes) throw nb::python_error();
        views.emplace_back(bytes, static_cast<std::size_t>(length));
    }
    return views;
}

using Matrix = std::tuple<Numpy<Index>, Numpy<std::int32_t>, Numpy<float>>;

// How texts are split into n-grams.
class NgramAnalyzer {
  public:
    NgramAnalyzer(bool characters, Index low, Index high, In<std::uint8_t> kinds, Texts stop_words)
        : kinds_(kinds), stop_words_(stop_words) {
        if (low < 1 || low > high)
            throw std::invalid_argument("low must be from 1 to high = " + std::to_string(high) +
                                        ", got " + std::to_string(low));
        options_ = {characters, low, high, kinds_.data(), size(kinds_.size()), {}};
        for (const std::string_view word : views_of(stop_words_)) options_.stop_words.insert(word);
    }
    NgramAnalyzer(const NgramAnalyzer&) = delete;

    const NgramOptions& options() const { return options_; }

  private:
    const In<std::uint8_t> kinds_;
    const Texts stop_words_;
    NgramOptions options_;
};

std::unique_ptr<NgramCounts> count_ngrams(const NgramAnalyzer& analyzer, Texts texts, int n_jobs) {
    const std::vector<std::string_view> views = views_of(texts);
    const int threads = threads_for(n_jobs);
    const ReleasedGil release;
    return std::make_unique<NgramCounts>(analyzer.options(), views, threads);
}

std::tuple<Numpy<Index>, Numpy<float>> frequencies(const NgramCounts& counts) {
    const auto n_texts = new_array<Index>(counts.n_distinct());
    const auto times = new_array<float>(counts.n_distinct());
    const ReleasedGil release;
    counts.frequencies(n_texts.data(), times.data());
    return {n_texts, times};
}

// The counts of some n-grams, given by their places in alphabetical order, which increase, and the
// n-grams themselves.
std::tuple<Matrix, nb::bytes> select(NgramCounts& counts, In<Index> kept) {
    check_range("kept", kept.data(), size(kept.size()), 0, counts.n_distinct());
    const auto row_ptr = new_array<Index>(counts.n_rows() + 1);
    std::string ngrams;
    {
        const ReleasedGil release;
        counts.select(kept.data(), size(kept.size()), row_ptr.data());
        ngrams = counts.ngrams(kept.data(), size(kept.size()));
    }
    const Index n_values = row_ptr.data()[counts.n_rows()];
    const auto columns = new_array<std::int32_t>(n_values);
    const auto values = new_array<float>(n_values);
    {
        const ReleasedGil release;
        counts.write(row_ptr.data(), columns.data(), values.data());
    }
    return {{row_ptr, columns, values}, nb::bytes(ngrams.data(), ngrams.size())};
}

// N-grams that are columns of a matrix.
class Vocabulary {
  public:
    explicit Vocabulary(Texts ngrams) {
        if (ngrams.size() >= std::size_t{1} << 31)
            throw std::invalid_argument("there must be fewer than 2**31 n-grams");
        for (const std::string_view ngram : views_of(ngrams)) table_.add(ngram, hash_of(ngram));
        if (table_.entries().size() != ngrams.size())
            throw std::invalid_argument("n-grams must be distinct");
    }

    Matrix count(const NgramAnalyzer& analyzer, Texts texts, int n_jobs) const {
        const std::vector<std::string_view> views = views_of(texts);
        const int threads = threads_for(n_jobs);
        const auto row_ptr = new_array<Index>(size(views.size()) + 1);
        std::unique_ptr<KnownNgrams> found;
        {
            const ReleasedGil release;
            found = std::make_unique<KnownNgrams>(analyzer.options(), table_, views, threads);
            found->write_row_ptr(row_ptr.data());
        }
        const Index n_values = row_ptr.data()[views.size()];
        const auto columns = new_array<std::int32_t>(n_values);
        const auto values = new_array<float>(n_values);
        {
            const ReleasedGil release;
            found->write(row_ptr.data(), columns.data(), values.data());
        }
        return {row_ptr, columns, values};
    }

    const NgramTable& table() const { return table_; }

  private:
    NgramTable table_;
};

// Texts to rows, one at a time: for each kind of n-grams an analyzer, its columns and their
// weights.
class TfidfRows {
  public:
    TfidfRows(nb::tuple parts, bool sublinear) : held_(parts), sublinear_(sublinear) {
        Index first = 0;
        for (nb::handle each : parts) {
            const auto [analyzer, vocabulary, idf] =
                nb::cast<std::tuple<const NgramAnalyzer*, const Vocabulary*, In<float>>>(each);
            check_size("idf", idf.size(), size(vocabulary->table().entries().size()));
            idf_.push_back(idf);
            parts_.push_back({&analyzer->options(), &vocabulary->table(), idf.data(),
                              static_cast<std::int32_t>(first)});
            first += size(idf.size());
        }
        if (first >= Index{1} << 31)
            throw std::invalid_argument("there must be fewer than 2**31 n-grams");
    }
    TfidfRows(const TfidfRows&) = delete;

    // Raises UnicodeEncodeError for surrogates.
    std::tuple<Numpy<std::int32_t>, Numpy<float>> row(nb::str text) const {
        Py_ssize_t length = 0;
        const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &length);
        if (!bytes) throw nb::python_error();
        const TfidfRow found = [&] {
            const GilRelease release(work_per_byte * length);
            return TfidfRow(parts_, sublinear_, {bytes, static_cast<std::size_t>(length)});
        }();
        const auto columns = new_array<std::int32_t>(size(found.columns().size()));
        const auto weights = new_array<float>(size(found.weights().size()));
        std::copy(found.columns().begin(), found.columns().end(), columns.data());
        std::copy(found.weights().begin(), found.weights().end(), weights.data());
        return {columns, weights};
    }

  private:
    static constexpr Index work_per_byte = 64;  // most n-grams of a byte, by their look-ups

    const nb::tuple held_;  // keeps analyzers and vocabularies alive
    const bool sublinear_;
    std::vector<In<float>> idf_;
    std::vector<TfidfPart> parts_;
};

}  // namespace

void bind_ngrams(nb::module_& module) {
    nb::class_<NgramAnalyzer>(module, "NgramAnalyzer")
        .def(nb::init<bool, Index, Index, In<std::uint8_t>, Texts>(), nb::kw_only(), "characters"_a,
             "low"_a, "high"_a, "kinds"_a, "stop_words"_a)
        .def("count", &count_ngrams, "texts"_a, "n_jobs"_a);
    nb::class_<NgramCounts>(module, "NgramCounts")
        .def_prop_ro("n_distinct", &NgramCounts::n_distinct)
        .def("frequencies", &frequencies)
        .def("select", &select, "kept"_a);
    nb::class_<Vocabulary>(module, "Vocabulary")
        .def(nb::init<Texts>(), "ngrams"_a)
        .def("count", &Vocabulary::count, "analyzer"_a, "texts"_a, "n_jobs"_a);
    nb::class_<TfidfRows>(module, "TfidfRows")
        .def(nb::init<nb::tuple, bool>(), "parts"_a, "sublinear"_a)
        .def("row", &TfidfRows::row, "text"_a);
}

}  // namespace ltls
