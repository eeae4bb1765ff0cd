// Scores of candidates by label weights: −max(0, 1 − s)³ + weight · b, where s = x·w of the label
// and b is its score so far.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/buffer.hpp"
#include "linear/features.hpp"
#include "linear/rows.hpp"

namespace ltls::LTLS_ISA {

// Scores the candidates of rows, and sorts them or selects the best ones. It owns scratch memory.
class LabelScorer {
  public:
    LabelScorer(const LabelWeights& weights, Index n_candidates)
        : weights_(weights),
          n_candidates_(n_candidates),
          sums_(weights.n_labels),
          scored_(n_candidates) {
        for (Index label = 0; label < weights.n_labels; ++label) sums_[label] = 0;
    }

    // Replaces the scores of the candidates of row i and sorts them, best first. Ties keep their
    // order. `labels` may end with −1s.
    void rerank(const Rows& rows, Index i, float weight, Index* labels, float* scores) {
        const Index count = score(rows, i, weight, labels, scores);
        std::sort(begin(), begin() + count, [](const Scored& a, const Scored& b) {
            return a.score != b.score ? a.score > b.score : a.place < b.place;
        });
        write(count, labels, scores);
    }

    // Writes the k best of the candidates of row i, which may be in any order. Ties go to the
    // higher score before, then to the smaller label. If some of the candidates are missing, only
    // writes −1s.
    void select(const Rows& rows, Index i, float weight, const Index* labels, const float* scores,
                Index k, Index* best_labels, float* best_scores) {
        const Index count = score(rows, i, weight, labels, scores);
        if (count < n_candidates_) {
            for (Index j = 0; j < k; ++j) best_labels[j] = -1;
            return;
        }
        std::partial_sort(begin(), begin() + k, begin() + count,
                          [scores](const Scored& a, const Scored& b) {
                              if (a.score != b.score) return a.score > b.score;
                              const float before = scores[a.place], other = scores[b.place];
                              return before != other ? before > other : a.label < b.label;
                          });
        write(k, best_labels, best_scores);
    }

  private:
    struct Scored {
        float score;
        std::int32_t place;
        Index label;
    };

    Scored* begin() const { return scored_; }

    void write(Index count, Index* labels, float* scores) const {
        for (Index j = 0; j < count; ++j) {
            labels[j] = scored_[j].label;
            scores[j] = scored_[j].score;
        }
    }

    // Scores the candidates up to the first −1. Returns their number.
    LTLS_ONE_COPY Index score(const Rows& rows, Index i, float weight, const Index* labels,
                              const float* scores) {
        Index count = 0;
        while (count < n_candidates_ && labels[count] >= 0) ++count;
        if (weights_.wide)
            add_up<std::uint32_t>(rows, i, labels, count);
        else
            add_up<std::uint16_t>(rows, i, labels, count);
        for (Index j = 0; j < count; ++j) {
            const float gap = 1.0f - sums_[labels[j]], shortfall = gap > 0 ? gap : 0.0f;
            scored_[j] = {weight * scores[j] - shortfall * shortfall * shortfall,
                          static_cast<std::int32_t>(j), labels[j]};
        }
        return count;
    }

    // Sums up s of the candidates. If many labels have a weight for a feature, those of the
    // candidates are looked up or searched. Otherwise the weights of all labels are added: the sums
    // of other labels are never read, and a test would take longer than the addition.
    template <class Label>
    void add_up(const Rows& rows, Index i, const Index* labels, Index count) {
        for (Index j = 0; j < count; ++j) sums_[labels[j]] = 0;
        const Label* const all = static_cast<const Label*>(weights_.labels);
        float* const sums = sums_;
        for (Index entry = rows.begin(i); entry < rows.end(i); ++entry) {
            const Index feature = rows.feature(entry);
            const Index begin = weights_.row_ptr[feature], end = weights_.row_ptr[feature + 1];
            const float factor = rows.value(entry) * weights_.scales[feature];
            const auto add = [&](Index label, Index at) {
                sums[label] += factor * static_cast<float>(weights_.values[at]);
            };
            if (end - begin == weights_.n_labels)
                for (Index j = 0; j < count; ++j) add(labels[j], begin + labels[j]);
            else if (end - begin > steps_per_search * count)
                for (Index j = 0; j < count; ++j) {
                    const Index at = lower_bound(all, begin, end, labels[j]);
                    if (at < end && all[at] == static_cast<Label>(labels[j])) add(labels[j], at);
                }
            else
                for (Index at = begin; at < end; ++at) add(all[at], at);
        }
    }

    template <class Label>
    static Index lower_bound(const Label* all, Index first, Index last, Index label) {
        while (first < last) {
            const Index middle = first + (last - first) / 2;
            if (static_cast<Index>(all[middle]) < label)
                first = middle + 1;
            else
                last = middle;
        }
        return first;
    }

    static constexpr Index steps_per_search = 64;  // a search costs as much as so many entries

    const LabelWeights weights_;
    const Index n_candidates_;
    Buffer<float> sums_;  // s of the candidates; of other labels, what an earlier row left there
    Buffer<Scored> scored_;
};

}  // namespace ltls::LTLS_ISA
