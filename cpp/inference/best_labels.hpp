// The n best of many scored labels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

#include "core/buffer.hpp"

namespace ltls::LTLS_ISA {

struct ScoredLabel {
    float score;
    std::int32_t label;
};

// Collects the n best of the labels that are added, in any order. Ties go to the smaller label.
class BestLabels {
  public:
    static constexpr Index block = 64;  // labels that are added at a time

    // `room` is how many labels there may be at a time before all but the n best are dropped.
    BestLabels(Index n, Index room)
        : n_(n),
          capacity_(2 * n + room),  // more than n and a block
          scores_(capacity_),
          labels_(capacity_),
          best_(capacity_) {}

    // Scores below `lowest`, −∞ in any case, will be ignored.
    void clear(float lowest = std::numeric_limits<float>::lowest()) {
        count_ = 0;
        lowest_ = lowest;
    }
    float lowest() const { return lowest_; }
    LTLS_INLINE void add(float score, Index label) {
        if (!(score >= lowest_)) return;
        scores_[count_] = score;
        labels_[count_++] = static_cast<std::int32_t>(label);
        if (count_ == capacity_) keep_best();
    }
    // Ignores scores below the n best of some that will be added. Changes their order.
    void expect(float* scores, Index count) {
        if (count < n_) return;
        std::nth_element(scores, scores + n_ - 1, scores + count, std::greater<>());
        lowest_ = std::max(lowest_, scores[n_ - 1]);
    }
    // Adds a block of labels from `first` on, most of which are too low.
    LTLS_INLINE void add_block(const float* scores, Index first) {
        if (!(highest(scores) >= lowest_)) return;
        if (count_ + block >= capacity_) keep_best();
        for (Index i = 0; i < block; ++i) {  // without a branch, which would be guessed wrong
            scores_[count_] = scores[i];
            labels_[count_] = static_cast<std::int32_t>(first + i);
            count_ += scores[i] >= lowest_;
        }
    }
    // Returns the highest of a block of scores.
    LTLS_INLINE static float highest(const float* scores) {
        // Several maxima at a time: the compiler may not reorder a single one.
        float several[lanes];
        for (Index j = 0; j < lanes; ++j) several[j] = scores[j];
        for (Index i = lanes; i < block; i += lanes)
            for (Index j = 0; j < lanes; ++j)
                several[j] = scores[i + j] > several[j] ? scores[i + j] : several[j];
        float highest = several[0];
        for (Index j = 1; j < lanes; ++j) highest = several[j] > highest ? several[j] : highest;
        return highest;
    }

    // Selects the n best. Returns how many there are.
    Index finish() {
        keep_best();
        return count_;
    }
    // After finish():
    void sort() { std::sort(best(), best() + count_, ranks_before); }
    const ScoredLabel& operator[](Index i) const { return best_[i]; }

  private:
    static constexpr Index lanes = 16;

    static bool ranks_before(const ScoredLabel& a, const ScoredLabel& b) {
        return a.score != b.score ? a.score > b.score : a.label < b.label;
    }
    ScoredLabel* best() const { return best_; }

    void keep_best() {
        const float bound = count_ > n_ ? bound_of_best() : lowest_;
        Index kept = 0;
        for (Index i = 0; i < count_; ++i) {
            best_[kept] = {scores_[i], labels_[i]};
            kept += scores_[i] >= bound;
        }
        if (kept > n_) {
            std::nth_element(best(), best() + n_ - 1, best() + kept, ranks_before);
            kept = n_;
        }
        count_ = kept;
        float lowest = std::numeric_limits<float>::max();
        for (Index i = 0; i < count_; ++i) {
            scores_[i] = best_[i].score;
            labels_[i] = best_[i].label;
            lowest = best_[i].score < lowest ? best_[i].score : lowest;
        }
        if (count_ == n_) lowest_ = std::max(lowest_, lowest);
    }

    // A score that at least n labels reach, and hardly any more: by bisection, since counting is
    // much faster than sorting.
    float bound_of_best() const {
        float low = scores_[0], high = scores_[0];
        for (Index i = 1; i < count_; ++i) {
            low = scores_[i] < low ? scores_[i] : low;
            high = scores_[i] > high ? scores_[i] : high;
        }
        for (int step = 0; step < 16; ++step) {
            const float middle = 0.5f * low + 0.5f * high;
            std::int32_t reached = 0;
            for (Index i = 0; i < count_; ++i) reached += scores_[i] >= middle;
            if (reached < n_) {
                high = middle;
                continue;
            }
            low = middle;
            if (reached <= n_ + n_ / 8) break;
        }
        return low;
    }

    const Index n_, capacity_;
    Index count_ = 0;
    float lowest_ = std::numeric_limits<float>::lowest();
    Buffer<float> scores_;
    Buffer<std::int32_t> labels_;
    Buffer<ScoredLabel> best_;
};

}  // namespace ltls::LTLS_ISA
