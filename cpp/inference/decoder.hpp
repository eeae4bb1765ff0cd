// Decoding: from the edge scores of one or several trellises to the best labels.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "inference/decode_options.hpp"
#include "inference/label_search.hpp"
#include "structure/losses.hpp"
#include "structure/row_groups.hpp"

namespace ltls::LTLS_ISA {

// Finds the best labels of rows of edge scores, and owns the scratch memory for it.
class Decoder {
  public:
    Decoder(const Trellis& trellis, const DecodeOptions& options)
        : trellis_(trellis),
          options_(options),
          loss_(AllLosses::info[options.loss]),
          best_path_only_(options.n_trellises == 1 && options.n_paths == 1),
          viterbi_(trellis),
          log_partitions_(trellis),
          tops_(options.n_trellises),
          path_scores_(options.n_trellises) {
        const bool searches_all = options.n_paths == trellis.n_classes && options.n_trellises > 1;
        if (options.codebooks[0]->buckets() || searches_all) {
            search_ = std::make_unique<LabelSearch>(trellis, options);
            return;
        }
        for (Index r = 0; r < options.n_trellises; ++r)
            best_.push_back(std::make_unique<KBest<float>>(trellis, options.n_paths));
        while (n_slots_ < 4 * options.n_trellises * options.n_paths) n_slots_ *= 2;
        seen_.reserve(n_slots_);
    }

    // Writes the k best labels of every row and their scores, padded with −1 and −∞. They may be in
    // any order unless they have to be sorted, best first. Returns the first row with NaN or +∞, or
    // −1. `bonus` has a number to add to the score of every path of the first trellis, for each
    // row, or is null; it needs labels that share paths.
    Index run(const float* h, Index rows, Index* labels, float* scores, bool sorted = true,
              const float* bonus = nullptr) {
        const Index bad = first_bad_row(h, rows, length());
        if (bad >= 0) return bad;
        const float* g = h;
        if (loss_.decode_scores) g = decode_scores(h, rows);
        if (search_)
            for (Index row = 0; row < rows; ++row)
                search_->run(g + row * length(), bonus_of(bonus, row), labels + row * options_.k,
                             scores + row * options_.k, sorted);
        else if (best_path_only_)
            decode_best(g, rows, labels, scores);
        else
            for (Index row = 0; row < rows; ++row)
                decode_row(g + row * length(), labels + row * options_.k,
                           scores + row * options_.k);
        if (loss_.normalizes) subtract_log_partitions(h, rows, options_.k, scores);
        return -1;
    }

    // Writes the scores of `count` given labels of every row: the sums over all trellises; −∞ for
    // label −1 and labels without a path. Returns the first row with NaN or +∞, or −1.
    Index score(const float* h, Index rows, Index count, const Index* labels, float* scores,
                const float* bonus = nullptr) {
        const Index bad = first_bad_row(h, rows, length());
        if (bad >= 0) return bad;
        const float* g = loss_.decode_scores ? decode_scores(h, rows) : h;
        // All paths are scored as fast as a fraction of them is, one by one.
        const bool all_paths = trellis_.n_classes <= paths_per_label * count;
        if (all_paths) {
            all_scores_.reserve(trellis_.n_classes);
            scratch_.reserve(2 * trellis_.n_classes);
        }
        for (Index row = 0; row < rows; ++row)
            for (Index r = 0; r < options_.n_trellises; ++r) {
                const float* const edges = g + row * length() + r * options_.block;
                if (all_paths) all_path_scores(trellis_, edges, scratch_, all_scores_);
                for (Index j = row * count; j < (row + 1) * count; ++j) {
                    if (r == 0) scores[j] = 0;
                    const Index path =
                        labels[j] < 0 ? -1 : options_.codebooks[r]->path_of(labels[j]);
                    if (path < 0)
                        scores[j] = minus_infinity<float>;
                    else
                        scores[j] +=
                            (all_paths ? all_scores_[path] : path_score(trellis_, edges, path)) +
                            (bonus && r == 0 ? bonus_of(bonus, row)[path] : 0.0f);
                }
            }
        if (loss_.normalizes) subtract_log_partitions(h, rows, count, scores);
        return -1;
    }

  private:
    static constexpr Index paths_per_label = 4;

    const float* decode_scores(const float* h, Index rows) {
        decode_scores_.reserve(rows * length());
        for (Index block = 0; block < rows * options_.n_trellises; ++block)
            loss_.decode_scores(trellis_, h + block * options_.block,
                                decode_scores_ + block * options_.block);
        return decode_scores_;
    }

    Index length() const { return options_.n_trellises * options_.block; }
    const float* bonus_of(const float* bonus, Index row) const {
        return bonus ? bonus + row * trellis_.n_classes : nullptr;
    }
    Index label_of(Index r, Index path) const {
        const Index label = path < 0 ? -1 : options_.codebooks[r]->label_of(path);
        return label < options_.n_labels ? label : -1;
    }

    // The label of the best path, for a single trellis.
    void decode_best(const float* g, Index rows, Index* labels, float* scores) {
        const auto use = [&]<int Lanes>(Index row, const float* edge_scores,
                                        const Values<Max, float, Lanes>& values) {
            Index paths[Lanes];
            trace<Lanes>(trellis_, edge_scores, values, paths);
            for (int lane = 0; lane < Lanes; ++lane) {
                Index* const out = labels + (row + lane) * options_.k;
                float* const out_scores = scores + (row + lane) * options_.k;
                clear(out, out_scores);
                out[0] = label_of(0, paths[lane]);
                if (out[0] >= 0) out_scores[0] = values.total()[lane];
            }
        };
        viterbi_.each(g, length(), rows, use);
    }

    // The labels of the best paths of every trellis, ranked by their sums over all trellises.
    void decode_row(const float* g, Index* labels, float* scores) {
        const Index n_trellises = options_.n_trellises;
        clear(labels, scores);
        for (Index i = 0; i < n_slots_; ++i) seen_[i] = -1;
        highest_ = 0;
        for (Index r = 0; r < n_trellises; ++r) {
            forward<1, KBest<float>, float>(trellis_, g + r * options_.block, *best_[r]);
            highest_ += tops_[r] = best_[r]->top();
        }
        for (Index r = 0; r < n_trellises; ++r)
            for (Index i = 0; i < options_.n_paths; ++i) {
                const auto* entry = best_[r]->next();
                // Later paths do not score higher in this trellis.
                if (!entry || can_prune(tops_[r] - entry->score, scores)) break;
                const Index label = label_of(r, entry->path);
                if (label < 0) continue;
                if (n_trellises == 1)
                    insert(label, entry->score, labels, scores);
                else if (is_new(label))
                    insert(label, label_score(g, label, r, entry->score, scores), labels, scores);
            }
    }

    // Whether a label whose score is this far below the best paths of some trellises cannot be
    // among the k best. Allows for rounding errors.
    bool can_prune(float gap, const float* scores) const {
        const float bound = highest_ - gap;
        return bound + 1e-5f * (std::fabs(highest_) + gap) < scores[options_.k - 1];
    }

    // The sum of a label's path scores over all trellises, one of which is known; −∞ if the label
    // can be pruned.
    float label_score(const float* g, Index label, Index known, float known_score,
                      const float* scores) {
        float gap = tops_[known] - known_score;
        for (Index r = 0; r < options_.n_trellises; ++r) {
            if (r == known) {
                path_scores_[r] = known_score;
                continue;
            }
            const Index path = options_.codebooks[r]->path_of(label);
            if (path < 0) return minus_infinity<float>;
            path_scores_[r] = path_score(trellis_, g + r * options_.block, path);
            gap += tops_[r] - path_scores_[r];
            if (can_prune(gap, scores)) return minus_infinity<float>;
        }
        float sum = 0;
        for (Index r = 0; r < options_.n_trellises; ++r) sum += path_scores_[r];
        return sum;
    }

    void subtract_log_partitions(const float* h, Index rows, Index count, float* scores) {
        offsets_.reserve(rows);
        for (Index row = 0; row < rows; ++row) offsets_[row] = 0;
        for (Index r = 0; r < options_.n_trellises; ++r)
            log_partitions_.each(
                h + r * options_.block, length(), rows,
                [&]<int Lanes>(Index row, const float*, const Values<Log, float, Lanes>& values) {
                    for (int lane = 0; lane < Lanes; ++lane)
                        offsets_[row + lane] += values.total()[lane];
                });
        for (Index row = 0; row < rows; ++row)
            for (Index i = 0; i < count; ++i) scores[row * count + i] -= offsets_[row];
    }

    // Adds a candidate to a hash table with linear probing; returns whether it is new.
    bool is_new(Index label) {
        const std::uint64_t hash = static_cast<std::uint64_t>(label) * 0x9e3779b97f4a7c15;
        for (Index slot = static_cast<Index>(hash >> 32) & (n_slots_ - 1);;
             slot = (slot + 1) & (n_slots_ - 1)) {
            if (seen_[slot] == label) return false;
            if (seen_[slot] < 0) {
                seen_[slot] = label;
                return true;
            }
        }
    }

    void clear(Index* labels, float* scores) const {
        for (Index i = 0; i < options_.k; ++i) {
            labels[i] = -1;
            scores[i] = minus_infinity<float>;
        }
    }

    // Inserts into the sorted list of the k best; ties keep the order of insertion.
    void insert(Index label, float score, Index* labels, float* scores) const {
        Index i = options_.k;
        if (!(score > scores[i - 1])) return;
        for (--i; i > 0 && score > scores[i - 1]; --i) {
            labels[i] = labels[i - 1];
            scores[i] = scores[i - 1];
        }
        labels[i] = label;
        scores[i] = score;
    }

    const Trellis& trellis_;
    const DecodeOptions options_;
    const LossInfo& loss_;
    const bool best_path_only_;
    std::unique_ptr<LabelSearch> search_;  // null if list Viterbi finds the candidates
    std::vector<std::unique_ptr<KBest<float>>> best_;
    RowGroups<Max, float> viterbi_;
    RowGroups<Log, float> log_partitions_;
    Buffer<float> decode_scores_, offsets_, tops_, path_scores_, all_scores_, scratch_;
    float highest_ = 0;  // sum of the best scores of all trellises
    Buffer<Index> seen_;
    Index n_slots_ = 16;
};

}  // namespace ltls::LTLS_ISA
