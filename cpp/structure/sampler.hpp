// Exact sampling of paths with probability proportional to exp(score), by forward filtering and
// backward sampling: an exit first, then the predecessor of each state.
#pragma once

#include "core/random.hpp"
#include "structure/dynamic_program.hpp"

namespace ltls::LTLS_ISA {

// Draws paths of one row of edge scores at a time.
template <class T>
class Sampler {
  public:
    explicit Sampler(const Trellis& trellis)
        : trellis_(trellis),
          values_(trellis),
          probability_(trellis.n_edges),
          exit_probability_(trellis.n_exits()) {}

    // Sets the row to draw from and computes the probabilities of all predecessors.
    void set_row(const T* h) {
        h_ = h;
        forward<1>(trellis_, h, values_);
        const T total = Log::finite_or_zero(*values_.total());
        for (Index x = 0; x < values_.n_exits(); ++x)
            exit_probability_[x] = exp_(values_.exit(x, 0) - total);
        for (int slice = 1; slice <= trellis_.n_slices; ++slice) {
            const Index columns = trellis_.states(slice), first = trellis_.transition(slice);
            const T *tails = values_.of(slice - 1), *heads = values_.of(slice);
            for (Index s = 0; s < trellis_.width; ++s)
                for (Index t = 0; t < columns; ++t) {
                    const Index e = first + s * columns + t;
                    probability_[e] = exp_(tails[s] + h[e] - Log::finite_or_zero(heads[t]));
                }
        }
    }

    // Draws a path, or −1 if all scores are −∞, and its log-probability.
    Index draw(Random& random, T& log_probability) const {
        Index state = draw_index(random, exit_probability_, 1, values_.n_exits());
        if (state < 0) {
            log_probability = minus_infinity<T>;
            return -1;
        }
        int slice = 0;
        while (state >= trellis_.digits[slice]) state -= trellis_.digits[slice++];
        if (trellis_.n_slices == 0) {
            log_probability = 0;
            return 0;
        }
        T score = h_[trellis_.exit_edge[slice] + state];
        Index path = trellis_.first_path[slice] + state * trellis_.power[slice];
        for (; slice > 0; --slice) {
            const Index columns = trellis_.states(slice);
            const Index first = trellis_.transition(slice) + state;
            state = draw_index(random, probability_ + first, columns, trellis_.width);
            score += h_[first + state * columns];
            path += state * trellis_.power[slice - 1];
        }
        log_probability = score + h_[state] - *values_.total();
        return path;
    }

  private:
    // Draws one of `count` probabilities, `stride` apart. They sum to 1 up to rounding; the last
    // nonzero one takes the remainder.
    static Index draw_index(Random& random, const T* probabilities, Index stride, Index count) {
        T rest = random.uniform<T>();
        Index last = -1;
        for (Index i = 0; i < count; ++i) {
            const T probability = probabilities[i * stride];
            if (!(probability > 0)) continue;
            last = i;
            if (rest < probability) break;
            rest -= probability;
        }
        return last;
    }

    const Trellis& trellis_;
    Values<Log, T, 1> values_;
    Buffer<T> probability_, exit_probability_;
    const T* h_ = nullptr;
};

}  // namespace ltls::LTLS_ISA
