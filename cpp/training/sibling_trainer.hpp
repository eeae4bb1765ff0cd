// Label weights: an L2-regularised squared-hinge classifier for every label, which tells its rows
// from those of its siblings, the other labels of its cluster. All labels of a cluster have the
// same rows: these are gathered once, and their features numbered anew, so that the weights of a
// label stay in the cache.
//
// Dual coordinate descent (Hsieh, Chang, Lin, Keerthi and Sundararajan 2008), with a coordinate
// for what all labels have in common. Few rows of a cluster have a given label, and most others
// only keep its scores near −1: a cluster has a background, the solution u = −Σ βᵢ xᵢ of a label
// without any rows, and the weights of a label are s u + Σ yᵢ aᵢ xᵢ. So the dual variable of row i
// is yᵢ (yᵢ aᵢ − s βᵢ), the best s is known in closed form, and only rows that the background does
// not place well are visited: those of the label and those that are similar.
#pragma once

#include <algorithm>
#include <cmath>
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
    // The background: β of the rows to train on and 0 for others, the weights u, and x·u.
    Buffer<double> duals, scores;
    Buffer<float> background;
    double curvature = 0;  // of the dual objective along s: |u|² + Σ β² / 2C
    double total = 0;      // Σ β
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
        find_background(c);
        for (Index i = 0; i < c.n_rows; ++i) place_of_row_[c.rows[i]] = -1;
        for (Index i = 0; i < c.n_columns; ++i) place_of_feature_[c.columns[i]] = -1;
        return found.release();
    }

    void train(const ClusterRows& cluster, Index label, Index task, LabelWeightLists& all,
               LabelWeightLists* without) override {
        const auto& c = static_cast<const GatheredRows&>(cluster);
        start(c, label);
        Random random(static_cast<std::uint64_t>(c.labels[label]));
        descend(c, options_.passes, random);
        if (without) append(c, task, *without);
        if (c.n_rows > c.n_trained) {
            shares_ = true;
            n_active_ = 0;
            find_active(c, 0, c.n_rows);
            for (Index pass = 0; pass < more_passes; ++pass) descend_along_active(c, random);
        }
        append(c, task, all);
    }

  private:
    static constexpr Index more_passes = 2;        // over the held-out rows
    static constexpr Index background_passes = 5;  // over all rows of a cluster
    // The best s of some dual variables ignores that none may be negative, so it is an aid of the
    // first passes; later ones leave it as it is, and reach the optimum.
    static constexpr Index sharing_passes = 20;
    static constexpr double small = 0.3;  // times the tolerance: an error of no account

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

    // Solves the problem of a label that no row has, starting from equal dual variables.
    void find_background(GatheredRows& c) {
        c.duals.reserve(c.n_rows);
        c.scores.reserve(c.n_rows);
        c.background.reserve(c.n_columns);
        float* const u = c.background;
        for (Index i = 0; i < c.n_columns; ++i) u[i] = 0;
        double squares = 0;
        for (Index i = 0; i < c.n_trained; ++i) {
            add(c, i, -1, u);
            squares += slack(c, i);
        }
        for (Index i = 0; i < c.n_columns; ++i)
            squares += static_cast<double>(u[i]) * static_cast<double>(u[i]);
        const double equal = squares > 0 ? static_cast<double>(c.n_trained) / squares : 0;
        for (Index i = 0; i < c.n_rows; ++i) c.duals[i] = i < c.n_trained ? equal : 0;
        for (Index i = 0; i < c.n_columns; ++i)
            u[i] = static_cast<float>(equal * static_cast<double>(u[i]));
        for (Index pass = 0; pass < background_passes; ++pass)
            for (Index i = 0; i < c.n_trained; ++i) {
                const double old = c.duals[i], extra = slack(c, i);
                const double gradient = -product(c, i, u) - 1 + old * extra;
                const double moved = old - gradient / (c.squares[i] + extra);
                c.duals[i] = moved > 0 ? moved : 0;
                add(c, i, static_cast<float>(old - c.duals[i]), u);
            }
        for (Index i = 0; i < c.n_columns; ++i)
            c.curvature += static_cast<double>(u[i]) * static_cast<double>(u[i]);
        for (Index i = 0; i < c.n_rows; ++i) {
            c.scores[i] = product(c, i, u);
            c.curvature += c.duals[i] * c.duals[i] * slack(c, i);
            c.total += c.duals[i];
        }
    }

    // The inner product of a row with weights, as sums that do not wait for each other.
    LTLS_INLINE static double product(const GatheredRows& c, Index row, const float* w) {
        const GatheredRows::Entry *entry = c.begin(row), *const end = c.end(row);
        float sums[4] = {0, 0, 0, 0};
        for (; end - entry >= 4; entry += 4)
            for (int i = 0; i < 4; ++i) sums[i] += w[entry[i].column] * entry[i].value;
        for (; entry < end; ++entry) sums[0] += w[entry->column] * entry->value;
        return static_cast<double>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    LTLS_INLINE static void add(const GatheredRows& c, Index row, float scale, float* w) {
        for (const auto* entry = c.begin(row); entry < c.end(row); ++entry)
            w[entry->column] += scale * entry->value;
    }

    void start(const GatheredRows& c, Index label) {
        w_.reserve(c.n_columns);
        dual_.reserve(c.n_rows);
        left_out_.reserve(c.n_rows);
        active_.reserve(c.n_rows);
        positive_.reserve(c.n_rows);
        for (Index i = 0; i < c.n_columns; ++i) w_[i] = 0;
        for (Index i = 0; i < c.n_rows; ++i) {
            dual_[i] = left_out_[i] = 0;
            positive_[i] = false;
        }
        n_active_ = 0;
        pull_ = c.total;
        for (Index at = label > 0 ? c.label_ends[label - 1] : 0; at < c.label_ends[label]; ++at) {
            const std::int32_t row = c.positives[at];
            positive_[row] = true;
            pull_ -= 2 * c.duals[row];
            if (row < c.n_trained) active_[n_active_++] = row;
        }
        start_from_initial(c, label);
        set_share(c);
    }
    void start_from_initial(const GatheredRows& c, Index label) {
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
                pull_ -= static_cast<double>(w_[place]) * static_cast<double>(c.background[place]);
            } else {
                extra_[n_extra_] = initial.features[i];
                extra_values_[n_extra_++] = initial.values[i];
            }
        }
        for (Index i = 0; i < c.n_columns; ++i) place_of_feature_[c.columns[i]] = -1;
    }
    // The best share s of the background: the derivative of the dual objective is pull − s ·
    // curvature.
    void set_share(const GatheredRows& c) { share_ = c.curvature > 0 ? pull_ / c.curvature : 0; }

    // Where a row stands: its dual variable, and how far its gradient is from where it should be.
    struct Place {
        double sign, extra, dual, curvature, gradient;
        LTLS_INLINE double error() const {
            if (gradient < 0) return -gradient;
            const double most = std::fabs(dual) * curvature;  // until the dual variable is 0
            return gradient < most ? gradient : most;
        }
    };
    LTLS_INLINE Place place(const GatheredRows& c, Index i) const {
        const double sign = positive_[i] ? 1 : -1, extra = slack(c, i);
        const double dual = dual_[i] - sign * share_ * c.duals[i];
        const double score = product(c, i, w_) + share_ * c.scores[i];
        return {sign, extra, dual, c.squares[i] + extra, sign * score - 1 + dual * extra};
    }
    void descend_along(const GatheredRows& c, Index i, const Place& at) {
        const double moved = at.dual - at.gradient / at.curvature;
        const double change = (moved > 0 ? moved : 0) - at.dual;
        leave_out(c, i, at.sign, moved > 0 ? 0 : -moved * at.curvature);
        if (change == 0) return;
        dual_[i] += change;
        add(c, i, static_cast<float>(change * at.sign), w_);
        pull_ += at.sign * change * (at.extra * c.duals[i] - c.scores[i]);
        if (shares_) set_share(c);
    }

    // The best s is that of dual variables above 0: what the gradient of another one adds to the
    // derivative is left out.
    LTLS_INLINE void leave_out(const GatheredRows& c, Index i, double sign, double gradient) {
        const double now = -sign * c.duals[i] * gradient;
        pull_ += now - left_out_[i];
        left_out_[i] = now;
    }

    // Makes passes over active rows, which are at first those of the label. Others join these after
    // the first pass, and whenever the active ones have converged, if that leaves enough passes.
    void descend(const GatheredRows& c, Index passes, Random& random) {
        for (Index pass = 1; pass <= passes; ++pass) {
            shares_ = pass <= sharing_passes;
            const bool converged = descend_along_active(c, random) <= options_.tolerance;
            if (pass > 1 && !converged) continue;
            if (pass > 1 && 2 * pass > passes) break;
            n_active_ = 0;
            if (!find_active(c, 0, c.n_trained) && converged) break;
        }
    }
    // Makes a pass over the active rows, which those of other labels leave if they were where they
    // should be; returns the largest error.
    double descend_along_active(const GatheredRows& c, Random& random) {
        for (Index k = n_active_ - 1; k > 0; --k) {
            const auto other =
                static_cast<Index>((random.next() >> 32) * static_cast<std::uint64_t>(k + 1) >> 32);
            const std::int32_t row = active_[k];
            active_[k] = active_[other];
            active_[other] = row;
        }
        double largest = 0;
        Index kept = 0;
        for (Index k = 0; k < n_active_; ++k) {
            const std::int32_t row = active_[k];
            const Place at = place(c, row);
            const double error = at.error();
            largest = error > largest ? error : largest;
            if (positive_[row] || error > small * options_.tolerance) active_[kept++] = row;
            descend_along(c, row, at);
        }
        n_active_ = kept;
        return largest;
    }
    // Adds rows first … last−1 to the active ones: those of the label, and others that are not
    // where they should be; returns whether there are such.
    bool find_active(const GatheredRows& c, Index first, Index last) {
        bool found = false;
        for (Index i = first; i < last; ++i) {
            const bool misplaced =
                !positive_[i] && place(c, i).error() > small * options_.tolerance;
            if (misplaced || positive_[i]) active_[n_active_++] = static_cast<std::int32_t>(i);
            found |= misplaced;
        }
        return found;
    }

    // Appends the weights that are kept, by feature.
    void append(const GatheredRows& c, Index task, LabelWeightLists& out) {
        kept_.reserve(c.n_columns + n_extra_);
        Index count = 0;
        const auto keep = [&](std::int32_t feature, float weight) {
            if (std::fabs(weight) >= options_.threshold && weight != 0)
                kept_[count++] = {feature, weight};
        };
        for (Index i = 0; i < c.n_columns; ++i)
            keep(c.columns[i], w_[i] + static_cast<float>(share_) * c.background[i]);
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
    Buffer<double> dual_;          // a of every row
    double share_ = 0, pull_ = 0;  // s, and the derivative of the dual objective where s is 0
    Buffer<double> left_out_;      // of `pull_`, by row
    bool shares_ = true;           // whether s moves
    Buffer<std::int32_t> active_;  // rows to visit
    Index n_active_ = 0;
    Buffer<bool> positive_;
    Buffer<std::int32_t> extra_;  // features of initial weights that the cluster does not have
    Buffer<float> extra_values_;
    Index n_extra_ = 0;
    Buffer<Kept> kept_;
    Buffer<std::int32_t> features_;
    Buffer<float> values_;
};

}  // namespace ltls::LTLS_ISA
