// The semirings of the forward recursion: Max (Viterbi), Log (log-partition) and KBest (top-k).
//
// Each stores the vertex values it needs and implements the same four operations:
//   start(h)             slice 0 from the source edges
//   advance(i, weights)  slice i from slice i−1: value[t] = ⊕ₛ value[s] ⊗ weights[s, t]
//   leave(i, weights)    adds the exits of slice i to the sink
//   finish()             completes the sink's value
// ⊗ is always +. Max and Log process `Lanes` rows of a batch at once, interleaved with the lane as
// the last axis, so that one vector instruction handles several rows.
#pragma once

#include "core/buffer.hpp"
#include "core/vector_math.hpp"
#include "structure/trellis.hpp"

namespace ltls::LTLS_ISA {

// ⊕ is the maximum.
struct Max {
    // out[t] = ⊕ₛ in[s] + weights[s, t] for s < rows, t < columns
    template <int Lanes, class T>
    LTLS_INLINE static void join(const T* in, Index rows, const T* weights, Index columns, T* out,
                                 T*) {
        for (Index j = 0; j < columns * Lanes; ++j) out[j] = minus_infinity<T>;
        for (Index s = 0; s < rows; ++s, weights += columns * Lanes)
            for (Index t = 0; t < columns; ++t)
                for (int lane = 0; lane < Lanes; ++lane) {
                    const T score = in[s * Lanes + lane] + weights[t * Lanes + lane];
                    T& best = out[t * Lanes + lane];
                    best = score > best ? score : best;
                }
    }
};

// ⊕ is log(eˣ + eʸ), computed over all terms at once relative to their maximum.
struct Log {
    template <int Lanes, class T>
    LTLS_ONE_COPY static void join(const T* in, Index rows, const T* weights, Index columns, T* out,
                                   T* sum) {
        Max::join<Lanes>(in, rows, weights, columns, out, sum);
        for (Index j = 0; j < columns * Lanes; ++j) sum[j] = 0;
        for (Index s = 0; s < rows; ++s, weights += columns * Lanes)
            for (Index t = 0; t < columns; ++t)
                for (int lane = 0; lane < Lanes; ++lane) {
                    const Index j = t * Lanes + lane;
                    sum[j] += exp_(in[s * Lanes + lane] + weights[j] - finite_or_zero(out[j]));
                }
        // If every term is −∞, sum is 0 and out is already −∞.
        for (Index j = 0; j < columns * Lanes; ++j)
            out[j] += out[j] == minus_infinity<T> ? T(0) : log_(sum[j]);
    }

    template <class T>
    LTLS_INLINE static T finite_or_zero(T x) {
        return x == minus_infinity<T> ? T(0) : x;
    }
};

// The vertex values of Max or Log over a trellis, kept for the backward pass.
template <class Sum, class T, int Lanes>
class Values {
  public:
    explicit Values(const Trellis& trellis)
        : trellis_(trellis),
          value_((trellis.n_slices + 1) * trellis.width * Lanes),
          exit_value_(trellis.n_exits() * Lanes),
          exit_weight_(trellis.n_exits() * Lanes),
          scratch_(trellis.width * Lanes) {}

    LTLS_INLINE void start(const T* h) {
        n_exits_ = 0;
        copy(h, trellis_.width, of(0));
    }
    LTLS_INLINE void advance(int slice, const T* weights) {
        Sum::template join<Lanes, T>(of(slice - 1), trellis_.width, weights, trellis_.states(slice),
                                     of(slice), scratch_);
    }
    LTLS_INLINE void leave(int slice, const T* weights) {
        copy(of(slice), trellis_.digits[slice], exit_value_ + n_exits_ * Lanes);
        copy(weights, trellis_.digits[slice], exit_weight_ + n_exits_ * Lanes);
        n_exits_ += trellis_.digits[slice];
    }
    LTLS_INLINE void finish() {
        Sum::template join<Lanes, T>(exit_value_, n_exits_, exit_weight_, 1, total_, scratch_);
    }

    // The values of a slice, the score of the x-th exit, and the value of the sink.
    LTLS_INLINE T* of(int slice) const { return value_ + slice * trellis_.width * Lanes; }
    LTLS_INLINE T exit(Index x, int lane) const {
        return exit_value_[x * Lanes + lane] + exit_weight_[x * Lanes + lane];
    }
    LTLS_INLINE const T* total() const { return total_; }
    LTLS_INLINE Index n_exits() const { return n_exits_; }

  private:
    LTLS_INLINE static void copy(const T* from, Index count, T* to) {
        for (Index j = 0; j < count * Lanes; ++j) to[j] = from[j];
    }

    const Trellis& trellis_;
    Buffer<T> value_, exit_value_, exit_weight_, scratch_;
    Index n_exits_ = 0;
    alignas(64) T total_[Lanes];
};

// ⊕ merges lists of scored prefixes, best first. Every vertex has such a list, and so has the sink.
// The lists are lazy (Huang and Chiang 2005, algorithm 3): the forward pass computes only the best
// score of every list, as Max does, and next() extends lists on demand, so that a path costs a few
// steps instead of k per vertex. Ties go to the list merged first, which has the smaller path
// number. An entry carries its path number, so no traceback is needed.
template <class T>
class KBest {
  public:
    KBest(const Trellis& trellis, Index k)
        : trellis_(trellis),
          vertices_((trellis.n_slices + 1) * trellis.width),
          exits_(trellis.n_slices + 2),
          tops_((trellis.n_slices + 1) * trellis.width),
          exit_tops_(trellis.n_slices + 1),
          // Transitions, exits and slices; a single class has an exit but no edge.
          heads_(trellis.n_edges + trellis.n_slices + 2) {
        Head* heads = heads_;
        const auto set = [&](List& list, List* tails, const T* tops, Index count, Index offset) {
            list.tails = tails;
            list.tops = tops;
            list.count = static_cast<Count>(count);
            list.offset = offset;
            list.heads = heads;
            heads += count;
        };
        for (Index s = 0; s < trellis.width; ++s) set(of(0)[s], nullptr, nullptr, 0, 0);
        for (int i = 1; i <= trellis.n_slices; ++i)
            for (Index t = 0; t < trellis.states(i); ++t)
                set(of(i)[t], of(i - 1), tops(i - 1), trellis.width, t * trellis.power[i]);
        for (int i = 0; i <= trellis.n_slices; ++i)
            set(exits_[i], of(i), tops(i), trellis.digits[i], trellis.first_path[i]);
        set(sink(), exits_, exit_tops_, trellis.n_slices + 1, 0);
        set_k(k);
    }

    struct Entry {
        T score;
        Index path;
    };

    // Sets how often next() may be called per row, from the next row on.
    void set_k(Index k) {
        if (k == k_) return;
        k_ = k;
        Index size = (trellis_.n_slices + 2) * k;
        for (int i = 0; i <= trellis_.n_slices; ++i) size += trellis_.states(i) * longest(i);
        entries_.reserve(size);
        Entry* entries = entries_;
        for (int i = 0; i <= trellis_.n_slices + 1; ++i, entries += k) exits_[i].entries = entries;
        for (int i = 0; i <= trellis_.n_slices; ++i)
            for (Index t = 0; t < trellis_.states(i); ++t, entries += longest(i))
                of(i)[t].entries = entries;
    }

    LTLS_INLINE void start(const T* h) {
        for (Index s = 0; s < trellis_.width; ++s) {
            tops(0)[s] = h[s];
            of(0)[s].entries[0] = {h[s], s};
            of(0)[s].length = 1;
        }
    }
    LTLS_INLINE void advance(int slice, const T* weights) {
        const Index columns = trellis_.states(slice);
        Max::join<1, T>(tops(slice - 1), trellis_.width, weights, columns, tops(slice), nullptr);
        for (Index t = 0; t < columns; ++t) of(slice)[t].begin(weights + t, columns);
    }
    // One list per slice merges its exits, and the sink merges those lists.
    LTLS_INLINE void leave(int slice, const T* weights) {
        Max::join<1, T>(tops(slice), trellis_.digits[slice], weights, 1, exit_tops_ + slice,
                        nullptr);
        exits_[slice].begin(weights, 1);
    }
    LTLS_INLINE void finish() { sink().begin(&zero, 0); }

    // The next best path, or null if no other path has a finite score.
    const Entry* next() { return entry(sink(), sink().length); }

    // Score of the best path.
    LTLS_INLINE T top() const {
        T best = exit_tops_[0];
        for (int i = 1; i <= trellis_.n_slices; ++i)
            best = exit_tops_[i] > best ? exit_tops_[i] : best;
        return best;
    }

  private:
    using Count = std::int32_t;

    struct Head {
        T score;
        Count rank;
    };
    struct alignas(64) List {
        List* tails;    // the `count` lists that it merges
        const T* tops;  // their best scores
        Head* heads;    // the next candidate from each of them
        Entry* entries;
        Index offset;      // added to the path number of every entry
        const T* weights;  // edges from the tails, `stride` apart
        Count count, stride, length;
        Count taken;  // the tail that gave the last entry

        LTLS_INLINE void begin(const T* weights_, Index stride_) {
            weights = weights_;
            stride = static_cast<Count>(stride_);
            length = 0;
        }
        LTLS_INLINE T weight(Index s) const { return weights[s * stride]; }
    };

    // Entry number `rank` ≤ length of a list, extending it if needed; null past its end.
    const Entry* entry(List& list, Count rank) {
        return rank < list.length || extend(list) ? list.entries + rank : nullptr;
    }

    bool extend(List& list) {
        if (list.count == 0) return false;
        Head* const heads = list.heads;
        if (list.length == 0) {
            for (Count s = 0; s < list.count; ++s) heads[s] = {list.tops[s] + list.weight(s), 0};
        } else if (Head& last = heads[list.taken]; last.score > minus_infinity<T>) {
            const Entry* after = entry(list.tails[list.taken], ++last.rank);
            last.score = after ? after->score + list.weight(list.taken) : minus_infinity<T>;
        }
        Count best = 0;
        T top = heads[0].score;
        for (Count s = 1; s < list.count; ++s) {
            const bool larger = heads[s].score > top;
            top = larger ? heads[s].score : top;
            best = larger ? s : best;
        }
        list.taken = best;
        if (!(top > minus_infinity<T>)) return false;
        const Entry* const tail = entry(list.tails[best], heads[best].rank);
        if (!tail) return false;  // its scores overflowed, and their sum is no number
        list.entries[list.length++] = {top, tail->path + list.offset};
        return true;
    }

    LTLS_INLINE List* of(int slice) const { return vertices_ + slice * trellis_.width; }
    LTLS_INLINE T* tops(int slice) const { return tops_ + slice * trellis_.width; }
    LTLS_INLINE List& sink() const { return exits_[trellis_.n_slices + 1]; }
    // A state of slice i is reached by widthⁱ prefixes.
    LTLS_INLINE Index longest(int slice) const {
        return k_ < trellis_.power[slice] ? k_ : trellis_.power[slice];
    }

    static constexpr T zero = 0;

    const Trellis& trellis_;
    Index k_ = 0;
    Buffer<List> vertices_, exits_;
    Buffer<T> tops_, exit_tops_;
    Buffer<Head> heads_;
    Buffer<Entry> entries_;
};

}  // namespace ltls::LTLS_ISA
