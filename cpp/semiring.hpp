// What ⊕ and ⊗ mean in the forward recursion: Max, Log and KBest.
//
// Each holds the values of the vertices it still needs and offers the same four steps:
//   start(h)             slice 0 from the source edges
//   advance(i, weights)  slice i from slice i−1: value[t] = ⊕ₛ value[s] ⊗ weights[s, t]
//   leave(i, weights)    the exits of slice i join the sink
//   finish()             the sink's value is complete
// ⊗ is always +. Max and Log hold `Lanes` rows of a batch side by side, the lane being the last
// axis, so that one vector instruction serves several rows.
#pragma once

#include <limits>
#include <new>

#include "trellis.hpp"
#include "vector_math.hpp"

namespace ltls::LTLS_ISA {

template <class T>
inline constexpr T minus_infinity = -std::numeric_limits<T>::infinity();

// Uninitialised memory on a cache line's boundary.
template <class T>
class Buffer {
  public:
    explicit Buffer(Index size = 0) { keep(size); }
    ~Buffer() { ::operator delete(data_, alignment); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    LTLS_INLINE operator T*() const { return data_; }

    // Makes room for at least this many; what was in it is lost if that needs new memory.
    LTLS_INLINE void keep(Index size) {
        if (size > size_) allocate(size);
    }

  private:
    static constexpr std::align_val_t alignment{64};

    void allocate(Index size) {
        ::operator delete(data_, alignment);
        data_ = nullptr;
        size_ = 0;
        data_ =
            static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), alignment));
        size_ = size;
    }

    T* data_ = nullptr;
    Index size_ = 0;
};

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

// ⊕ is log(eˣ + eʸ), computed over all terms at once, relative to the largest.
struct Log {
    template <int Lanes, class T>
    LTLS_INLINE static void join(const T* in, Index rows, const T* weights, Index columns, T* out,
                                 T* sum) {
        Max::join<Lanes>(in, rows, weights, columns, out, sum);
        for (Index j = 0; j < columns * Lanes; ++j) sum[j] = 0;
        for (Index s = 0; s < rows; ++s, weights += columns * Lanes)
            for (Index t = 0; t < columns; ++t)
                for (int lane = 0; lane < Lanes; ++lane) {
                    const Index j = t * Lanes + lane;
                    sum[j] += exp_(in[s * Lanes + lane] + weights[j] - finite_or_zero(out[j]));
                }
        // Where every term is −∞, sum is 0 and out is −∞ already.
        for (Index j = 0; j < columns * Lanes; ++j)
            out[j] += out[j] == minus_infinity<T> ? T(0) : log_(sum[j]);
    }

    template <class T>
    LTLS_INLINE static T finite_or_zero(T x) {
        return x == minus_infinity<T> ? T(0) : x;
    }
};

// Max or Log over a trellis, with the values of all vertices kept for the way back.
template <class Sum, class T, int Lanes>
class Values {
  public:
    explicit Values(const Trellis& trellis)
        : trellis_(trellis),
          value_((trellis.n_slices + 1) * trellis.width * Lanes),
          exit_value_(trellis.n_exits() * Lanes),
          exit_weight_(trellis.n_exits() * Lanes),
          room_(trellis.width * Lanes) {}

    LTLS_INLINE void start(const T* h) {
        n_exits_ = 0;
        copy(h, trellis_.width, of(0));
    }
    LTLS_INLINE void advance(int slice, const T* weights) {
        Sum::template join<Lanes, T>(of(slice - 1), trellis_.width, weights, trellis_.states(slice),
                                     of(slice), room_);
    }
    LTLS_INLINE void leave(int slice, const T* weights) {
        copy(of(slice), trellis_.digits[slice], exit_value_ + n_exits_ * Lanes);
        copy(weights, trellis_.digits[slice], exit_weight_ + n_exits_ * Lanes);
        n_exits_ += trellis_.digits[slice];
    }
    LTLS_INLINE void finish() {
        Sum::template join<Lanes, T>(exit_value_, n_exits_, exit_weight_, 1, total_, room_);
    }

    // The values of one slice; the score of the exit that left `x`-th; the sink's value.
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
    Buffer<T> value_, exit_value_, exit_weight_, room_;
    Index n_exits_ = 0;
    alignas(64) T total_[Lanes];
};

// ⊕ merges two lists and keeps the k best. An entry carries the number of its path so far, so there
// is nothing to trace back. Lists hold finite scores only, best first, ties in the order of path
// numbers.
template <class T>
class KBest {
  public:
    KBest(const Trellis& trellis, Index k)
        : trellis_(trellis),
          lengths_(2 * trellis.width),
          heads_(trellis.width),
          cursors_(trellis.width) {
        keep(k);
    }

    // Keeps this many from now on.
    void keep(Index k) {
        const Index width = trellis_.width;
        k_ = k;
        entries_.keep((2 * width + 2) * k);
        slice_ = {entries_, lengths_};
        next_ = {entries_ + width * k, lengths_ + width};
        sink_ = entries_ + 2 * width * k;
        merged_ = sink_ + k;
    }

    struct Entry {
        T score;
        Index path;
    };

    LTLS_INLINE void start(const T* h) {
        sink_length_ = 0;
        for (Index s = 0; s < trellis_.width; ++s) {
            slice_.lengths[s] = h[s] > minus_infinity<T>;
            slice_.entries[s * k_] = {h[s], s};
        }
    }
    LTLS_INLINE void advance(int slice, const T* weights) {
        const Index columns = trellis_.states(slice);
        for (Index t = 0; t < columns; ++t)
            next_.lengths[t] =
                merge(weights + t, columns, t * trellis_.power[slice], next_.entries + t * k_);
        const Lists old = slice_;
        slice_ = next_;
        next_ = old;
    }
    LTLS_INLINE void leave(int slice, const T* weights) {
        for (Index s = 0; s < trellis_.digits[slice]; ++s)
            leave(slice_.entries + s * k_, slice_.lengths[s], weights[s],
                  trellis_.first_path[slice]);
    }
    LTLS_INLINE void finish() {}

    const Entry* sink() const { return sink_; }
    Index sink_length() const { return sink_length_; }

  private:
    struct Lists {
        Entry* entries = nullptr;
        Index* lengths = nullptr;
    };

    // The k best of all lists of the slice, each moved by its weight, into `out`; returns how many.
    LTLS_INLINE Index merge(const T* weights, Index stride, Index added, Entry* out) {
        const Index rows = trellis_.width;
        for (Index s = 0; s < rows; ++s) {
            cursors_[s] = 0;
            heads_[s] = head(s, weights[s * stride]);
        }
        Index length = 0;
        while (length < k_) {
            Index best = 0;
            for (Index s = 1; s < rows; ++s) best = heads_[s] > heads_[best] ? s : best;
            if (!(heads_[best] > minus_infinity<T>)) break;
            out[length++] = {heads_[best], slice_.entries[best * k_ + cursors_[best]].path + added};
            ++cursors_[best];
            heads_[best] = head(best, weights[best * stride]);
        }
        return length;
    }
    LTLS_INLINE T head(Index s, T weight) const {
        return cursors_[s] < slice_.lengths[s] ? slice_.entries[s * k_ + cursors_[s]].score + weight
                                               : minus_infinity<T>;
    }

    // One list, moved by its weight, joins the sink. Earlier exits have smaller paths and win ties.
    LTLS_INLINE void leave(const Entry* list, Index length, T weight, Index added) {
        Index a = 0, b = 0, m = 0;
        while (m < k_) {
            const T score = b < length ? list[b].score + weight : minus_infinity<T>;
            if (a < sink_length_ && sink_[a].score >= score)
                merged_[m++] = sink_[a++];
            else if (score > minus_infinity<T>)
                merged_[m++] = {score, list[b++].path + added};
            else
                break;
        }
        Entry* old = sink_;
        sink_ = merged_;
        merged_ = old;
        sink_length_ = m;
    }

    const Trellis& trellis_;
    Index k_ = 0;
    Buffer<Entry> entries_;
    Buffer<Index> lengths_;
    Buffer<T> heads_;
    Buffer<Index> cursors_;
    Lists slice_, next_;
    Entry *sink_ = nullptr, *merged_ = nullptr;
    Index sink_length_ = 0;
};

}  // namespace ltls::LTLS_ISA
