// The search for the best labels where labels share paths. There are far fewer paths than labels,
// so all of them are scored.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/buffer.hpp"
#include "inference/decode_options.hpp"
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
// of every trellis, ranked by the sum of their path scores over all trellises.
class BucketSearch {
  public:
    BucketSearch(const Trellis& trellis, const DecodeOptions& options)
        : trellis_(trellis),
          options_(options),
          path_scores_(options.n_trellises * trellis.n_classes),
          scratch_(2 * trellis.n_classes),
          paths_(options.n_paths),
          candidates_(options.n_labels),
          seen_(options.n_labels),
          label_paths_(options.n_trellises) {
        for (Index r = 0; r < options.n_trellises; ++r)
            label_paths_[r] = options.codebooks[r]->buckets()->paths;
        for (Index label = 0; label < options.n_labels; ++label) seen_[label] = 0;
    }

    // Writes the k best labels and their scores, best first, padded with −1 and −∞.
    void run(const float* g, Index* labels, float* scores) {
        for (Index r = 0; r < options_.n_trellises; ++r)
            all_path_scores(trellis_, g + r * options_.block, scratch_,
                            path_scores_ + r * trellis_.n_classes);
        if (++row_ == 0) {  // the counter overflowed
            for (Index label = 0; label < options_.n_labels; ++label) seen_[label] = 0;
            row_ = 1;
        }
        Index count = 0;
        for (Index r = 0; r < options_.n_trellises; ++r) count = add_candidates(r, count);
        const Index kept = count < options_.k ? count : options_.k;
        const auto better = [](const Candidate& a, const Candidate& b) {
            return a.score != b.score ? a.score > b.score : a.label < b.label;
        };
        Candidate* const all = candidates_;
        if (kept < count) std::nth_element(all, all + kept, all + count, better);
        std::sort(all, all + kept, better);
        for (Index i = 0; i < options_.k; ++i) {
            labels[i] = i < kept ? all[i].label : -1;
            scores[i] = i < kept ? all[i].score : minus_infinity<float>;
        }
    }

  private:
    struct Candidate {
        float score;
        std::int32_t label;
    };

    // Adds the labels of the best paths of a trellis to the candidates. Returns their number.
    Index add_candidates(Index r, Index count) {
        const float* const scores = path_scores_ + r * trellis_.n_classes;
        Index n_paths = 0;  // so far, sorted
        for (Index path = 0; path < trellis_.n_classes; ++path) {
            if (n_paths == options_.n_paths && !(scores[path] > scores[paths_[n_paths - 1]]))
                continue;
            Index place = n_paths < options_.n_paths ? n_paths++ : n_paths - 1;
            for (; place > 0 && scores[path] > scores[paths_[place - 1]]; --place)
                paths_[place] = paths_[place - 1];
            paths_[place] = path;
        }
        const Buckets& buckets = *options_.codebooks[r]->buckets();
        for (Index i = 0; i < n_paths; ++i)
            for (Index at = buckets.start[paths_[i]]; at < buckets.start[paths_[i] + 1]; ++at) {
                const Index label = buckets.labels[at];
                if (label >= options_.n_labels || seen_[label] == row_) continue;
                seen_[label] = row_;
                candidates_[count++] = {score_of(label), static_cast<std::int32_t>(label)};
            }
        return count;
    }

    float score_of(Index label) const {
        float sum = 0;
        for (Index r = 0; r < options_.n_trellises; ++r)
            sum += path_scores_[r * trellis_.n_classes + label_paths_[r][label]];
        return sum;
    }

    const Trellis& trellis_;
    const DecodeOptions options_;
    Buffer<float> path_scores_, scratch_;
    Buffer<Index> paths_;
    Buffer<Candidate> candidates_;
    Buffer<std::uint32_t> seen_;  // the last row that had a label as a candidate
    Buffer<const Index*> label_paths_;
    std::uint32_t row_ = 0;
};

}  // namespace ltls::LTLS_ISA
