// N-grams of words, or of characters within words, counted as scikit-learn's CountVectorizer does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "core/parallel.hpp"

namespace ltls {

// What a text is split into. Texts are UTF-8.
struct NgramOptions {
    bool characters;           // n-grams of characters within words, with a space at either end
    Index low, high;           // smallest and largest n
    const std::uint8_t* kind;  // of every character: a part of words, white space, or neither
    Index n_kinds;             // characters beyond have kind 0
    std::unordered_set<std::string_view> stop_words;

    static constexpr std::uint8_t in_word = 1, space = 2;
};

// Splits texts into n-grams. A text becomes its words with single spaces between, in which every
// n-gram is a substring.
class NgramSplitter {
  public:
    explicit NgramSplitter(const NgramOptions& options) : options_(options) {}

    // Calls use(ngram) for every n-gram of a text, in the order of scikit-learn.
    template <class Use>
    void split(std::string_view text, Use&& use) {
        split_in_pieces(text, use, std::string_view::npos);
    }

    // The same in another order: of a long text, only the words of a piece are kept at a time.
    template <class Use>
    void split_in_pieces(std::string_view text, Use&& use, std::size_t n_words = 4096) {
        clear();
        std::size_t n_used = 0;  // of these words, no n-gram that ends with them is left
        for (std::size_t at = 0; at < text.size();) {
            at = find_words(text, at, n_words);
            if (options_.characters) {
                for (std::size_t word = 0; word < begins_.size(); ++word) characters_of(word, use);
                clear();
            } else {
                words_from(n_used, use);
                n_used = keep_last(static_cast<std::size_t>(options_.high - 1));
            }
        }
    }

  private:
    std::string_view slice(std::size_t begin, std::size_t end) const {
        return std::string_view(words_).substr(begin, end - begin);
    }

    void clear() {
        words_.assign(1, ' ');
        begins_.clear();
        ends_.clear();
    }

    // Keeps the last of the words, and returns how many there are.
    std::size_t keep_last(std::size_t most) {
        if (begins_.size() <= most) return begins_.size();
        const std::size_t n_dropped = begins_.size() - most;
        const auto dropped = static_cast<std::ptrdiff_t>(n_dropped);
        const std::size_t n_bytes = ends_[n_dropped - 1];  // the space after it stays
        begins_.erase(begins_.begin(), begins_.begin() + dropped);
        ends_.erase(ends_.begin(), ends_.begin() + dropped);
        words_.erase(0, n_bytes);
        for (std::size_t& begin : begins_) begin -= n_bytes;
        for (std::size_t& end : ends_) end -= n_bytes;
        return most;
    }

    // Adds so many words of a text from a place on; returns the place behind them.
    std::size_t find_words(std::string_view text, std::size_t at, std::size_t n_words) {
        std::size_t begin = 0;
        bool inside = false;
        while (at < text.size()) {
            const std::size_t here = at;
            const std::uint8_t kind = kind_of(text, at);
            const bool part = options_.characters ? !(kind & NgramOptions::space)
                                                  : (kind & NgramOptions::in_word) != 0;
            if (part && !inside) begin = here;
            if (!part && inside) {
                add_word(text.substr(begin, here - begin));
                if (--n_words == 0) return at;
            }
            inside = part;
        }
        if (inside) add_word(text.substr(begin));
        return text.size();
    }
    void add_word(std::string_view word) {
        if (!options_.stop_words.empty() && options_.stop_words.contains(word)) return;
        begins_.push_back(words_.size());
        words_ += word;
        ends_.push_back(words_.size());
        words_ += ' ';
    }

    // The kind of the character at a place, which is moved behind it.
    std::uint8_t kind_of(std::string_view text, std::size_t& at) const {
        const auto byte = [&](std::size_t i) {
            return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
        };
        std::uint32_t code = byte(at);
        if (code < 0x80) {
            at += 1;
        } else if (code < 0xe0) {
            code = (code & 0x1f) << 6 | (byte(at + 1) & 0x3f);
            at += 2;
        } else if (code < 0xf0) {
            code = (code & 0x0f) << 12 | (byte(at + 1) & 0x3f) << 6 | (byte(at + 2) & 0x3f);
            at += 3;
        } else {
            code = (code & 0x07) << 18 | (byte(at + 1) & 0x3f) << 12 | (byte(at + 2) & 0x3f) << 6 |
                   (byte(at + 3) & 0x3f);
            at += 4;
        }
        return static_cast<Index>(code) < options_.n_kinds ? options_.kind[code] : 0;
    }

    // The n-grams of words that end with a word from a number on.
    template <class Use>
    void words_from(std::size_t number, Use&& use) {
        for (Index size = options_.low; size <= options_.high; ++size) {
            const auto n = static_cast<std::size_t>(size);
            for (std::size_t last = std::max(number, n - 1); last < ends_.size(); ++last)
                use(slice(begins_[last + 1 - n], ends_[last]));
        }
    }

    // The n-grams of a word and the spaces around it. A word that is not longer counts once.
    template <class Use>
    void characters_of(std::size_t word, Use&& use) {
        const std::size_t end = ends_[word] + 1;
        for (Index n = options_.low; n <= options_.high; ++n) {
            std::size_t first = begins_[word] - 1, last = first;
            for (Index i = 0; i < n && last < end; ++i) last = next_character(last, end);
            const bool whole = last == end;
            for (use(slice(first, last)); last < end;) {
                first = next_character(first, end);
                last = next_character(last, end);
                use(slice(first, last));
            }
            if (whole) break;
        }
    }
    std::size_t next_character(std::size_t at, std::size_t end) const {
        do ++at;
        while (at < end && (static_cast<unsigned char>(words_[at]) & 0xc0) == 0x80);
        return at;
    }

    const NgramOptions& options_;
    std::string words_;
    std::vector<std::size_t> begins_, ends_;
};

inline std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = text.size() * 0x9e3779b97f4a7c15u;
    const auto mix = [&](std::uint64_t word) {
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    };
    const char* at = text.data();
    std::size_t left = text.size();
    for (; left >= 8; at += 8, left -= 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        mix(word);
    }
    std::uint64_t word = 0;
    std::memcpy(&word, at, left);
    mix(word);
    return hash;
}

// Distinct n-grams, numbered in the order in which they are added.
class NgramTable {
  public:
    using Id = std::uint32_t;
    struct Entry {
        std::uint64_t hash;
        std::string_view ngram;
    };

    Id add(std::string_view ngram, std::uint64_t hash) {
        if (2 * entries_.size() >= slots_.size()) grow();
        Id& slot = find_slot(ngram, hash);
        if (slot == 0) {
            entries_.push_back({hash, stored(ngram)});
            slot = static_cast<Id>(entries_.size());
        }
        return slot - 1;
    }
    // The number of an n-gram, −1 if it is not known.
    Index find(std::string_view ngram) const {
        if (slots_.empty()) return -1;
        return Index{const_cast<NgramTable*>(this)->find_slot(ngram, hash_of(ngram))} - 1;
    }
    const std::vector<Entry>& entries() const { return entries_; }

  private:
    Id& find_slot(std::string_view ngram, std::uint64_t hash) {
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
            Id& slot = slots_[at];
            if (slot == 0 || (entries_[slot - 1].hash == hash && entries_[slot - 1].ngram == ngram))
                return slot;
        }
    }
    void grow() {
        slots_.assign(std::max<std::size_t>(1024, 4 * slots_.size()), 0);
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            std::size_t at = entries_[i].hash & mask;
            while (slots_[at] != 0) at = (at + 1) & mask;
            slots_[at] = static_cast<Id>(i + 1);
        }
    }
    std::string_view stored(std::string_view ngram) {
        constexpr std::size_t block = 1 << 16;
        if (blocks_.empty() || blocks_.back().size() + ngram.size() > blocks_.back().capacity())
            blocks_.emplace_back().reserve(std::max(block, ngram.size()));
        std::string& last = blocks_.back();
        last += ngram;
        return std::string_view(last).substr(last.size() - ngram.size());
    }

    std::vector<Entry> entries_;
    std::vector<Id> slots_;  // 1 + the number of an entry, or 0
    std::deque<std::string> blocks_;
};

// How often the n-grams of texts occur in each text. Threads take consecutive texts each; n-grams
// are numbered in the order of their first occurrence in all texts, whatever the number of threads.
class NgramCounts {
  public:
    NgramCounts(const NgramOptions& options, const std::vector<std::string_view>& texts,
                int threads)
        : threads_(threads), n_texts_(static_cast<Index>(texts.size())) {
        const Index n_parts = std::max<Index>(1, std::min<Index>(threads, n_texts_));
        parts_.resize(static_cast<std::size_t>(n_parts));
        each_part([&](Index part) { count(options, texts, part); });
        number_ngrams();
        sort_ngrams();
    }

    Index n_rows() const { return n_texts_; }
    Index n_distinct() const { return static_cast<Index>(sorted_.size()); }

    // How many texts have each n-gram, and how often it occurs, in alphabetical order.
    void frequencies(std::int64_t* n_texts, float* times) const {
        in_parallel(n_distinct(), threads_, [&](Index first, Index last) {
            for (Index i = first; i < last; ++i) {
                const Index number = sorted_[static_cast<std::size_t>(i)].number;
                n_texts[i] = n_with_[static_cast<std::size_t>(number)];
                times[i] = static_cast<float>(times_[static_cast<std::size_t>(number)]);
            }
        });
    }

    // Some n-grams, given by their places in alphabetical order; a line for each.
    std::string ngrams(const Index* kept, Index count) const {
        std::string joined;
        for (Index i = 0; i < count; ++i) {
            if (i > 0) joined += '\n';
            joined += sorted_[static_cast<std::size_t>(kept[i])].ngram;
        }
        return joined;
    }

    // Keeps some n-grams as columns 0, 1, … of a CSR matrix. Writes the number of entries up to
    // the end of every row.
    void select(const Index* kept, Index count, Index* row_ptr) {
        column_.assign(sorted_.size(), -1);
        for (Index i = 0; i < count; ++i) {
            const Index number = sorted_[static_cast<std::size_t>(kept[i])].number;
            column_[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(i);
        }
        each_part([&](Index part) {
            const Part& own = parts_[static_cast<std::size_t>(part)];
            Index row = first_text(part);
            std::size_t i = 0;
            for (const std::size_t end : own.row_ends) {
                Index n = 0;
                for (; i < end; ++i) n += column_of(own, own.pairs[i].id) >= 0;
                row_ptr[++row] = n;
            }
        });
        row_ptr[0] = 0;
        for (Index row = 0; row < n_texts_; ++row) row_ptr[row + 1] += row_ptr[row];
    }

    // Writes the columns and counts of all rows. Those of a row are in the order of first
    // occurrence in all texts, as scikit-learn leaves them.
    void write(const Index* row_ptr, std::int32_t* columns, float* counts) const {
        each_part([&](Index part) {
            const Part& own = parts_[static_cast<std::size_t>(part)];
            std::vector<Pair> pairs;
            Index row = first_text(part);
            std::size_t i = 0;
            for (const std::size_t end : own.row_ends) {
                pairs.clear();
                for (; i < end; ++i)
                    if (column_of(own, own.pairs[i].id) >= 0)
                        pairs.push_back({own.numbers[own.pairs[i].id], own.pairs[i].count});
                std::sort(pairs.begin(), pairs.end(),
                          [](const Pair& a, const Pair& b) { return a.id < b.id; });
                Index to = row_ptr[row++];
                for (const Pair& pair : pairs) {
                    columns[to] = column_[pair.id];
                    counts[to++] = static_cast<float>(pair.count);
                }
            }
        });
    }

  private:
    using Id = NgramTable::Id;
    struct Pair {
        Id id;
        std::uint32_t count;
    };
    // The n-grams of consecutive texts, with numbers of their own.
    struct Part {
        NgramTable table;
        std::vector<Pair> pairs;
        std::vector<std::size_t> row_ends;
        std::vector<Id> n_with, times;
        // Where an n-gram was first found: the part and its number there.
        std::vector<std::pair<std::int32_t, Id>> owner;
        std::vector<Id> numbers;  // in all texts
    };
    struct Ngram {
        std::uint64_t prefix;  // the first bytes
        std::string_view ngram;
        Id number;
        bool operator<(const Ngram& other) const {
            return prefix != other.prefix ? prefix < other.prefix : ngram < other.ngram;
        }
    };

    template <class Work>
    void each_part(Work&& work) const {
        in_parallel(static_cast<Index>(parts_.size()), threads_, [&](Index first, Index last) {
            for (Index part = first; part < last; ++part) work(part);
        });
    }
    Index first_text(Index part) const {
        return n_texts_ * part / static_cast<Index>(parts_.size());
    }
    std::int32_t column_of(const Part& part, Id id) const { return column_[part.numbers[id]]; }

    void count(const NgramOptions& options, const std::vector<std::string_view>& texts,
               Index part) {
        Part& own = parts_[static_cast<std::size_t>(part)];
        NgramSplitter splitter(options);
        std::vector<std::size_t> place;  // of an n-gram in `pairs`, if beyond the row's first
        for (Index text = first_text(part); text < first_text(part + 1); ++text) {
            const std::size_t first = own.pairs.size();
            splitter.split(texts[static_cast<std::size_t>(text)], [&](std::string_view ngram) {
                const Id id = own.table.add(ngram, hash_of(ngram));
                if (id == place.size()) {
                    place.push_back(0);
                    own.n_with.push_back(0);
                    own.times.push_back(0);
                }
                ++own.times[id];
                const std::size_t at = place[id];
                if (at >= first && at < own.pairs.size() && own.pairs[at].id == id) {
                    ++own.pairs[at].count;
                } else {
                    ++own.n_with[id];
                    place[id] = own.pairs.size();
                    own.pairs.push_back({id, 1});
                }
            });
            own.row_ends.push_back(own.pairs.size());
        }
    }

    // Numbers the n-grams of all parts by first occurrence. Threads share them by their hashes.
    void number_ngrams() {
        const std::size_t n_parts = parts_.size();
        for (Part& part : parts_) {
            part.owner.resize(part.table.entries().size());
            part.numbers.resize(part.table.entries().size());
        }
        each_part([&](Index share) {
            NgramTable known;
            std::vector<std::pair<std::int32_t, Id>> first;
            for (std::size_t part = 0; part < n_parts; ++part) {
                const auto& entries = parts_[part].table.entries();
                for (std::size_t id = 0; id < entries.size(); ++id) {
                    if ((entries[id].hash >> 40) % n_parts != static_cast<std::size_t>(share))
                        continue;
                    std::pair<std::int32_t, Id> here{static_cast<std::int32_t>(part),
                                                     static_cast<Id>(id)};
                    if (n_parts > 1) {
                        const Id at = known.add(entries[id].ngram, entries[id].hash);
                        if (at == first.size()) first.push_back(here);
                        here = first[at];
                    }
                    parts_[part].owner[id] = here;
                }
            }
        });
        for (std::size_t part = 0; part < n_parts; ++part) {
            Part& own = parts_[part];
            for (std::size_t id = 0; id < own.owner.size(); ++id) {
                const auto [where, its_id] = own.owner[id];
                if (where == static_cast<std::int32_t>(part)) {
                    own.numbers[id] = static_cast<Id>(n_with_.size());
                    n_with_.push_back(0);
                    times_.push_back(0);
                    Ngram ngram{0, own.table.entries()[id].ngram, own.numbers[id]};
                    for (std::size_t i = 0; i < 8; ++i)
                        ngram.prefix =
                            ngram.prefix << 8 |
                            (i < ngram.ngram.size() ? static_cast<unsigned char>(ngram.ngram[i])
                                                    : 0u);
                    sorted_.push_back(ngram);
                } else {
                    own.numbers[id] = parts_[static_cast<std::size_t>(where)].numbers[its_id];
                }
                n_with_[own.numbers[id]] += own.n_with[id];
                times_[own.numbers[id]] += own.times[id];
            }
        }
    }

    // UTF-8 sorts as its characters do.
    void sort_ngrams() {
        const Index n_parts = static_cast<Index>(parts_.size()), count = n_distinct();
        const auto place = [&](Index part) { return sorted_.begin() + count * part / n_parts; };
        each_part([&](Index part) { std::sort(place(part), place(part + 1)); });
        for (Index part = 1; part < n_parts; ++part)
            std::inplace_merge(sorted_.begin(), place(part), place(part + 1));
    }

    const int threads_;
    const Index n_texts_;
    std::vector<Part> parts_;
    std::vector<std::int64_t> n_with_, times_;  // by number
    std::vector<Ngram> sorted_;
    std::vector<std::int32_t> column_;  // by number; −1 if it is not kept
};

// How often columns occur. They are added in any order; few more are kept than are distinct.
class ColumnCounts {
  public:
    struct Entry {
        std::int32_t column;
        std::uint32_t count;
    };

    void add(std::int32_t column) {
        added_.push_back(column);
        if (added_.size() >= std::max<std::size_t>(1 << 16, counts_.size())) merge();
    }
    // The counts of columns, which increase. Nothing is kept of them.
    std::vector<Entry> take() {
        merge();
        return std::exchange(counts_, {});
    }

  private:
    void merge() {
        std::sort(added_.begin(), added_.end());
        const auto n_old = static_cast<std::ptrdiff_t>(counts_.size());
        for (std::size_t i = 0, next; i < added_.size(); i = next) {
            for (next = i + 1; next < added_.size() && added_[next] == added_[i];) ++next;
            counts_.push_back({added_[i], static_cast<std::uint32_t>(next - i)});
        }
        added_.clear();
        if (n_old == 0) return;
        std::inplace_merge(counts_.begin(), counts_.begin() + n_old, counts_.end(),
                           [](const Entry& a, const Entry& b) { return a.column < b.column; });
        std::size_t to = 0;
        for (std::size_t i = 1; i < counts_.size(); ++i)
            if (counts_[i].column == counts_[to].column)
                counts_[to].count += counts_[i].count;
            else
                counts_[++to] = counts_[i];
        counts_.resize(to + 1);
    }

    std::vector<Entry> counts_;
    std::vector<std::int32_t> added_;
};

// Counts the n-grams of texts that a table has: rows of a CSR matrix whose columns increase.
class KnownNgrams {
  public:
    KnownNgrams(const NgramOptions& options, const NgramTable& table,
                const std::vector<std::string_view>& texts, int threads)
        : threads_(threads), rows_(texts.size()) {
        in_parallel(n_rows(), threads, [&](Index first, Index last) {
            NgramSplitter splitter(options);
            ColumnCounts counts;
            for (Index i = first; i < last; ++i) {
                const auto text = static_cast<std::size_t>(i);
                splitter.split_in_pieces(texts[text], [&](std::string_view ngram) {
                    const Index column = table.find(ngram);
                    if (column >= 0) counts.add(static_cast<std::int32_t>(column));
                });
                rows_[text] = counts.take();
            }
        });
    }

    Index n_rows() const { return static_cast<Index>(rows_.size()); }

    void write_row_ptr(Index* row_ptr) const {
        row_ptr[0] = 0;
        for (std::size_t i = 0; i < rows_.size(); ++i)
            row_ptr[i + 1] = row_ptr[i] + static_cast<Index>(rows_[i].size());
    }
    void write(const Index* row_ptr, std::int32_t* columns, float* counts) const {
        in_parallel(n_rows(), threads_, [&](Index first, Index last) {
            for (Index i = first; i < last; ++i) {
                Index to = row_ptr[i];
                for (const ColumnCounts::Entry& entry : rows_[static_cast<std::size_t>(i)]) {
                    columns[to] = entry.column;
                    counts[to++] = static_cast<float>(entry.count);
                }
            }
        });
    }

  private:
    const int threads_;
    std::vector<std::vector<ColumnCounts::Entry>> rows_;
};

// One kind of n-grams of a row: how texts are split, the n-grams that are columns, their weights,
// and where their columns begin.
struct TfidfPart {
    const NgramOptions* options;
    const NgramTable* table;
    const float* idf;
    std::int32_t first;
};

// The TF-IDF weights of a text. Each part has unit length, and so has the whole row.
class TfidfRow {
  public:
    TfidfRow(const std::vector<TfidfPart>& parts, bool sublinear, std::string_view text) {
        ColumnCounts counts;
        for (const TfidfPart& part : parts) {
            const std::size_t begin = columns_.size();
            NgramSplitter splitter(*part.options);
            splitter.split_in_pieces(text, [&](std::string_view ngram) {
                const Index column = part.table->find(ngram);
                if (column >= 0) counts.add(static_cast<std::int32_t>(column));
            });
            for (const auto& [column, n] : counts.take()) {
                const float count = static_cast<float>(n);
                weights_.push_back((sublinear ? std::log(count) + 1 : count) * part.idf[column]);
                columns_.push_back(part.first + column);
            }
            scale_to_unit_length(begin);
        }
        scale_to_unit_length(0);
    }

    const std::vector<std::int32_t>& columns() const { return columns_; }
    const std::vector<float>& weights() const { return weights_; }

  private:
    void scale_to_unit_length(std::size_t begin) {
        double squared = 0;
        for (std::size_t i = begin; i < weights_.size(); ++i)
            squared += static_cast<double>(weights_[i]) * static_cast<double>(weights_[i]);
        if (squared == 0) return;
        const float length = static_cast<float>(std::sqrt(squared));
        for (std::size_t i = begin; i < weights_.size(); ++i) weights_[i] /= length;
    }

    std::vector<std::int32_t> columns_;
    std::vector<float> weights_;
};

}  // namespace ltls
