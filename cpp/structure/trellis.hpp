// The trellis graph: its edge numbering and its path numbering.
//
// With n_classes written in base `width`, n_classes = Σ digits[i]·widthⁱ, there are n_slices slices
// of `width` states. The auxiliary vertices are treated as the first digits[n_slices] states of one
// more slice, so the same formulas hold for slices 0 … n_slices:
//
//   source → slice 0          edge  s
//   slice i−1 → slice i       edge  transition(i) + s·states(i) + t
//   slice i → sink            edge  exit_edge[i] + s                  for s < digits[i]
//
// The path that visits states s₀ … sᵢ and exits from slice i has the number
// first_path[i] + Σ sⱼ·widthʲ.
//
// A trellis of one class has no edges and one path, 0, of score 0. The dynamic programs treat it as
// one state in slice 0 with one exit, see forward().
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/index.hpp"
#include "core/instruction_set.hpp"

namespace ltls {

inline constexpr Index max_classes = Index{1} << 62;
inline constexpr Index max_edges = (Index{1} << 31) - 1;

// The graph whose source-to-sink paths are the classes; O(log n_classes) numbers describe it.
class Trellis {
  public:
    Trellis(Index n_classes, Index width);

    Index n_classes, width, n_edges;
    int n_slices;
    int shift = 0;              // log₂ width if width is a power of two, else 0
    Index digits[63] = {};      // digits of n_classes in base width
    Index power[63] = {};       // widthⁱ
    Index first_path[63] = {};  // smallest path that exits from slice i
    Index exit_edge[63] = {};   // first edge slice i → sink

    LTLS_INLINE Index states(int slice) const {
        return slice < n_slices ? width : digits[n_slices];
    }
    LTLS_INLINE Index transition(int slice) const { return width + (slice - 1) * width * width; }
    LTLS_INLINE Index vertex(int slice, Index state) const { return 1 + slice * width + state; }
    LTLS_INLINE Index sink() const { return vertex(n_slices, digits[n_slices]); }
    LTLS_INLINE Index n_exits() const { return n_slices > 0 ? n_edges - exit_edge[n_slices] : 1; }
    LTLS_INLINE Index longest_path() const { return n_slices > 0 ? n_slices + 2 : 0; }

    // Calls visit(edge) for each edge of a path, from source to sink.
    template <class Visit>
    LTLS_INLINE void each_edge(Index path, Visit&& visit) const {
        if (n_slices == 0) return;
        if (shift > 0)
            each_edge_by(path, visit, [this](Index number) { return number >> shift; });
        else
            each_edge_by(path, visit, [this](Index number) { return number / width; });
    }

    // Calls visit(edge, tail, head) for every edge, in edge order within each block.
    template <class Visit>
    void each_arc(Visit&& visit) const {
        if (n_slices == 0) return;
        for (Index s = 0; s < width; ++s) visit(s, Index{0}, vertex(0, s));
        for (int i = 1; i <= n_slices; ++i)
            for (Index s = 0; s < width; ++s)
                for (Index t = 0; t < states(i); ++t)
                    visit(transition(i) + s * states(i) + t, vertex(i - 1, s), vertex(i, t));
        for (Index a = 0; a < digits[n_slices]; ++a)
            visit(exit_edge[n_slices] + a, vertex(n_slices, a), sink());
        for (int i = 0; i < n_slices; ++i)
            for (Index s = 0; s < digits[i]; ++s) visit(exit_edge[i] + s, vertex(i, s), sink());
    }

    // Number of the path with these edges, or −1 if they do not form a path.
    Index path_of(const Index* edges, Index count) const;

    // Number of classes after one growing step. Throws if the trellis cannot grow.
    Index grown() const;

    // Writes the edge of `larger`, a grown copy of this trellis, that each edge becomes.
    void edge_map(const Trellis& larger, Index* map) const;

  private:
    template <class Visit, class Divide>
    LTLS_INLINE void each_edge_by(Index path, Visit&& visit, Divide&& by_width) const {
        int last = n_slices;
        while (path < first_path[last]) --last;
        Index rest = path - first_path[last], state = 0, first = 0;  // first edge of the block
        for (int slice = 0; slice < last; ++slice) {
            const Index quotient = by_width(rest), next = rest - quotient * width;
            visit(first + state * width + next);
            state = next;
            rest = quotient;
            first = transition(slice + 1);
        }
        visit(first + state * states(last) + rest);
        visit(exit_edge[last] + rest);
    }
};

inline Trellis::Trellis(Index n_classes_, Index width_) : n_classes(n_classes_), width(width_) {
    if (n_classes < 1 || n_classes > max_classes)
        throw std::invalid_argument("n_classes must be between 1 and 2**62, got " +
                                    std::to_string(n_classes));
    if (width < 2)
        throw std::invalid_argument("width must be at least 2, got " + std::to_string(width));
    if (width > n_classes) width = n_classes;
    if (std::has_single_bit(static_cast<std::uint64_t>(width)))
        shift = std::countr_zero(static_cast<std::uint64_t>(width));
    n_slices = 0;
    n_edges = 0;
    power[0] = 1;
    if (n_classes == 1) {
        digits[0] = 1;
        return;
    }
    Index rest = n_classes;
    for (; rest >= width; ++n_slices) {
        digits[n_slices] = rest % width;
        rest /= width;
        power[n_slices + 1] = power[n_slices] * width;
    }
    digits[n_slices] = rest;

    Index n_exits = 0;
    for (int i = 0; i <= n_slices; ++i) n_exits += digits[i];
    // In floating point, because the product may overflow an integer.
    const double wide = static_cast<double>(width);
    const double count = wide * (1 + (n_slices - 1) * wide + static_cast<double>(rest)) +
                         static_cast<double>(n_exits);
    if (count > static_cast<double>(max_edges))
        throw std::invalid_argument("width " + std::to_string(width) + " with n_classes " +
                                    std::to_string(n_classes) +
                                    " needs more than 2**31-1 edges; use a smaller width");
    Index edge = transition(n_slices) + width * rest;
    exit_edge[n_slices] = edge;
    edge += rest;
    for (int i = 0; i < n_slices; ++i) {
        exit_edge[i] = edge;
        edge += digits[i];
        first_path[i + 1] = first_path[i] + digits[i] * power[i];
    }
    n_edges = edge;
}

inline Index Trellis::path_of(const Index* edges, Index count) const {
    if (n_slices == 0) return count == 0 ? 0 : -1;
    const Index last = count - 2;
    if (last < 0 || last > n_slices || digits[last] == 0) return -1;
    Index path = first_path[last];
    for (int slice = 0; slice <= last; ++slice) {
        if (edges[slice] < 0 || edges[slice] >= n_edges) return -1;
        const Index state =
            slice == 0 ? edges[0] : (edges[slice] - transition(slice)) % states(slice);
        if (state < 0 || state >= (slice < last ? width : digits[last])) return -1;
        path += state * power[slice];
    }
    // A path number determines its edges, so comparing them validates every step at once.
    bool same = true;
    each_edge(path, [&](Index edge) { same = same && edge == *edges++; });
    return same ? path : -1;
}

inline Index Trellis::grown() const {
    if (n_classes == 1)
        throw std::invalid_argument(
            "a trellis of one class has no edges and cannot grow; "
            "start with n_classes of at least 2");
    const Index factor = digits[n_slices] < width - 1 ? 1 : width;
    if (power[n_slices] > (max_classes - n_classes) / factor)
        throw std::invalid_argument("growing would pass 2**62 classes, n_classes is " +
                                    std::to_string(n_classes));
    return n_classes + power[n_slices] * factor;
}

inline void Trellis::edge_map(const Trellis& larger, Index* map) const {
    if (n_slices == 0) return;
    for (Index s = 0; s < width; ++s) map[s] = s;
    for (int i = 1; i <= n_slices; ++i)
        for (Index s = 0; s < width; ++s)
            for (Index t = 0; t < states(i); ++t)
                map[transition(i) + s * states(i) + t] =
                    larger.transition(i) + s * larger.states(i) + t;
    for (int i = 0; i <= n_slices; ++i)
        for (Index s = 0; s < digits[i]; ++s) map[exit_edge[i] + s] = larger.exit_edge[i] + s;
}

}  // namespace ltls
