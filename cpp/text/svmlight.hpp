// Parser of svmlight / libsvm text, `label,label,… index:value index:value …`, into the arrays of
// two CSR matrices.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/parallel.hpp"
#include "text/decimal.hpp"

namespace ltls {

// The numbers that are accepted.
struct TextLimits {
    Index first_feature, last_feature;  // at most 2^31 − 2
    Index first_label, last_label;      // within ±10^18
    Index blank_rows;                   // a blank line among this many first lines is an empty row
};

// The first error in a text: its line, from 0, and the offending word.
struct ParseError {
    enum Kind { label, pair, feature, value, twice } kind;
    Index line;
    std::string word;
};

// An array of a parsed text; it may own more memory than its size.
template <class T>
struct TextArray {
    std::unique_ptr<T[]> data;
    Index size = 0;

    explicit TextArray(Index capacity = 0)
        : data(std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(capacity))) {}
};

// Rows of features and labels, both sorted and without duplicates in every row.
struct TextRows {
    TextArray<Index> feature_ends, label_ends;  // CSR row ends
    TextArray<std::int32_t> features;
    TextArray<float> values;
    TextArray<Index> labels;
    Index n_lines = 0;
    Index lowest_feature = no_feature;
    Index highest_feature = -1;
    Index highest_line = -1;  // the first line with that feature
    std::optional<ParseError> error = std::nullopt;

    static constexpr Index no_feature = Index{1} << 62;
};

// Upper bounds on the rows, features and labels of a text, from counting characters.
struct TextCounts {
    Index lines = 0, colons = 0, commas = 0;

    TextCounts() = default;
    explicit TextCounts(std::string_view text)
        : lines(std::ranges::count(text, '\n')),
          colons(std::ranges::count(text, ':')),
          commas(std::ranges::count(text, ',')) {}
    TextCounts& operator+=(const TextCounts& other) {
        lines += other.lines;
        colons += other.colons;
        commas += other.commas;
        return *this;
    }
    Index labels() const { return lines + commas; }
};

// Parses complete lines and writes their rows at the given offsets in the arrays.
class LineParser {
  public:
    LineParser(TextRows& rows, const TextLimits& limits, const TextCounts& offset)
        : limits_(limits),
          line_(offset.lines),
          feature_ends_(rows.feature_ends.data.get() + offset.lines),
          label_ends_(rows.label_ends.data.get() + offset.lines),
          features_(rows.features.data.get() + offset.colons),
          values_(rows.values.data.get() + offset.colons),
          labels_(rows.labels.data.get() + offset.labels()) {}

    // The text must end with a newline, which spares the loops a bounds check.
    void parse(std::string_view text) {
        const char* at = text.data();
        const char* const end = at + text.size();
        for (; at < end && !error; ++line_) at = parse_line(at);
    }

    Index n_rows = 0, n_features = 0, n_labels = 0;
    Index lowest_feature = TextRows::no_feature, highest_feature = -1, highest_line = -1;
    std::optional<ParseError> error;

  private:
    static bool is_blank(char c) {
        return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
    }
    static bool ends_word(char c) { return c == '\n' || c == '#' || is_blank(c); }
    static const char* skip_blanks(const char* at) {
        while (is_blank(*at)) ++at;
        return at;
    }
    static const char* word_end(const char* at) {
        while (!ends_word(*at)) ++at;
        return at;
    }
    static const char* next_line(const char* at) {
        while (*at != '\n') ++at;
        return at + 1;
    }

    const char* parse_line(const char* at) {
        at = skip_blanks(at);
        if (*at == '\n') {
            if (line_ < limits_.blank_rows) end_row(n_features, n_labels);
            return at + 1;
        }
        if (*at == '#') return next_line(at);
        const Index first_feature = n_features, first_label = n_labels;
        const char* end = word_end(at);
        if (!std::memchr(at, ':', static_cast<std::size_t>(end - at))) {
            parse_labels(at, end);
            at = skip_blanks(end);
            end = word_end(at);
        }
        if (end - at >= 4 && std::memcmp(at, "qid:", 4) == 0) at = skip_blanks(end);
        while (!error && *at != '\n' && *at != '#') at = skip_blanks(parse_pair(at));
        if (error) return at;
        end_row(first_feature, first_label);
        return next_line(at);
    }

    void fail(ParseError::Kind kind, const char* at, const char* end) {
        error = ParseError{kind, line_, std::string(at, end)};
    }

    void parse_labels(const char* at, const char* end) {
        for (; !error; ++at) {
            const char* const comma = std::find(at, end, ',');
            const Decimal number = Decimal::read(at);
            Index label = 0;
            if (number.end != comma || !number.to_integer(label) || label < limits_.first_label ||
                label > limits_.last_label)
                fail(ParseError::label, at, comma);
            else
                labels_[n_labels++] = label;
            if (comma == end) return;
            at = comma;
        }
    }

    const char* parse_pair(const char* const word) {
        const char* at = word;
        const bool negative = *at == '-';
        at += *at == '-' || *at == '+';
        const char* const digits = at;
        Index feature = 0;
        for (; is_digit(*at) && at - digits < 18; ++at) feature = feature * 10 + (*at - '0');
        if (negative) feature = -feature;
        if (at == digits || *at != ':' || feature < limits_.first_feature ||
            feature > limits_.last_feature) {
            const char* const end = word_end(word);
            fail(std::find(word, end, ':') == end ? ParseError::pair : ParseError::feature, word,
                 end);
            return end;
        }
        const Decimal number = Decimal::read(at + 1);
        if (!number.end || !ends_word(*number.end) || !number.to_float(values_[n_features])) {
            const char* const end = word_end(word);
            fail(ParseError::value, word, end);
            return end;
        }
        features_[n_features++] = static_cast<std::int32_t>(feature);
        return number.end;
    }

    void end_row(Index first_feature, Index first_label) {
        std::int32_t* const features = features_ + first_feature;
        const Index count = n_features - first_feature;
        if (std::adjacent_find(features, features + count, std::greater_equal{}) !=
            features + count)
            sort_features(first_feature);
        Index* const labels = labels_ + first_label;
        if (std::adjacent_find(labels, labels_ + n_labels, std::greater_equal{}) !=
            labels_ + n_labels) {
            std::sort(labels, labels_ + n_labels);
            n_labels = std::unique(labels, labels_ + n_labels) - labels_;
        }
        feature_ends_[n_rows] = n_features;
        label_ends_[n_rows] = n_labels;
        ++n_rows;
        if (count == 0) return;
        lowest_feature = std::min<Index>(lowest_feature, features[0]);
        if (features[count - 1] > highest_feature) {
            highest_feature = features[count - 1];
            highest_line = line_;
        }
    }

    void sort_features(Index first) {
        pairs_.clear();
        for (Index i = first; i < n_features; ++i) pairs_.emplace_back(features_[i], values_[i]);
        std::sort(pairs_.begin(), pairs_.end());
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            std::tie(features_[first + size(i)], values_[first + size(i)]) = pairs_[i];
            if (i > 0 && pairs_[i].first == pairs_[i - 1].first && !error)
                error = ParseError{ParseError::twice, line_, std::to_string(pairs_[i].first)};
        }
    }

    static Index size(std::size_t n) { return static_cast<Index>(n); }

    const TextLimits limits_;
    Index line_;
    Index* const feature_ends_;
    Index* const label_ends_;
    std::int32_t* const features_;
    float* const values_;
    Index* const labels_;
    std::vector<std::pair<std::int32_t, float>> pairs_;
};

// Splits a text that ends with a newline into parts of complete lines.
inline std::vector<std::string_view> line_parts(std::string_view text, Index count) {
    std::vector<std::string_view> parts;
    const std::size_t target = text.size() / static_cast<std::size_t>(count) + 1;
    while (!text.empty()) {
        const std::size_t length =
            target < text.size() ? text.find('\n', target - 1) + 1 : text.size();
        parts.push_back(text.substr(0, length));
        text.remove_prefix(length);
    }
    return parts;
}

// Parses a text in threads. Every part writes at the upper bounds of the parts before it; the gaps
// are closed afterwards.
inline TextRows parse_text(std::string_view text, const TextLimits& limits, int threads) {
    const std::size_t whole = text.rfind('\n') + 1;  // 0 if there is none
    std::vector<std::string_view> parts = line_parts(text.substr(0, whole), threads);
    const std::string last_line = std::string(text.substr(whole)) + '\n';
    if (whole < text.size()) parts.push_back(last_line);
    const Index n_parts = static_cast<Index>(parts.size());

    std::vector<TextCounts> offsets(parts.size() + 1);
    in_parallel(n_parts, threads, [&](Index first, Index last) {
        for (Index p = first; p < last; ++p)
            offsets[static_cast<std::size_t>(p) + 1] =
                TextCounts(parts[static_cast<std::size_t>(p)]);
    });
    for (std::size_t p = 0; p < parts.size(); ++p) offsets[p + 1] += offsets[p];

    TextRows rows{.feature_ends = TextArray<Index>(offsets.back().lines),
                  .label_ends = TextArray<Index>(offsets.back().lines),
                  .features = TextArray<std::int32_t>(offsets.back().colons),
                  .values = TextArray<float>(offsets.back().colons),
                  .labels = TextArray<Index>(offsets.back().labels()),
                  .n_lines = offsets.back().lines};
    std::vector<LineParser> parsers;
    parsers.reserve(parts.size());
    for (std::size_t p = 0; p < parts.size(); ++p) parsers.emplace_back(rows, limits, offsets[p]);
    in_parallel(n_parts, threads, [&](Index first, Index last) {
        for (Index p = first; p < last; ++p)
            parsers[static_cast<std::size_t>(p)].parse(parts[static_cast<std::size_t>(p)]);
    });

    for (std::size_t p = 0; p < parts.size(); ++p) {
        const LineParser& part = parsers[p];
        if (part.error) {
            rows.error = part.error;
            return rows;
        }
        const auto append = [](auto& array, Index first, Index count) {
            auto* const data = array.data.get();
            if (first > array.size) std::copy_n(data + first, count, data + array.size);
            array.size += count;
        };
        for (Index row = offsets[p].lines; row < offsets[p].lines + part.n_rows; ++row) {
            rows.feature_ends.data[static_cast<std::size_t>(row)] += rows.features.size;
            rows.label_ends.data[static_cast<std::size_t>(row)] += rows.labels.size;
        }
        append(rows.feature_ends, offsets[p].lines, part.n_rows);
        append(rows.label_ends, offsets[p].lines, part.n_rows);
        append(rows.features, offsets[p].colons, part.n_features);
        append(rows.values, offsets[p].colons, part.n_features);
        append(rows.labels, offsets[p].labels(), part.n_labels);
        rows.lowest_feature = std::min(rows.lowest_feature, part.lowest_feature);
        if (part.highest_feature > rows.highest_feature) {
            rows.highest_feature = part.highest_feature;
            rows.highest_line = part.highest_line;
        }
    }
    return rows;
}

}  // namespace ltls
