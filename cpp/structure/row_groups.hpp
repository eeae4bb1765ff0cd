// Batches of rows, interleaved so that one vector instruction handles a state of several rows.
#pragma once

#include "structure/dynamic_program.hpp"

namespace ltls::LTLS_ISA {

inline constexpr int row_lanes = 16;

// Wider trellises fill a vector with the states of one row; their rows are not interleaved.
inline constexpr Index max_interleaved_width = 15;

// Index of the first row with NaN or +∞, or −1.
template <class T>
Index first_bad_row(const T* h, Index rows, Index edges) {
    for (Index row = 0; row < rows; ++row, h += edges) {
        int bad = 0;
        for (Index e = 0; e < edges; ++e) bad |= !(h[e] <= std::numeric_limits<T>::max());
        if (bad) return row;
    }
    return -1;
}

// Interleaves rows that are `stride` apart; deinterleave() is the inverse. Tiles of a few edges are
// transposed in registers.
template <int Lanes, class T>
void interleave(const T* rows, Index stride, Index edges, T* lanes) {
    constexpr int block = 4;
    Index e = 0;
    for (; e + block <= edges; e += block, rows += block, lanes += block * Lanes) {
        T tile[Lanes][block];
        for (int lane = 0; lane < Lanes; ++lane)
            for (int i = 0; i < block; ++i) tile[lane][i] = rows[lane * stride + i];
        for (int i = 0; i < block; ++i)
            for (int lane = 0; lane < Lanes; ++lane) lanes[i * Lanes + lane] = tile[lane][i];
    }
    for (; e < edges; ++e, ++rows, lanes += Lanes)
        for (int lane = 0; lane < Lanes; ++lane) lanes[lane] = rows[lane * stride];
}
template <int Lanes, class T>
void deinterleave(const T* lanes, Index edges, T* rows) {
    for (int lane = 0; lane < Lanes; ++lane)
        for (Index e = 0; e < edges; ++e) rows[lane * edges + e] = lanes[e * Lanes + lane];
}

// Runs the forward pass of Max or Log over many rows.
template <class Sum, class T>
class RowGroups {
  public:
    explicit RowGroups(const Trellis& trellis)
        : trellis_(trellis),
          values_(trellis),
          group_values_(trellis),
          lanes_(trellis.width <= max_interleaved_width ? trellis.n_edges * row_lanes : 0) {}

    // Takes rows that are `stride` apart in groups of as many as there are lanes and calls
    // use<Lanes>(first row, scores, values) for each group.
    template <class Use>
    void each(const T* h, Index stride, Index rows, Use&& use) {
        constexpr int Lanes = row_lanes;
        Index row = 0;
        if (trellis_.width <= max_interleaved_width)
            for (; row + Lanes <= rows; row += Lanes) {
                interleave<Lanes, T>(h + row * stride, stride, trellis_.n_edges, lanes_);
                forward<Lanes, Values<Sum, T, Lanes>, T>(trellis_, lanes_, group_values_);
                use.template operator()<Lanes>(row, static_cast<const T*>(lanes_), group_values_);
            }
        for (; row < rows; ++row) {
            forward<1>(trellis_, h + row * stride, values_);
            use.template operator()<1>(row, h + row * stride, values_);
        }
    }

  private:
    const Trellis& trellis_;
    Values<Sum, T, 1> values_;
    Values<Sum, T, row_lanes> group_values_;
    Buffer<T> lanes_;
};

}  // namespace ltls::LTLS_ISA
