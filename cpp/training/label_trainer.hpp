// Label weights: an L2-regularised squared-hinge classifier for every label, by dual coordinate
// descent with shrinking (Hsieh, Chang, Lin, Keerthi and Sundararajan 2008).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/buffer.hpp"
#include "core/random.hpp"
#include "linear/rows.hpp"
#include "training/label_task.hpp"

namespace ltls::LTLS_ISA {

class CoordinateDescent final : public LabelTrainer {
  public:
    CoordinateDescent(const Features& x, const LabelExamples& examples, const LabelOptions& options)
        : n_features_(x.n_features + x.intercept),
          examples_(examples),
          options_(options),
          ends_(x.n_rows),
          squares_(x.n_rows) {
        load(x);
    }

    void run(LabelQueue& queue, LabelWeightLists& out) const override {
        Scratch scratch(n_features_);
        for (;;) {
            const LabelQueue::Task task = queue.next();
            if (task.label < 0) return;
            start(task.label, scratch);
            descend(task.label, scratch);
            append(task.number, scratch, out);
        }
    }

  private:
    // Rows are read in the order of the labels' lists, so that each should be in one place.
    struct Entry {
        std::int32_t feature;
        float value;
    };
    struct Scratch {
        explicit Scratch(Index n_features) : w(n_features), features(n_features), used(n_features) {
            for (Index feature = 0; feature < n_features; ++feature) {
                w[feature] = 0;
                used[feature] = false;
            }
        }
        void use(std::int32_t feature) {
            if (used[feature]) return;
            used[feature] = true;
            features[n_used++] = feature;
        }
        Buffer<float> w, values;
        Buffer<std::int32_t> features;  // those that `used` marks
        Buffer<bool> used;
        Buffer<double> dual;
        Buffer<std::int32_t> order;
        Index n_used = 0;
    };

    void load(const Features& x) {
        Rows row;
        Index count = 0;
        for (Index i = 0; i < x.n_rows; ++i) {
            row.load(x, i, i + 1);
            ends_[i] = count += row.size();
        }
        entries_.reserve(count);
        count = 0;
        for (Index i = 0; i < x.n_rows; ++i) {
            row.load(x, i, i + 1);
            squares_[i] = 0;
            for (Index entry = 0; entry < row.size(); ++entry) {
                const double value = static_cast<double>(row.value(entry));
                squares_[i] += value * value;
                entries_[count++] = {static_cast<std::int32_t>(row.feature(entry)),
                                     row.value(entry)};
            }
        }
    }
    const Entry* begin(Index row) const { return entries_ + (row > 0 ? ends_[row - 1] : 0); }
    const Entry* end(Index row) const { return entries_ + ends_[row]; }

    LTLS_INLINE static void swap(std::int32_t& a, std::int32_t& b) {
        const std::int32_t old = a;
        a = b;
        b = old;
    }

    // 1 / 2C: what the squared hinge adds to the diagonal of the dual problem.
    double slack(Index row) const {
        const double weight =
            examples_.example_weights ? static_cast<double>(examples_.example_weights[row]) : 1.0;
        return 0.5 / (options_.cost * weight);
    }

    void start(Index label, Scratch& s) const {
        const InitialLabelWeights& initial = options_.initial;
        s.n_used = 0;
        if (!initial.label_ptr) return;
        for (Index i = initial.label_ptr[label]; i < initial.label_ptr[label + 1]; ++i) {
            s.use(initial.features[i]);
            s.w[initial.features[i]] = initial.values[i];
        }
    }

    void descend(Index label, Scratch& s) const {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const std::int32_t* const list = examples_.rows + examples_.list_ptr[label];
        const Index count = examples_.list_ptr[label + 1] - examples_.list_ptr[label];
        s.dual.reserve(count);
        s.order.reserve(count);
        for (Index i = 0; i < count; ++i) {
            s.dual[i] = 0;
            s.order[i] = static_cast<std::int32_t>(i);
        }
        Random random(static_cast<std::uint64_t>(label));
        Index active = count;
        double shrink_above = infinity;
        for (Index pass = 0; pass < options_.passes; ++pass) {
            for (Index i = active - 1; i > 0; --i)
                swap(s.order[i], s.order[random.next() % static_cast<std::uint64_t>(i + 1)]);
            double highest = -infinity, lowest = infinity;
            for (Index k = 0; k < active; ++k) {
                const Index i = s.order[k];
                const bool negative = list[i] < 0;
                const Index row = negative ? -1 - list[i] : list[i];
                float score = 0;
                for (const Entry* entry = begin(row); entry < end(row); ++entry)
                    score += s.w[entry->feature] * entry->value;
                const double sign = negative ? -1 : 1, old = s.dual[i];
                const double gradient = sign * static_cast<double>(score) - 1 + old * slack(row);
                if (old == 0 && gradient > shrink_above) {
                    swap(s.order[k--], s.order[--active]);
                    continue;
                }
                const double projected = old == 0 && gradient > 0 ? 0 : gradient;
                highest = projected > highest ? projected : highest;
                lowest = projected < lowest ? projected : lowest;
                if (projected == 0) continue;
                const double moved = old - gradient / (squares_[row] + slack(row));
                s.dual[i] = moved > 0 ? moved : 0;
                const float step = static_cast<float>((s.dual[i] - old) * sign);
                if (step == 0) continue;
                for (const Entry* entry = begin(row); entry < end(row); ++entry) {
                    s.w[entry->feature] += step * entry->value;
                    s.use(entry->feature);
                }
            }
            if (highest - lowest <= options_.tolerance) {
                if (active == count) break;
                active = count;  // check the rows that were left out
                shrink_above = infinity;
            } else {
                shrink_above = highest > 0 ? highest : infinity;
            }
        }
    }

    // Appends the weights that are kept, and clears the scratch memory.
    void append(Index task, Scratch& s, LabelWeightLists& out) const {
        std::int32_t* const features = s.features;
        std::sort(features, features + s.n_used,
                  [](std::int32_t a, std::int32_t b) { return a < b; });
        s.values.reserve(s.n_used);
        Index kept = 0;
        for (Index i = 0; i < s.n_used; ++i) {
            const std::int32_t feature = features[i];
            const float weight = s.w[feature];
            s.w[feature] = 0;
            s.used[feature] = false;
            if (std::fabs(weight) < options_.threshold || weight == 0) continue;
            features[kept] = feature;
            s.values[kept++] = weight;
        }
        out.add(task, features, s.values, kept);
    }

    const Index n_features_;
    const LabelExamples examples_;
    const LabelOptions options_;
    Buffer<Index> ends_;
    Buffer<double> squares_;
    Buffer<Entry> entries_;
};

}  // namespace ltls::LTLS_ISA
