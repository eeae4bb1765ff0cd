// The forward recursion over the slices, and the backward passes for paths and marginals.
#pragma once

#include "structure/semiring.hpp"

namespace ltls::LTLS_ISA {

// A trellis of one class has no edges. Its one state reads these zeros instead of h, so that its
// path has score 0 in every semiring.
template <class T, int Lanes>
alignas(64) inline constexpr T no_edge_scores[Lanes] = {};

// Runs a semiring over the trellis. h holds the edge scores of `Lanes` interleaved rows.
template <int Lanes, class Semiring, class T>
LTLS_ONE_COPY void forward(const Trellis& trellis, const T* h, Semiring& semiring) {
    if (trellis.n_slices == 0) h = no_edge_scores<T, Lanes>;
    semiring.start(h);
    semiring.leave(0, h + trellis.exit_edge[0] * Lanes);
    for (int slice = 1; slice <= trellis.n_slices; ++slice) {
        semiring.advance(slice, h + trellis.transition(slice) * Lanes);
        semiring.leave(slice, h + trellis.exit_edge[slice] * Lanes);
    }
    semiring.finish();
}

// The best path of every lane after forward<Max>, or −1 if all scores are −∞. There are no
// back-pointers: the first term that equals the maximum produced it, and the first has the smaller
// path number. Lanes may be in different states, so with several lanes all states are scanned.
template <int Lanes, class T>
LTLS_INLINE void trace(const Trellis& trellis, const T* h, const Values<Max, T, Lanes>& values,
                       Index* paths) {
    using Int = typename Float<T>::Bits;         // as wide as T, so that the loops vectorize
    Int last[Lanes], state[Lanes], from[Lanes];  // exit slice, current and previous state
    Index digits[Lanes];                         // Σ sⱼ·widthʲ so far
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
                    const bool is_source = score == heads[t * Lanes + lane];
                    from[lane] = (state[lane] == here) & is_source ? there : from[lane];
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

// The marginal probability of every edge after forward<Log>, which is the gradient of the
// log-partition in h. The probability of a vertex is split among its incoming edges in proportion
// to their terms of its value. `vertex` is scratch memory for width·Lanes numbers.
template <int Lanes, class T>
LTLS_ONE_COPY void backward(const Trellis& trellis, const T* h, const Values<Log, T, Lanes>& values,
                            T* vertex, T* marginals) {
    if (trellis.n_slices == 0) return;
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
        // The outgoing probability of a state: its exit, and its edges to the next slice.
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
