// The losses. A loss maps edge scores h and positive paths to a step u, minus the gradient in h; it
// sees no features. To add one, write its class here and add it to the registry at the end.
//
// A loss has:
//   name             what users call it
//   normalizes       whether path score − log-partition is a log-probability
//   needs_positives  whether rows without labels are skipped
//   step             writes u and returns the loss
//   decode_scores    optional: writes the edge scores g whose sums over paths rank the labels, for
//                    losses where these are not h itself
#pragma once

#include "structure/dynamic_program.hpp"
#include "structure/loss_info.hpp"

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

// The loss of an example; u is only written if `has_step`.
struct LossResult {
    double loss = 0;
    bool has_step = false;
};

LTLS_INLINE float path_score(const Trellis& trellis, const float* h, Index path) {
    float sum = 0;
    trellis.each_edge(path, [&](Index edge) { sum += h[edge]; });
    return sum;
}

// The separation ranking loss of the paper (section 5): the highest-scoring negative must stay a
// margin of 1 below the lowest-scoring positive. The negative is among the |P| + 1 best paths.
class Separation {
  public:
    static constexpr const char* name = "separation";
    static constexpr bool normalizes = false, needs_positives = true;

    explicit Separation(const Trellis& trellis) : trellis_(trellis), best_(trellis, 2) {}

    // A violation of exactly 0 updates in the multi-class case but not in the multi-label case, as
    // in the authors' code.
    LossResult step(const float* h, Positives positives, bool multilabel, float* u) {
        if (positives.count == 0 || positives.count >= trellis_.n_classes) return {};
        best_.set_k(positives.count + 1);
        forward<1>(trellis_, h, best_);
        const auto* negative = best_.next();
        while (negative && positives.contains(negative->path)) negative = best_.next();
        if (!negative) return {};
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
        const bool violates = multilabel ? violation > 0 : violation >= 0;
        if (!violates) return {};
        for (Index e = 0; e < trellis_.n_edges; ++e) u[e] = 0;
        trellis_.each_edge(positive, [&](Index edge) { u[edge] += 1; });
        trellis_.each_edge(negative->path, [&](Index edge) { u[edge] -= 1; });
        return {violation, true};
    }

  private:
    const Trellis& trellis_;
    KBest<float> best_;
};

// Cross-entropy over all paths: log-partition minus the mean score of the positives. The step is
// their mean indicator minus the edge marginals.
class Softmax {
  public:
    static constexpr const char* name = "softmax";
    static constexpr bool normalizes = true, needs_positives = true;

    explicit Softmax(const Trellis& trellis)
        : trellis_(trellis), values_(trellis), vertex_(trellis.width) {}

    LossResult step(const float* h, Positives positives, bool, float* u) {
        if (positives.count == 0) return {};
        forward<1>(trellis_, h, values_);
        backward<1, float>(trellis_, h, values_, vertex_, u);
        for (Index e = 0; e < trellis_.n_edges; ++e) u[e] = -u[e];
        const float share = 1.0f / static_cast<float>(positives.count);
        double score = 0;
        for (const Index path : positives)
            trellis_.each_edge(path, [&](Index edge) {
                u[edge] += share;
                score += h[edge];
            });
        return {values_.total()[0] - score * share, true};
    }

  private:
    const Trellis& trellis_;
    Values<Log, float, 1> values_;
    Buffer<float> vertex_;
};

// An independent logistic loss for every edge, with target 1 if any positive path uses the edge.
class Logistic {
  public:
    static constexpr const char* name = "logistic";
    static constexpr bool normalizes = false, needs_positives = false;

    explicit Logistic(const Trellis& trellis) : trellis_(trellis) {}

    LossResult step(const float* h, Positives positives, bool, float* u) {
        const Index edges = trellis_.n_edges;
        for (Index e = 0; e < edges; ++e) u[e] = 0;
        for (const Index path : positives)
            trellis_.each_edge(path, [&](Index edge) { u[edge] = 1; });
        float loss = 0;
        for (Index e = 0; e < edges; ++e) {
            const float margin = u[e] != 0 ? h[e] : -h[e];
            loss -= log_sigmoid(margin);
            u[e] -= sigmoid(h[e]);
        }
        return {loss, true};
    }

    // log σ(h); an early exit also gets the maximum of each block that it skips, so that short
    // paths have no advantage.
    static void decode_scores(const Trellis& trellis, const float* h, float* g) {
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

  private:
    // log σ(x) = −log(1 + e⁻ˣ)
    LTLS_INLINE static float log_sigmoid(float x) {
        const float magnitude = x < 0 ? -x : x;
        return (x < 0 ? x : 0.0f) - log_(1.0f + exp_(-magnitude));
    }
    LTLS_INLINE static float sigmoid(float x) {
        const float small = exp_(x < 0 ? x : -x);
        return (x < 0 ? small : 1.0f) / (1.0f + small);
    }

    const Trellis& trellis_;
};

// Whether a loss decodes other edge scores than h.
template <class Loss>
concept HasDecodeScores = requires(const Trellis& trellis, const float* h, float* g) {
    Loss::decode_scores(trellis, h, g);
};

template <class Loss>
constexpr LossInfo loss_info() {
    LossInfo info{Loss::name, Loss::normalizes, Loss::needs_positives, nullptr};
    if constexpr (HasDecodeScores<Loss>) info.decode_scores = Loss::decode_scores;
    return info;
}

// The dispatch from a LossId to the class and the properties of a loss.
template <class... Losses>
class LossRegistry {
  public:
    static constexpr int count = sizeof...(Losses);
    static constexpr LossInfo info[] = {loss_info<Losses>()...};

    // Returns f.operator()<Loss>() for the loss with this id.
    template <class Result, class F>
    static Result visit(LossId id, F&& f) {
        constexpr Result (*calls[])(F&) = {call<Losses, Result, F>...};
        return calls[id](f);
    }

  private:
    template <class Loss, class Result, class F>
    static Result call(F& f) {
        return f.template operator()<Loss>();
    }
};

// The registry: one entry per loss.
using AllLosses = LossRegistry<Separation, Softmax, Logistic>;

}  // namespace ltls::LTLS_ISA
