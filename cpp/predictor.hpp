// From the edge scores of rows to their best labels, over one or several trellises.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "losses.hpp"
#include "row_groups.hpp"

namespace ltls::LTLS_ISA {

class Predictor {
  public:
    Predictor(const Trellis& trellis, const Decoding& decoding)
        : trellis_(trellis),
          decoding_(decoding),
          one_path_(decoding.n_trellises == 1 && decoding.n_paths == 1),
          best_one_(trellis),
          log_values_(trellis),
          tops_(decoding.n_trellises),
          path_scores_(decoding.n_trellises) {
        for (Index r = 0; r < decoding.n_trellises; ++r)
            best_.push_back(std::make_unique<KBest<float>>(trellis, decoding.n_paths));
        while (slots_ < 4 * decoding.n_trellises * decoding.n_paths) slots_ *= 2;
        seen_.keep(slots_);
    }

    // Writes the k best labels of every row and their scores, best first; −1 and −∞ where there are
    // fewer. Returns the first row that holds NaN or +∞, or −1.
    Index run(const float* h, Index rows, Index* labels, float* scores) {
        const Index bad = first_bad_row(h, rows, length());
        if (bad >= 0) return bad;
        const float* g = h;
        if (decoding_.loss == Loss::logistic) {
            decoded_.keep(rows * length());
            for (Index block = 0; block < rows * decoding_.n_trellises; ++block)
                logistic_scores(trellis_, h + block * decoding_.block,
                                decoded_ + block * decoding_.block);
            g = decoded_;
        }
        if (one_path_)
            find_one(g, rows, labels, scores);
        else
            for (Index row = 0; row < rows; ++row)
                find(g + row * length(), labels + row * decoding_.k, scores + row * decoding_.k);
        if (decoding_.loss == Loss::softmax) make_log_probabilities(h, rows, scores);
        return -1;
    }

  private:
    Index length() const { return decoding_.n_trellises * decoding_.block; }
    Index label_of(Index r, Index path) const {
        const Index label = path < 0 ? -1 : decoding_.codebooks[r]->label_of(path);
        return label < decoding_.n_labels ? label : -1;
    }

    // The label of the best path of a single trellis.
    void find_one(const float* g, Index rows, Index* labels, float* scores) {
        const auto use = [&]<int Lanes>(Index row, const float* edge_scores,
                                        const Values<Max, float, Lanes>& values) {
            Index paths[Lanes];
            trace<Lanes>(trellis_, edge_scores, values, paths);
            for (int lane = 0; lane < Lanes; ++lane) {
                Index* const out = labels + (row + lane) * decoding_.k;
                float* const out_scores = scores + (row + lane) * decoding_.k;
                clear(out, out_scores);
                out[0] = label_of(0, paths[lane]);
                if (out[0] >= 0) out_scores[0] = values.total()[lane];
            }
        };
        best_one_.each(g, length(), rows, use);
    }

    // The labels of the best paths of every trellis, ranked by their sums over all.
    void find(const float* g, Index* labels, float* scores) {
        const Index n_trellises = decoding_.n_trellises;
        clear(labels, scores);
        for (Index i = 0; i < slots_; ++i) seen_[i] = -1;
        highest_ = 0;
        for (Index r = 0; r < n_trellises; ++r) {
            forward<1, KBest<float>, float>(trellis_, g + r * decoding_.block, *best_[r]);
            highest_ += tops_[r] = best_[r]->top();
        }
        for (Index r = 0; r < n_trellises; ++r)
            for (Index i = 0; i < decoding_.n_paths; ++i) {
                const auto* entry = best_[r]->next();
                // What comes after has no higher score in this trellis.
                if (!entry || hopeless(tops_[r] - entry->score, scores)) break;
                const Index label = label_of(r, entry->path);
                if (label < 0) continue;
                if (n_trellises == 1)
                    insert(label, entry->score, labels, scores);
                else if (is_new(label))
                    insert(label, total(g, label, r, entry->score, scores), labels, scores);
            }
    }

    // Whether a label that loses so much against the best path of some trellises cannot be among
    // the k best. Sums that rounding makes unsure are not hopeless.
    bool hopeless(float lost, const float* scores) const {
        const float bound = highest_ - lost;
        return bound + 1e-5f * (std::fabs(highest_) + lost) < scores[decoding_.k - 1];
    }

    // The sum over all trellises of the score of a label's path, known for one of them; −∞ if it is
    // hopeless.
    float total(const float* g, Index label, Index known, float known_score, const float* scores) {
        float lost = tops_[known] - known_score;
        for (Index r = 0; r < decoding_.n_trellises; ++r) {
            if (r == known) {
                path_scores_[r] = known_score;
                continue;
            }
            const Index path = decoding_.codebooks[r]->path_of(label);
            if (path < 0) return minus_infinity<float>;
            path_scores_[r] = path_score(trellis_, g + r * decoding_.block, path);
            lost += tops_[r] - path_scores_[r];
            if (hopeless(lost, scores)) return minus_infinity<float>;
        }
        float sum = 0;
        for (Index r = 0; r < decoding_.n_trellises; ++r) sum += path_scores_[r];
        return sum;
    }

    void make_log_probabilities(const float* h, Index rows, float* scores) {
        offsets_.keep(rows);
        for (Index row = 0; row < rows; ++row) offsets_[row] = 0;
        for (Index r = 0; r < decoding_.n_trellises; ++r)
            log_values_.each(
                h + r * decoding_.block, length(), rows,
                [&]<int Lanes>(Index row, const float*, const Values<Log, float, Lanes>& values) {
                    for (int lane = 0; lane < Lanes; ++lane)
                        offsets_[row + lane] += values.total()[lane];
                });
        for (Index row = 0; row < rows; ++row)
            for (Index i = 0; i < decoding_.k; ++i) scores[row * decoding_.k + i] -= offsets_[row];
    }

    // Whether a candidate comes for the first time: a hash table with linear probing.
    bool is_new(Index label) {
        const std::uint64_t hash = static_cast<std::uint64_t>(label) * 0x9e3779b97f4a7c15;
        for (Index slot = static_cast<Index>(hash >> 32) & (slots_ - 1);;
             slot = (slot + 1) & (slots_ - 1)) {
            if (seen_[slot] == label) return false;
            if (seen_[slot] < 0) {
                seen_[slot] = label;
                return true;
            }
        }
    }

    void clear(Index* labels, float* scores) const {
        for (Index i = 0; i < decoding_.k; ++i) {
            labels[i] = -1;
            scores[i] = minus_infinity<float>;
        }
    }

    // Keeps the k best in order; of equal ones the first that came stays ahead.
    void insert(Index label, float score, Index* labels, float* scores) const {
        Index i = decoding_.k;
        if (!(score > scores[i - 1])) return;
        for (--i; i > 0 && score > scores[i - 1]; --i) {
            labels[i] = labels[i - 1];
            scores[i] = scores[i - 1];
        }
        labels[i] = label;
        scores[i] = score;
    }

    const Trellis& trellis_;
    const Decoding decoding_;
    const bool one_path_;
    std::vector<std::unique_ptr<KBest<float>>> best_;
    RowGroups<Max, float> best_one_;
    RowGroups<Log, float> log_values_;
    Buffer<float> decoded_, offsets_, tops_, path_scores_;
    float highest_ = 0;  // the sum of the trellises' best scores
    Buffer<Index> seen_;
    Index slots_ = 16;
};

}  // namespace ltls::LTLS_ISA
