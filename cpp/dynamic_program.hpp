// All inference: one forward recursion over the slices, and the way back for paths and marginals.
#pragma once

#include "semiring.hpp"

namespace ltls::LTLS_ISA {

// Runs any semiring over the trellis. h holds the edge scores, `Lanes` rows side by side.
template <int Lanes, class Semiring, class T>
LTLS_INLINE void forward(const Trellis& trellis, const T* h, Semiring& semiring) {
    semiring.start(h);
    semiring.leave(0, h + trellis.exit_edge[0] * Lanes);
    for (int slice = 1; slice <= trellis.n_slices; ++slice) {
        semiring.advance(slice, h + trellis.transition(slice) * Lanes);
        semiring.leave(slice, h + trellis.exit_edge[slice] * Lanes);
    }
    semiring.finish();
}

// The best path of every lane after forward<Max>, −1 where all are −∞. The forward pass keeps no
// pointers: going back, the first term that equals a maximum is the one that made it, and the first
// is the smaller path number. Lanes that stand in different states are served by looking at all
// states.
template <int Lanes, class T>
LTLS_INLINE void trace(const Trellis& trellis, const T* h, const Values<Max, T, Lanes>& values,
                       Index* paths) {
    using Int = typename Float<T>::Bits;         // as wide as T, for the vectors' sake
    Int last[Lanes], state[Lanes], from[Lanes];  // the slice left; the states at hand and before
    Index digits[Lanes];                         // Σ sⱼ·widthʲ of the states so far
    for (int lane = 0; lane < Lanes; ++lane) {
        Index x = values.n_exits() - 1;
        for (Index y = x; y >= 0; --y) x = values.exit(y, lane) == values.total()[lane] ? y : x;
        int slice = 0;
        while (x >= trellis.digits[slice]) x -= trellis.digits[slice++];
        last[lane] = slice;
        state[lane] = static_cast<Int>(x);
        digits[lane] = x;
    }
    for (int slice = trellis.n_slices; slice > 0; --slice) {
        const Index columns = trellis.states(slice);
        const T *tails = values.of(slice - 1), *heads = values.of(slice);
        const Index begin = Lanes == 1 && slice <= last[0] ? state[0] : 0;
        const Index end = Lanes == 1 ? begin + (slice <= last[0]) : columns;
        for (int lane = 0; lane < Lanes; ++lane) from[lane] = 0;
        for (Index t = begin; t < end; ++t)
            for (Index s = trellis.width - 1; s >= 0; --s) {
                const T* weights = h + (trellis.transition(slice) + s * columns + t) * Lanes;
                const Int here = static_cast<Int>(t), there = static_cast<Int>(s);
                for (int lane = 0; lane < Lanes; ++lane) {
                    const T score = tails[s * Lanes + lane] + weights[lane];
                    const bool made_it = score == heads[t * Lanes + lane];
                    from[lane] = (state[lane] == here) & made_it ? there : from[lane];
                }
            }
        for (int lane = 0; lane < Lanes; ++lane) {
            const bool on_path = slice <= last[lane];
            state[lane] = on_path ? from[lane] : state[lane];
            digits[lane] = on_path ? digits[lane] * trellis.width + from[lane] : digits[lane];
        }
    }
    for (int lane = 0; lane < Lanes; ++lane)
        paths[lane] = values.total()[lane] > minus_infinity<T>
                          ? trellis.first_path[last[lane]] + digits[lane]
                          : -1;
}

// The marginal probability of every edge after forward<Log>: the gradient of the log-partition in
// h. A vertex' probability is shared out among the edges that enter it, by their part of its value.
// `vertex` is room for width·Lanes numbers.
template <int Lanes, class T>
LTLS_INLINE void backward(const Trellis& trellis, const T* h, const Values<Log, T, Lanes>& values,
                          T* vertex, T* marginals) {
    const Index width = trellis.width;
    Index first_exit = values.n_exits();
    for (int slice = trellis.n_slices; slice >= 0; --slice) {
        const Index exits = trellis.digits[slice], states = trellis.states(slice);
        first_exit -= exits;
        T* exit_edges = marginals + trellis.exit_edge[slice] * Lanes;
        for (Index s = 0; s < exits; ++s)
            for (int lane = 0; lane < Lanes; ++lane) {
                const T total = Log::finite_or_zero(values.total()[lane]);
                exit_edges[s * Lanes + lane] = exp_(values.exit(first_exit + s, lane) - total);
            }
        // What leaves a state: through its exit, and through the edges to the next slice.
        for (Index j = 0; j < states * Lanes; ++j)
            vertex[j] = j < exits * Lanes ? exit_edges[j] : T(0);
        if (slice < trellis.n_slices) {
            const Index columns = trellis.states(slice + 1);
            const T* out = marginals + trellis.transition(slice + 1) * Lanes;
            for (Index s = 0; s < width; ++s)
                for (Index t = 0; t < columns; ++t)
                    for (int lane = 0; lane < Lanes; ++lane)
                        vertex[s * Lanes + lane] += out[(s * columns + t) * Lanes + lane];
        }
        if (slice == 0) break;
        const Index first = trellis.transition(slice) * Lanes;
        for (Index s = 0; s < width; ++s)
            for (Index t = 0; t < states; ++t)
                for (int lane = 0; lane < Lanes; ++lane) {
                    const Index e = first + (s * states + t) * Lanes + lane;
                    const T score = values.of(slice - 1)[s * Lanes + lane] + h[e];
                    const T value = Log::finite_or_zero(values.of(slice)[t * Lanes + lane]);
                    marginals[e] = vertex[t * Lanes + lane] * exp_(score - value);
                }
    }
    for (Index j = 0; j < width * Lanes; ++j) marginals[j] = vertex[j];
}

}  // namespace ltls::LTLS_ISA
