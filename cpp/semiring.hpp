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

// ⊕ merges lists, best first. Every vertex has the list of its best prefixes, and so has the sink.
// The lists are lazy (Huang and Chiang 2005, algorithm 3): the forward pass finds the first score
// of every list as Max does, and next() makes lists only as far as the lists after them ask for,
// which is a few steps for each path instead of k for every vertex. Ties go to the first of the
// lists that are merged, which is the smaller path number. An entry carries the number of its
// prefix, so there is nothing to trace back.
template <class T>
class KBest {
  public:
    KBest(const Trellis& trellis, Index k)
        : trellis_(trellis),
          vertices_((trellis.n_slices + 1) * trellis.width),
          doors_(trellis.n_slices + 2),
          tops_((trellis.n_slices + 1) * trellis.width),
          door_tops_(trellis.n_slices + 1),
          heads_(trellis.n_edges + trellis.n_slices + 1) {
        Head* heads = heads_;
        const auto set = [&](List& list, List* tails, const T* tops, Index count, Index added) {
            list.tails = tails;
            list.tops = tops;
            list.count = static_cast<Count>(count);
            list.added = added;
            list.heads = heads;
            heads += count;
        };
        for (Index s = 0; s < trellis.width; ++s) set(of(0)[s], nullptr, nullptr, 0, 0);
        for (int i = 1; i <= trellis.n_slices; ++i)
            for (Index t = 0; t < trellis.states(i); ++t)
                set(of(i)[t], of(i - 1), tops(i - 1), trellis.width, t * trellis.power[i]);
        for (int i = 0; i <= trellis.n_slices; ++i)
            set(doors_[i], of(i), tops(i), trellis.digits[i], trellis.first_path[i]);
        set(sink(), doors_, door_tops_, trellis.n_slices + 1, 0);
        keep(k);
    }

    struct Entry {
        T score;
        Index path;
    };

    // From the next row on, next() will be called at most so often.
    void keep(Index k) {
        if (k == k_) return;
        k_ = k;
        Index room = (trellis_.n_slices + 2) * k;
        for (int i = 0; i <= trellis_.n_slices; ++i) room += trellis_.states(i) * longest(i);
        entries_.keep(room);
        Entry* entries = entries_;
        for (int i = 0; i <= trellis_.n_slices + 1; ++i, entries += k) doors_[i].entries = entries;
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
    // The exits of a slice meet at a door, and the doors at the sink.
    LTLS_INLINE void leave(int slice, const T* weights) {
        Max::join<1, T>(tops(slice), trellis_.digits[slice], weights, 1, door_tops_ + slice,
                        nullptr);
        doors_[slice].begin(weights, 1);
    }
    LTLS_INLINE void finish() { sink().begin(&nothing, 0); }

    // The next best path, or null where no other is finite.
    const Entry* next() { return entry(sink(), sink().length); }

    // The score of the best path.
    LTLS_INLINE T top() const {
        T best = door_tops_[0];
        for (int i = 1; i <= trellis_.n_slices; ++i)
            best = door_tops_[i] > best ? door_tops_[i] : best;
        return best;
    }

  private:
    using Count = std::int32_t;

    struct Head {
        T score;
        Count rank;
    };
    struct alignas(64) List {
        List* tails;    // the lists that it merges, `count` of them
        const T* tops;  // their first scores
        Head* heads;    // what each has next
        Entry* entries;
        Index added;       // to the path numbers of all entries
        const T* weights;  // of the edges from the tails, every `stride`-th number
        Count count, stride, length;
        Count taken;  // the tail of the last entry

        LTLS_INLINE void begin(const T* weights_, Index stride_) {
            weights = weights_;
            stride = static_cast<Count>(stride_);
            length = 0;
        }
        LTLS_INLINE T weight(Index s) const { return weights[s * stride]; }
    };

    // The entry at a place that is at most the list's length, or null if the list ends there.
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
        const Index prefix = entry(list.tails[best], heads[best].rank)->path;
        list.entries[list.length++] = {top, prefix + list.added};
        return true;
    }

    LTLS_INLINE List* of(int slice) const { return vertices_ + slice * trellis_.width; }
    LTLS_INLINE T* tops(int slice) const { return tops_ + slice * trellis_.width; }
    LTLS_INLINE List& sink() const { return doors_[trellis_.n_slices + 1]; }
    // A state of slice i can be reached in widthⁱ ways.
    LTLS_INLINE Index longest(int slice) const {
        return k_ < trellis_.power[slice] ? k_ : trellis_.power[slice];
    }

    static constexpr T nothing = 0;

    const Trellis& trellis_;
    Index k_ = 0;
    Buffer<List> vertices_, doors_;
    Buffer<T> tops_, door_tops_;
    Buffer<Head> heads_;
    Buffer<Entry> entries_;
};

}  // namespace ltls::LTLS_ISA
