// Losses: edge scores and positive paths in, edge step out. The step u is minus the gradient of the
// loss in h; a loss sees no features and touches nothing else.
#pragma once

#include "dynamic_program.hpp"
#include "tasks.hpp"

namespace ltls::LTLS_ISA {

// The positive paths of an example, sorted.
struct Positives {
    const Index* paths;
    Index count;

    LTLS_INLINE const Index* begin() const { return paths; }
    LTLS_INLINE const Index* end() const { return paths + count; }
    LTLS_INLINE bool contains(Index path) const {
        Index low = 0, high = count;
        while (low < high) {
            const Index middle = (low + high) / 2;
            if (paths[middle] < path)
                low = middle + 1;
            else
                high = middle;
        }
        return low < count && paths[low] == path;
    }
};

LTLS_INLINE float path_score(const Trellis& trellis, const float* h, Index path) {
    float sum = 0;
    trellis.each_edge(path, [&](Index edge) { sum += h[edge]; });
    return sum;
}

// The paper's (section 5): the highest-scoring negative must stay a margin of 1 below the
// lowest-scoring positive. The negative is among the |P| + 1 best paths.
class Separation {
  public:
    explicit Separation(const Trellis& trellis) : trellis_(trellis), best_(trellis, 2) {}

    // Returns the loss; `step` is written where `moves` is set. Ties of the margin move in the
    // multi-class case and not in the multi-label case, as in the authors' code.
    double step(const float* h, Positives positives, bool multilabel, float* step, bool& moves) {
        moves = false;
        if (positives.count == 0 || positives.count >= trellis_.n_classes) return 0;
        best_.keep(positives.count + 1);
        forward<1>(trellis_, h, best_);
        const auto* negative = best_.next();
        while (negative && positives.contains(negative->path)) negative = best_.next();
        if (!negative) return 0;
        Index positive = -1;
        float lowest = 0;
        for (const Index path : positives) {
            const float score = path_score(trellis_, h, path);
            if (positive < 0 || score < lowest) {
                positive = path;
                lowest = score;
            }
        }
        const float violation = negative->score + 1 - lowest;
        moves = multilabel ? violation > 0 : violation >= 0;
        if (!moves) return 0;
        for (Index e = 0; e < trellis_.n_edges; ++e) step[e] = 0;
        trellis_.each_edge(positive, [&](Index edge) { step[edge] += 1; });
        trellis_.each_edge(negative->path, [&](Index edge) { step[edge] -= 1; });
        return violation;
    }

  private:
    const Trellis& trellis_;
    KBest<float> best_;
};

// Log-partition minus the mean score of the positives; the step is their mean indicator minus the
// marginals.
class Softmax {
  public:
    explicit Softmax(const Trellis& trellis)
        : trellis_(trellis), values_(trellis), vertex_(trellis.width) {}

    double step(const float* h, Positives positives, bool, float* step, bool& moves) {
        moves = positives.count > 0;
        if (!moves) return 0;
        forward<1>(trellis_, h, values_);
        backward<1, float>(trellis_, h, values_, vertex_, step);
        for (Index e = 0; e < trellis_.n_edges; ++e) step[e] = -step[e];
        const float share = 1.0f / static_cast<float>(positives.count);
        double score = 0;
        for (const Index path : positives)
            trellis_.each_edge(path, [&](Index edge) {
                step[edge] += share;
                score += h[edge];
            });
        return values_.total()[0] - score * share;
    }

  private:
    const Trellis& trellis_;
    Values<Log, float, 1> values_;
    Buffer<float> vertex_;
};

// log σ(x) = −log(1 + e⁻ˣ)
LTLS_INLINE float log_sigmoid(float x) {
    const float away = x < 0 ? -x : x;
    return (x < 0 ? x : 0.0f) - log_(1.0f + exp_(-away));
}

// An independent logistic loss for every edge; its target is 1 where a positive path uses the edge.
class Logistic {
  public:
    explicit Logistic(const Trellis& trellis) : trellis_(trellis) {}

    double step(const float* h, Positives positives, bool, float* step, bool& moves) {
        moves = true;
        const Index edges = trellis_.n_edges;
        for (Index e = 0; e < edges; ++e) step[e] = 0;
        for (const Index path : positives)
            trellis_.each_edge(path, [&](Index edge) { step[edge] = 1; });
        float loss = 0;
        for (Index e = 0; e < edges; ++e) {
            const float right = step[e] != 0 ? h[e] : -h[e];
            loss -= log_sigmoid(right);
            step[e] -= sigmoid(h[e]);
        }
        return loss;
    }

  private:
    LTLS_INLINE static float sigmoid(float x) {
        const float small = exp_(x < 0 ? x : -x);
        return (x < 0 ? small : 1.0f) / (1.0f + small);
    }

    const Trellis& trellis_;
};

// Edge scores for decoding a model of independent logistic edges: log σ(h), and for an early exit
// also the best that the blocks it skips could have added, so that short paths have no advantage.
inline void logistic_scores(const Trellis& trellis, const float* h, float* g) {
    for (Index e = 0; e < trellis.n_edges; ++e) g[e] = log_sigmoid(h[e]);
    float skipped = 0;
    for (int slice = trellis.n_slices; slice > 0; --slice) {
        const Index first = trellis.transition(slice);
        float best = minus_infinity<float>;
        for (Index e = first; e < first + trellis.width * trellis.states(slice); ++e)
            best = g[e] > best ? g[e] : best;
        skipped += best;
        float* exits = g + trellis.exit_edge[slice - 1];
        for (Index s = 0; s < trellis.digits[slice - 1]; ++s) exits[s] += skipped;
    }
}

}  // namespace ltls::LTLS_ISA
