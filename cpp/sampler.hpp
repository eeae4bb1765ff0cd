// Draws paths with probability proportional to exp(score), exactly: from the sink back to the
// source, an exit first and then the state before each state, by their shares of its value.
#pragma once

#include "dynamic_program.hpp"
#include "random.hpp"

namespace ltls::LTLS_ISA {

template <class T>
class Sampler {
  public:
    explicit Sampler(const Trellis& trellis)
        : trellis_(trellis),
          values_(trellis),
          share_(trellis.n_edges),
          exit_share_(trellis.n_exits()) {}

    // The row to draw from. The shares of all edges are found at once, so a draw only adds.
    void see(const T* h) {
        h_ = h;
        forward<1>(trellis_, h, values_);
        const T total = Log::finite_or_zero(*values_.total());
        for (Index x = 0; x < values_.n_exits(); ++x)
            exit_share_[x] = exp_(values_.exit(x, 0) - total);
        for (int slice = 1; slice <= trellis_.n_slices; ++slice) {
            const Index columns = trellis_.states(slice), first = trellis_.transition(slice);
            const T *tails = values_.of(slice - 1), *heads = values_.of(slice);
            for (Index s = 0; s < trellis_.width; ++s)
                for (Index t = 0; t < columns; ++t) {
                    const Index e = first + s * columns + t;
                    share_[e] = exp_(tails[s] + h[e] - Log::finite_or_zero(heads[t]));
                }
        }
    }

    // A path, or −1 where all are forbidden, and its log-probability.
    Index draw(Random& random, T& log_probability) const {
        Index state = chosen(random, exit_share_, 1, values_.n_exits());
        if (state < 0) {
            log_probability = minus_infinity<T>;
            return -1;
        }
        int slice = 0;
        while (state >= trellis_.digits[slice]) state -= trellis_.digits[slice++];
        T score = h_[trellis_.exit_edge[slice] + state];
        Index path = trellis_.first_path[slice] + state * trellis_.power[slice];
        for (; slice > 0; --slice) {
            const Index columns = trellis_.states(slice);
            const Index first = trellis_.transition(slice) + state;
            state = chosen(random, share_ + first, columns, trellis_.width);
            score += h_[first + state * columns];
            path += state * trellis_.power[slice - 1];
        }
        log_probability = score + h_[state] - *values_.total();
        return path;
    }

  private:
    // One of `count` shares that sum to 1, but for rounding: the last that is not 0 has the rest.
    static Index chosen(Random& random, const T* shares, Index stride, Index count) {
        T rest = random.uniform<T>();
        Index last = -1;
        for (Index i = 0; i < count; ++i) {
            const T share = shares[i * stride];
            if (!(share > 0)) continue;
            last = i;
            if (rest < share) break;
            rest -= share;
        }
        return last;
    }

    const Trellis& trellis_;
    Values<Log, T, 1> values_;
    Buffer<T> share_, exit_share_;
    const T* h_ = nullptr;
};

}  // namespace ltls::LTLS_ISA
