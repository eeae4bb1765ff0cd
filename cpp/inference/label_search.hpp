// The search for the best labels where labels share paths, or where all paths are scored.
#pragma once

#include <cstdint>
#include <memory>

#include "core/buffer.hpp"
#include "inference/best_labels.hpp"
#include "inference/decode_options.hpp"
#include "structure/dynamic_program.hpp"
#include "structure/losses.hpp"
#include "structure/trellis.hpp"

namespace ltls::LTLS_ISA {

// Writes the sums of edge scores over every path. `scratch` has room for two entries per path.
LTLS_INLINE void all_path_scores(const Trellis& trellis, const float* g, float* scratch,
                                 float* scores) {
    if (trellis.n_slices == 0) {
        scores[0] = 0;
        return;
    }
    // Sums over the edges up to a slice, by Σ state · widthˢˡⁱᶜᵉ.
    float *prefix = scratch, *next = scratch + trellis.n_classes;
    for (Index state = 0; state < trellis.width; ++state) prefix[state] = g[state];
    for (int slice = 0; slice < trellis.n_slices; ++slice) {
        const Index block = trellis.power[slice];
        for (Index state = 0; state < trellis.digits[slice]; ++state) {
            const float exit = g[trellis.exit_edge[slice] + state];
            float* const out = scores + trellis.first_path[slice] + state * block;
            for (Index i = 0; i < block; ++i) out[i] = prefix[state * block + i] + exit;
        }
        const Index states = trellis.states(slice + 1);
        for (Index to = 0; to < states; ++to)
            for (Index state = 0; state < trellis.width; ++state) {
                const float edge = g[trellis.transition(slice + 1) + state * states + to];
                float* const out = next + (to * trellis.width + state) * block;
                for (Index i = 0; i < block; ++i) out[i] = prefix[state * block + i] + edge;
            }
        float* const old = prefix;
        prefix = next;
        next = old;
    }
    const Index block = trellis.power[trellis.n_slices];
    for (Index state = 0; state < trellis.digits[trellis.n_slices]; ++state) {
        const float exit = g[trellis.exit_edge[trellis.n_slices] + state];
        float* const out = scores + trellis.first_path[trellis.n_slices] + state * block;
        for (Index i = 0; i < block; ++i) out[i] = prefix[state * block + i] + exit;
    }
}

// Finds the best labels of rows of decode scores. The candidates are the labels of the best paths
// of every trellis, ranked by the sum of their path scores over all trellises. If the best paths
// are all paths, all labels are scored, one after the other. Otherwise the best paths are found by
// scoring all of them, or where that are too many, by list Viterbi.
class LabelSearch {
  public:
    LabelSearch(const Trellis& trellis, const DecodeOptions& options)
        : trellis_(trellis),
          options_(options),
          all_labels_(options.n_paths == trellis.n_classes),
          lists_paths_(!all_labels_ && trellis.n_classes > most_scanned),
          n_blocks_((options.n_labels + block - 1) / block),
          path_scores_(lists_paths_ ? 0 : options.n_trellises * (trellis.n_classes + 1)),
          scratch_(lists_paths_ ? 0 : 2 * trellis.n_classes),
          best_paths_(all_labels_ || lists_paths_ ? 1 : options.n_paths, block),
          best_labels_(options.k < options.n_labels ? options.k : options.n_labels + 1, 12 * block),
          paths_(all_labels_ ? options.n_trellises * n_blocks_ * block : 0),
          seen_(all_labels_ ? 0 : options.n_labels),
          label_paths_(options.n_trellises) {
        if (all_labels_) {
            list_paths();
            return;
        }
        if (lists_paths_) lists_ = std::make_unique<KBest<float>>(trellis, options.n_paths);
        for (Index r = 0; r < options.n_trellises; ++r)
            label_paths_[r] = options.codebooks[r]->buckets()->paths;
        for (Index label = 0; label < options.n_labels; ++label) seen_[label] = 0;
    }

    // Writes the k best labels and their scores, padded with −1 and −∞; best first, if asked for.
    // What `bonus` has for a path, unless it is null, is added to its score in the first trellis:
    // not where list Viterbi finds the paths.
    void run(const float* g, const float* bonus, Index* labels, float* scores, bool sorted) {
        g_ = g;
        for (Index r = 0; r < options_.n_trellises && !lists_paths_; ++r) {
            all_path_scores(trellis_, edge_scores(r), scratch_, scores_of(r));
            for (Index path = 0; bonus && r == 0 && path < trellis_.n_classes; ++path)
                scores_of(r)[path] += bonus[path];
            scores_of(r)[trellis_.n_classes] = minus_infinity<float>;  // of labels without a path
        }
        best_labels_.clear();
        if (all_labels_)
            add_all_labels();
        else
            add_labels_of_best_paths();
        const Index count = best_labels_.finish();
        if (sorted) best_labels_.sort();
        for (Index i = 0; i < options_.k; ++i) {
            labels[i] = i < count ? best_labels_[i].label : -1;
            scores[i] = i < count ? best_labels_[i].score : minus_infinity<float>;
        }
    }

  private:
    static constexpr Index block = BestLabels::block;

    LTLS_INLINE const float* edge_scores(Index r) const { return g_ + r * options_.block; }
    LTLS_INLINE float* scores_of(Index r) const {
        return path_scores_ + r * (trellis_.n_classes + 1);
    }

    // Looks up the paths of all labels once. There is no label behind the last ones.
    void list_paths() {
        for (Index r = 0; r < options_.n_trellises; ++r)
            for (Index label = 0; label < n_blocks_ * block; ++label) {
                const Index path =
                    label < options_.n_labels ? options_.codebooks[r]->path_of(label) : -1;
                paths_[r * n_blocks_ * block + label] =
                    static_cast<std::int32_t>(path < 0 ? trellis_.n_classes : path);
            }
    }

    void add_all_labels() {
        float sums[block];
        for (Index first = 0; first < n_blocks_ * block; first += block) {
            for (Index r = 0; r < options_.n_trellises; ++r) {
                const float* const scores = scores_of(r);
                const std::int32_t* const paths = paths_ + r * n_blocks_ * block + first;
                if (r == 0)
                    for (Index i = 0; i < block; ++i) sums[i] = scores[paths[i]];
                else
                    for (Index i = 0; i < block; ++i) sums[i] += scores[paths[i]];
            }
            best_labels_.add_block(sums, first);
        }
    }

    void add_labels_of_best_paths() {
        if (++row_ == 0) {  // the counter overflowed
            for (Index label = 0; label < options_.n_labels; ++label) seen_[label] = 0;
            row_ = 1;
        }
        for (Index r = 0; r < options_.n_trellises; ++r) {
            const Buckets& buckets = *options_.codebooks[r]->buckets();
            if (lists_paths_) {
                forward<1, KBest<float>, float>(trellis_, edge_scores(r), *lists_);
                for (Index i = 0; i < options_.n_paths; ++i) {
                    const auto* const entry = lists_->next();
                    if (!entry) break;
                    add_labels_of(buckets, entry->path);
                }
            } else {
                const Index n_paths = scan_paths(scores_of(r));
                for (Index i = 0; i < n_paths; ++i) add_labels_of(buckets, best_paths_[i].label);
            }
        }
    }

    // Finds the best of all paths; returns how many there are.
    Index scan_paths(const float* scores) {
        best_paths_.clear();
        Index path = 0;
        for (; path + block <= trellis_.n_classes; path += block)
            best_paths_.add_block(scores + path, path);
        for (; path < trellis_.n_classes; ++path) best_paths_.add(scores[path], path);
        return best_paths_.finish();
    }

    void add_labels_of(const Buckets& buckets, Index path) {
        for (Index at = buckets.start[path]; at < buckets.start[path + 1]; ++at) {
            const Index label = buckets.labels[at];
            if (label >= options_.n_labels || seen_[label] == row_) continue;
            seen_[label] = row_;
            best_labels_.add(score_of(label), label);
        }
    }

    // Both ways add the edges of a path in the same order.
    float score_of(Index label) const {
        float sum = 0;
        for (Index r = 0; r < options_.n_trellises; ++r) {
            const Index path = label_paths_[r][label];
            sum += lists_paths_ ? path_score(trellis_, edge_scores(r), path) : scores_of(r)[path];
        }
        return sum;
    }

    const Trellis& trellis_;
    const DecodeOptions options_;
    const bool all_labels_, lists_paths_;
    const Index n_blocks_;
    Buffer<float> path_scores_, scratch_;
    BestLabels best_paths_, best_labels_;
    std::unique_ptr<KBest<float>> lists_;  // null if all paths are scored
    const float* g_ = nullptr;             // of the present row
    Buffer<std::int32_t> paths_;           // of all labels in every trellis, if all are scored
    Buffer<std::uint32_t> seen_;           // the last row that had a label as a candidate
    Buffer<const Index*> label_paths_;
    std::uint32_t row_ = 0;
};

}  // namespace ltls::LTLS_ISA
