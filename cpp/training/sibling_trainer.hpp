// Label weights: an L2-regularised squared-hinge classifier for every label, which tells its rows
// from those of its siblings, the other labels of its cluster. All labels of a cluster have the
// same rows: these are gathered once, and their features numbered anew, so that the weights of a
// label stay in the cache. Dual coordinate descent with shrinking (Hsieh, Chang, Lin, Keerthi and
// Sundararajan 2008).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/buffer.hpp"
#include "core/random.hpp"
#include "linear/rows.hpp"
#include "training/sibling_task.hpp"

namespace ltls::LTLS_ISA {

struct GatheredRows final : public ClusterRows {
    struct Entry {
        std::int32_t column;
        float value;
    };
    const Entry* begin(Index row) const { return entries + (row > 0 ? ends[row - 1] : 0); }
    const Entry* end(Index row) const { return entries + ends[row]; }

    Index n_rows = 0, n_trained = 0, n_columns = 0;  // held-out rows follow those to train on
    Buffer<std::int32_t> rows, columns;              // numbers of rows and features among all
    Buffer<Entry> entries;
    Buffer<Index> ends;
    Buffer<double> squares;
    Buffer<Index> labels,
        label_ends;                  // those of the cluster, and where the lists of their rows end
    Buffer<std::int32_t> positives;  // the rows of each label
};

class CoordinateDescent final : public SiblingTrainer {
  public:
    CoordinateDescent(const Features& x, const LabelRows& labels, const SiblingOptions& options)
        : x_(x),
          labels_(labels),
          options_(options),
          place_of_row_(x.n_rows),
          place_of_feature_(x.n_features + x.intercept) {
        for (Index row = 0; row < x.n_rows; ++row) place_of_row_[row] = -1;
        for (Index f = 0; f < x.n_features + x.intercept; ++f) place_of_feature_[f] = -1;
    }

    const ClusterRows* gather(const Index* labels, Index count) override {
        auto found = std::make_unique<GatheredRows>();
        GatheredRows& c = *found;
        Index n_pairs = 0;
        for (Index i = 0; i < count; ++i)
            n_pairs += labels_.list_ptr[labels[i] + 1] - labels_.list_ptr[labels[i]];
        c.rows.reserve(n_pairs);
        list_rows(c, labels, count, false);
        c.n_trained = c.n_rows;
        if (labels_.held_out != nullptr) list_rows(c, labels, count, true);
        list_positives(c, labels, count, n_pairs);
        load(c);
        for (Index i = 0; i < c.n_rows; ++i) place_of_row_[c.rows[i]] = -1;
        for (Index i = 0; i < c.n_columns; ++i) place_of_feature_[c.columns[i]] = -1;
        return found.release();
    }

    void train(const ClusterRows& cluster, Index label, Index task, LabelWeightLists& all,
               LabelWeightLists* without) override {
        const auto& c = static_cast<const GatheredRows&>(cluster);
        start(c, label);
        Random random(static_cast<std::uint64_t>(c.labels[label]));
        descend(c, c.n_trained, options_.passes, random);
        if (without) append(c, task, *without);
        if (c.n_rows > c.n_trained) {
            // A few more rows change little: the rows on the right side stay out.
            Index count = 0;
            for (Index i = 0; i < c.n_rows; ++i)
                if (i >= c.n_trained || dual_[i] > 0)
                    order_[count++] = static_cast<std::int32_t>(i);
            descend(c, count, more_passes, random);
        }
        append(c, task, all);
    }

  private:
    static constexpr Index more_passes = 2;  // over the held-out rows

    void list_rows(GatheredRows& c, const Index* labels, Index count, bool held_out) {
        for (Index i = 0; i < count; ++i)
            for (Index at = labels_.list_ptr[labels[i]]; at < labels_.list_ptr[labels[i] + 1];
                 ++at) {
                const std::int32_t row = labels_.rows[at];
                if (place_of_row_[row] >= 0 ||
                    (labels_.held_out && labels_.held_out[row]) != held_out)
                    continue;
                place_of_row_[row] = static_cast<std::int32_t>(c.n_rows);
                c.rows[c.n_rows++] = row;
            }
    }
    void list_positives(GatheredRows& c, const Index* labels, Index count, Index n_pairs) {
        c.labels.reserve(count);
        c.label_ends.reserve(count);
        c.positives.reserve(n_pairs);
        Index end = 0;
        for (Index i = 0; i < count; ++i) {
            for (Index at = labels_.list_ptr[labels[i]]; at < labels_.list_ptr[labels[i] + 1]; ++at)
                c.positives[end++] = place_of_row_[labels_.rows[at]];
            c.labels[i] = labels[i];
            c.label_ends[i] = end;
        }
    }
    void load(GatheredRows& c) {
        c.ends.reserve(c.n_rows);
        c.squares.reserve(c.n_rows);
        Index count = 0;
        for (Index i = 0; i < c.n_rows; ++i) {
            row_.load(x_, c.rows[i], c.rows[i] + 1);
            c.ends[i] = count += row_.size();
        }
        c.entries.reserve(count);
        // Where rows are few, so are their features.
        c.columns.reserve(count < x_.n_features + 1 ? count : x_.n_features + 1);
        count = 0;
        for (Index i = 0; i < c.n_rows; ++i) {
            row_.load(x_, c.rows[i], c.rows[i] + 1);
            c.squares[i] = 0;
            for (Index entry = 0; entry < row_.size(); ++entry) {
                const double value = static_cast<double>(row_.value(entry));
                c.squares[i] += value * value;
                std::int32_t& place = place_of_feature_[row_.feature(entry)];
                if (place < 0) {
                    place = static_cast<std::int32_t>(c.n_columns);
                    c.columns[c.n_columns++] = static_cast<std::int32_t>(row_.feature(entry));
                }
                c.entries[count++] = {place, row_.value(entry)};
            }
        }
    }

    // 1 / 2C: what the squared hinge adds to the diagonal of the dual problem.
    double slack(const GatheredRows& c, Index row) const {
        if (!labels_.example_weights) return 0.5 / options_.cost;
        return 0.5 / (options_.cost * static_cast<double>(labels_.example_weights[c.rows[row]]));
    }

    void start(const GatheredRows& c, Index label) {
        w_.reserve(c.n_columns);
        dual_.reserve(c.n_rows);
        order_.reserve(c.n_rows);
        positive_.reserve(c.n_rows);
        for (Index i = 0; i < c.n_columns; ++i) w_[i] = 0;
        for (Index i = 0; i < c.n_rows; ++i) {
            dual_[i] = 0;
            order_[i] = static_cast<std::int32_t>(i);
            positive_[i] = false;
        }
        for (Index at = label > 0 ? c.label_ends[label - 1] : 0; at < c.label_ends[label]; ++at)
            positive_[c.positives[at]] = true;
        const InitialLabelWeights& initial = options_.initial;
        n_extra_ = 0;
        if (!initial.label_ptr) return;
        const Index first = initial.label_ptr[c.labels[label]];
        const Index last = initial.label_ptr[c.labels[label] + 1];
        extra_.reserve(last - first);
        extra_values_.reserve(last - first);
        // The features of the cluster are looked up; weights of others stay as they are.
        for (Index i = 0; i < c.n_columns; ++i)
            place_of_feature_[c.columns[i]] = static_cast<std::int32_t>(i);
        for (Index i = first; i < last; ++i) {
            const std::int32_t place = place_of_feature_[initial.features[i]];
            if (place >= 0) {
                w_[place] = initial.values[i];
            } else {
                extra_[n_extra_] = initial.features[i];
                extra_values_[n_extra_++] = initial.values[i];
            }
        }
        for (Index i = 0; i < c.n_columns; ++i) place_of_feature_[c.columns[i]] = -1;
    }

    LTLS_INLINE static void swap(std::int32_t& a, std::int32_t& b) {
        const std::int32_t old = a;
        a = b;
        b = old;
    }

    // Makes passes over the first `count` rows of `order_`.
    void descend(const GatheredRows& c, Index count, Index passes, Random& random) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        Index active = count;
        double shrink_above = infinity;
        for (Index pass = 0; pass < passes; ++pass) {
            for (Index i = active - 1; i > 0; --i)
                swap(order_[i], order_[random.next() % static_cast<std::uint64_t>(i + 1)]);
            double highest = -infinity, lowest = infinity;
            for (Index k = 0; k < active; ++k) {
                const Index i = order_[k];
                float score = 0;
                for (const auto* entry = c.begin(i); entry < c.end(i); ++entry)
                    score += w_[entry->column] * entry->value;
                const double sign = positive_[i] ? 1 : -1, old = dual_[i], extra = slack(c, i);
                const double gradient = sign * static_cast<double>(score) - 1 + old * extra;
                if (old == 0 && gradient > shrink_above) {
                    swap(order_[k--], order_[--active]);
                    continue;
                }
                const double projected = old == 0 && gradient > 0 ? 0 : gradient;
                highest = projected > highest ? projected : highest;
                lowest = projected < lowest ? projected : lowest;
                if (projected == 0) continue;
                const double moved = old - gradient / (c.squares[i] + extra);
                dual_[i] = moved > 0 ? moved : 0;
                const float step = static_cast<float>((dual_[i] - old) * sign);
                if (step == 0) continue;
                for (const auto* entry = c.begin(i); entry < c.end(i); ++entry)
                    w_[entry->column] += step * entry->value;
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

    // Appends the weights that are kept, by feature.
    void append(const GatheredRows& c, Index task, LabelWeightLists& out) {
        kept_.reserve(c.n_columns + n_extra_);
        Index count = 0;
        const auto keep = [&](std::int32_t feature, float weight) {
            if (std::fabs(weight) >= options_.threshold && weight != 0)
                kept_[count++] = {feature, weight};
        };
        for (Index i = 0; i < c.n_columns; ++i) keep(c.columns[i], w_[i]);
        for (Index i = 0; i < n_extra_; ++i) keep(extra_[i], extra_values_[i]);
        Kept* const kept = kept_;
        std::sort(kept, kept + count,
                  [](const Kept& a, const Kept& b) { return a.feature < b.feature; });
        features_.reserve(count);
        values_.reserve(count);
        for (Index i = 0; i < count; ++i) {
            features_[i] = kept[i].feature;
            values_[i] = kept[i].weight;
        }
        out.add(task, features_, values_, count);
    }

    struct Kept {
        std::int32_t feature;
        float weight;
    };

    const Features x_;
    const LabelRows labels_;
    const SiblingOptions options_;
    Rows row_;
    Buffer<std::int32_t> place_of_row_, place_of_feature_;  // in a cluster; −1 outside of it
    Buffer<float> w_;
    Buffer<double> dual_;
    Buffer<std::int32_t> order_;
    Buffer<bool> positive_;
    Buffer<std::int32_t> extra_;  // features of initial weights that the cluster does not have
    Buffer<float> extra_values_;
    Index n_extra_ = 0;
    Buffer<Kept> kept_;
    Buffer<std::int32_t> features_;
    Buffer<float> values_;
};

}  // namespace ltls::LTLS_ISA
