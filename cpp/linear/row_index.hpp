// An index of rows, for the nearest ones of another row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/buffer.hpp"
#include "linear/features.hpp"
#include "linear/integer_row.hpp"

namespace ltls {

// Rows by feature, in blocks of 2¹⁶: the rows of block b that have feature f are entries
// ptr[b · (n_features + 1) + f] … of `rows` and `values`, values of unit-length rows times 127.
struct RowIndex {
    static constexpr Index block = 1 << 16;
    const Index* ptr;
    const std::uint16_t* rows;
    const std::int8_t* values;
    const Index* counts;           // rows that have a feature
    const float* inverse_lengths;  // of the rows
    Index n_blocks;
};

}  // namespace ltls

namespace ltls::LTLS_ISA {

// Finds the rows with the largest cosines. Rows that share the rarest features are the candidates:
// common features would take most of the time and tell little. Candidates are then compared by all
// features. It owns scratch memory, so each thread needs one.
class NearestRows {
  public:
    NearestRows(const SparseRows& rows, const RowIndex& index, Index k)
        : rows_(rows),
          index_(index),
          k_(k),
          n_candidates_(candidates_per_row * k > least_candidates ? candidates_per_row * k
                                                                  : least_candidates),
          n_chunks_(index.n_blocks * (RowIndex::block / lanes)),
          sums_(n_chunks_ * lanes),
          highest_(n_chunks_),
          values_(rows.n_features) {
        for (Index f = 0; f < rows.n_features; ++f) values_[f] = 0;
        for (Index i = 0; i < n_chunks_ * lanes; ++i) sums_[i] = 0;
    }

    // Writes the k nearest rows of row i and their cosines, best first; −1 and 0 if there are
    // fewer.
    void run(const Rows& x, Index i, Index* nearest, float* cosines) {
        row_.load(x, i, rows_.n_features);
        choose_features();
        for (Index block = 0; block < index_.n_blocks; ++block) add_up(block);
        collect();
        compare_all_features();
        const Index found = count_ < k_ ? count_ : k_;
        Candidate* const all = candidates_;
        std::partial_sort(all, all + found, all + count_, ranks_before);
        for (Index j = 0; j < k_; ++j) {
            const bool exists = j < found && all[j].score > 0;
            nearest[j] = exists ? all[j].row : -1;
            cosines[j] = exists ? all[j].score : 0.0f;
        }
    }

  private:
    struct Candidate {
        float score;
        std::int32_t row;
    };
    struct Query {
        Index feature;
        std::int16_t value;
    };
    static constexpr Index lanes = 64, candidates_per_row = 3, least_candidates = 64;
    static constexpr Index least_work = 1 << 14,
                           work_share = 16;  // postings: so many, or rows / 16

    static bool ranks_before(const Candidate& a, const Candidate& b) {
        return a.score != b.score ? a.score > b.score : a.row < b.row;
    }

    // The rarest features of the row, as integers, until reading their rows is work enough.
    void choose_features() {
        double squares = 0;
        for (Index j = 0; j < row_.size(); ++j)
            squares += static_cast<double>(row_.value(j)) * static_cast<double>(row_.value(j));
        inverse_length_ = squares > 0 ? 1 / std::sqrt(squares) : 0;
        query_.reserve(row_.size());
        n_query_ = 0;
        for (Index j = 0; j < row_.size(); ++j) {
            const double value = 128 * static_cast<double>(row_.value(j)) * inverse_length_;
            const auto rounded = static_cast<std::int16_t>(std::nearbyint(value));
            if (rounded != 0) query_[n_query_++] = {row_.feature(j), rounded};
        }
        Query* const all = query_;
        const Index* const counts = index_.counts;
        std::sort(all, all + n_query_, [counts](const Query& a, const Query& b) {
            return counts[a.feature] != counts[b.feature] ? counts[a.feature] < counts[b.feature]
                                                          : a.feature < b.feature;
        });
        const Index share = rows_.n_rows / work_share;
        const Index most = share > least_work ? share : least_work;
        Index work = 0, used = 0;
        while (used < n_query_ && (used == 0 || work + counts[all[used].feature] <= most))
            work += counts[all[used++].feature];
        n_query_ = used;
    }

    // Adds up what the rows of a block have in common with the row, roughly.
    void add_up(Index block) {
        const Index* const ptr = index_.ptr + block * (rows_.n_features + 1);
        std::int16_t* const sums = sums_ + block * RowIndex::block;
        for (Index j = 0; j < n_query_; ++j) {
            const auto value = query_[j].value;
            for (Index at = ptr[query_[j].feature]; at < ptr[query_[j].feature + 1]; ++at)
                sums[index_.rows[at]] =
                    static_cast<std::int16_t>(sums[index_.rows[at]] + value * index_.values[at]);
        }
    }

    // Finds the rows with the largest sums. At least as many rows as there are candidates reach the
    // bound: the highest ones of so many chunks do.
    void collect() {
        const Index n_chunks = (rows_.n_rows + lanes - 1) / lanes;
        Index n_used = 0;
        std::int16_t bound = 1, most = 1;
        for (Index chunk = 0; chunk < n_chunks; ++chunk) {
            const std::int16_t* const sums = sums_ + chunk * lanes;
            std::int16_t highest = 0;
            for (Index j = 0; j < lanes; ++j) highest = sums[j] > highest ? sums[j] : highest;
            highest_[chunk] = highest;
            most = highest > most ? highest : most;
            n_used += highest > 0;
        }
        // By bisection, since counting is much faster than sorting.
        while (n_used > n_candidates_ && bound < most) {
            const auto middle = static_cast<std::int16_t>((bound + most + 1) / 2);
            const std::int16_t* const highest = highest_;
            std::int32_t reached = 0;
            for (Index chunk = 0; chunk < n_chunks; ++chunk) reached += highest[chunk] >= middle;
            if (reached < n_candidates_)
                most = static_cast<std::int16_t>(middle - 1);
            else
                bound = middle;
        }
        candidates_.reserve(n_used * lanes + 1);
        count_ = 0;
        for (Index chunk = 0; chunk < n_chunks; ++chunk) {
            std::int16_t* const sums = sums_ + chunk * lanes;
            if (highest_[chunk] >= bound)
                for (Index j = 0; j < lanes; ++j) {
                    candidates_[count_] = {static_cast<float>(sums[j]),
                                           static_cast<std::int32_t>(chunk * lanes + j)};
                    count_ += sums[j] >= bound;
                }
            for (Index j = 0; j < lanes; ++j) sums[j] = 0;
        }
        if (count_ <= n_candidates_) return;
        Candidate* const all = candidates_;
        std::nth_element(all, all + n_candidates_ - 1, all + count_, ranks_before);
        count_ = n_candidates_;
    }

    // Replaces the scores of the candidates by their cosines.
    void compare_all_features() {
        Candidate* const all = candidates_;
        for (Index j = 0; j < row_.size(); ++j) values_[row_.feature(j)] = row_.value(j);
        for (Index j = 0; j < count_; ++j) {
            const Index row = all[j].row;
            if (j + ahead < count_) prefetch_row(all[j + ahead].row);
            std::int64_t sum = 0;
            for (Index at = rows_.ptr[row]; at < rows_.ptr[row + 1]; ++at)
                sum += static_cast<std::int64_t>(values_[rows_.features[at]]) * rows_.values[at];
            all[j].score =
                static_cast<float>(sum) * (static_cast<float>(inverse_length_) *
                                           (rows_.scales[row] * index_.inverse_lengths[row]));
        }
        for (Index j = 0; j < row_.size(); ++j) values_[row_.feature(j)] = 0;
    }

    // Rows are anywhere in memory: reading their features would wait for each.
    LTLS_INLINE void prefetch_row(Index row) const {
        const Index at = rows_.ptr[row];
        prefetch(rows_.features + at);
        prefetch(rows_.values + at);
        prefetch(rows_.scales + row);
        prefetch(index_.inverse_lengths + row);
    }
    static constexpr Index ahead = 8;  // rows

    const SparseRows rows_;
    const RowIndex index_;
    const Index k_, n_candidates_, n_chunks_;
    IntegerRow row_;
    Buffer<Query> query_;
    Index n_query_ = 0;
    double inverse_length_ = 0;
    Buffer<std::int16_t> sums_;     // of all rows
    Buffer<std::int16_t> highest_;  // of every chunk of them
    Buffer<std::int32_t> values_;   // of the row, by feature
    Buffer<Candidate> candidates_;
    Index count_ = 0;
};

}  // namespace ltls::LTLS_ISA
