// The reranker with label weights: score(x, label) = x·w of the label, for a few candidates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/buffer.hpp"
#include "linear/features.hpp"
#include "linear/rows.hpp"

namespace ltls::LTLS_ISA {

// Scores the candidates of rows and sorts them. It owns scratch memory.
class LabelScorer {
  public:
    LabelScorer(const LabelWeights& weights, Index n_candidates)
        : weights_(weights),
          n_candidates_(n_candidates),
          place_(weights.n_labels),
          sums_(n_candidates),
          order_(n_candidates),
          old_labels_(n_candidates),
          new_scores_(n_candidates) {
        for (Index label = 0; label < weights.n_labels; ++label) place_[label] = 0;
    }

    // Replaces every score b by −max(0, 1 − s)³ + weight · b, with s = x·w of the label, and sorts
    // the candidates, best first. Ties keep their order. `labels` may end with −1s.
    void rerank(const Rows& row, float weight, Index* labels, float* scores) {
        Index count = 0;
        while (count < n_candidates_ && labels[count] >= 0) ++count;
        if (weights_.wide)
            add_up<std::uint32_t>(row, labels, count);
        else
            add_up<std::uint16_t>(row, labels, count);
        for (Index i = 0; i < count; ++i) {
            const float gap = 1.0f - sums_[i], shortfall = gap > 0 ? gap : 0.0f;
            new_scores_[i] = weight * scores[i] - shortfall * shortfall * shortfall;
            order_[i] = static_cast<std::int32_t>(i);
            old_labels_[i] = labels[i];
        }
        const float* const by = new_scores_;
        std::int32_t* const order = order_;
        std::sort(order, order + count, [by](std::int32_t a, std::int32_t b) {
            return by[a] != by[b] ? by[a] > by[b] : a < b;
        });
        for (Index i = 0; i < count; ++i) {
            labels[i] = old_labels_[order_[i]];
            scores[i] = new_scores_[order_[i]];
        }
    }

  private:
    // Writes s of every candidate. If all labels have a weight for a feature, those of the
    // candidates are looked up; if many have one, they are searched; else all are read.
    template <class Label>
    void add_up(const Rows& row, const Index* labels, Index count) {
        for (Index i = 0; i < count; ++i) sums_[i] = 0;
        for (Index i = 0; i < count; ++i) place_[labels[i]] = static_cast<std::int32_t>(i + 1);
        const Label* const all = static_cast<const Label*>(weights_.labels);
        for (Index entry = 0; entry < row.size(); ++entry) {
            const Index feature = row.feature(entry);
            const Index begin = weights_.row_ptr[feature], end = weights_.row_ptr[feature + 1];
            const float factor = row.value(entry) * weights_.scales[feature];
            const auto add = [&](Index i, Index at) {
                sums_[i] += factor * static_cast<float>(weights_.values[at]);
            };
            if (end - begin == weights_.n_labels)
                for (Index i = 0; i < count; ++i) add(i, begin + labels[i]);
            else if (end - begin > steps_per_search * count)
                for (Index i = 0; i < count; ++i) {
                    const Index at = lower_bound(all, begin, end, labels[i]);
                    if (at < end && all[at] == static_cast<Label>(labels[i])) add(i, at);
                }
            else
                for (Index at = begin; at < end; ++at)
                    if (const std::int32_t place = place_[all[at]]) add(place - 1, at);
        }
        for (Index i = 0; i < count; ++i) place_[labels[i]] = 0;
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

    static constexpr Index steps_per_search = 16;  // a search costs as much as so many entries

    const LabelWeights weights_;
    const Index n_candidates_;
    Buffer<std::int32_t> place_;  // of the candidates, from 1; 0 for other labels
    Buffer<float> sums_;
    Buffer<std::int32_t> order_;
    Buffer<Index> old_labels_;
    Buffer<float> new_scores_;
};

}  // namespace ltls::LTLS_ISA
