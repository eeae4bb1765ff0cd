// Compiled once per instruction set; LTLS_ISA names the namespace of each build.
#include "kernels.hpp"

#include "dynamic_program.hpp"
#include "predictor.hpp"
#include "trainer.hpp"

namespace ltls::LTLS_ISA {
namespace {

inline constexpr int row_lanes = 16;

// Wider trellises fill a vector with the states of one row, and need no rows side by side.
inline constexpr Index widest_in_lanes = 15;

template <class T>
Index first_bad_row(const T* h, Index rows, Index edges) {
    for (Index row = 0; row < rows; ++row, h += edges) {
        int bad = 0;
        for (Index e = 0; e < edges; ++e) bad |= !(h[e] <= std::numeric_limits<T>::max());
        if (bad) return row;
    }
    return -1;
}

// Puts rows side by side, and back. Blocks of a few edges stay in registers while they are turned.
template <int Lanes, class T>
void interleave(const T* rows, Index edges, T* lanes) {
    constexpr int block = 4;
    Index e = 0;
    for (; e + block <= edges; e += block, rows += block, lanes += block * Lanes) {
        T tile[Lanes][block];
        for (int lane = 0; lane < Lanes; ++lane)
            for (int i = 0; i < block; ++i) tile[lane][i] = rows[lane * edges + i];
        for (int i = 0; i < block; ++i)
            for (int lane = 0; lane < Lanes; ++lane) lanes[i * Lanes + lane] = tile[lane][i];
    }
    for (; e < edges; ++e, ++rows, lanes += Lanes)
        for (int lane = 0; lane < Lanes; ++lane) lanes[lane] = rows[lane * edges];
}
template <int Lanes, class T>
void separate(const T* lanes, Index edges, T* rows) {
    for (int lane = 0; lane < Lanes; ++lane)
        for (Index e = 0; e < edges; ++e) rows[lane * edges + e] = lanes[e * Lanes + lane];
}

// Runs the forward pass of Max or Log for all rows, as many at a time as there are lanes, and gives
// each group to use(first row, scores, values).
template <class Sum, class T, class Use>
Index each_group(const Trellis& trellis, const T* h, Index rows, Use&& use) {
    const Index edges = trellis.n_edges;
    const Index bad = first_bad_row(h, rows, edges);
    if (bad >= 0) return bad;
    constexpr int Lanes = row_lanes;
    Index row = 0;
    if (rows >= Lanes && trellis.width <= widest_in_lanes) {
        Values<Sum, T, Lanes> values(trellis);
        Buffer<T> lanes(edges * Lanes);
        for (; row + Lanes <= rows; row += Lanes) {
            interleave<Lanes, T>(h + row * edges, edges, lanes);
            forward<Lanes, Values<Sum, T, Lanes>, T>(trellis, lanes, values);
            use.template operator()<Lanes>(row, lanes, values);
        }
    }
    Values<Sum, T, 1> values(trellis);
    for (; row < rows; ++row) {
        forward<1>(trellis, h + row * edges, values);
        use.template operator()<1>(row, h + row * edges, values);
    }
    return -1;
}

// One class has one path without edges.
template <class T>
void fill(T* out, Index count, T value) {
    for (Index i = 0; i < count; ++i) out[i] = value;
}

template <class T>
Index viterbi(const Trellis& trellis, const T* h, Index rows, Index* paths, T* scores) {
    if (trellis.n_slices == 0) {
        fill(paths, rows, Index{0});
        fill(scores, rows, T(0));
        return -1;
    }
    return each_group<Max>(
        trellis, h, rows,
        [&]<int Lanes>(Index row, const T* edge_scores, const Values<Max, T, Lanes>& values) {
            trace<Lanes>(trellis, edge_scores, values, paths + row);
            for (int lane = 0; lane < Lanes; ++lane) scores[row + lane] = values.total()[lane];
        });
}

template <class T>
Index topk(const Trellis& trellis, const T* h, Index rows, Index k, Index* paths, T* scores) {
    if (trellis.n_slices == 0) return viterbi(trellis, h, rows, paths, scores);
    const Index bad = first_bad_row(h, rows, trellis.n_edges);
    if (bad >= 0) return bad;
    KBest<T> best(trellis, k);
    for (Index row = 0; row < rows; ++row, h += trellis.n_edges, paths += k, scores += k) {
        forward<1>(trellis, h, best);
        for (Index j = 0; j < k; ++j) {
            const auto* entry = best.next();
            paths[j] = entry ? entry->path : -1;
            scores[j] = entry ? entry->score : minus_infinity<T>;
        }
    }
    return -1;
}

template <class T>
Index log_partition(const Trellis& trellis, const T* h, Index rows, T* totals) {
    if (trellis.n_slices == 0) {
        fill(totals, rows, T(0));
        return -1;
    }
    return each_group<Log>(
        trellis, h, rows, [&]<int Lanes>(Index row, const T*, const Values<Log, T, Lanes>& values) {
            for (int lane = 0; lane < Lanes; ++lane) totals[row + lane] = values.total()[lane];
        });
}

template <class T>
Index marginals(const Trellis& trellis, const T* h, Index rows, T* out) {
    if (trellis.n_slices == 0) return -1;
    const Index edges = trellis.n_edges;
    Buffer<T> vertex(trellis.width * row_lanes);
    Buffer<T> lanes(trellis.width <= widest_in_lanes ? edges * row_lanes : 0);
    return each_group<Log>(
        trellis, h, rows,
        [&]<int Lanes>(Index row, const T* edge_scores, const Values<Log, T, Lanes>& values) {
            T* rows_out = out + row * edges;
            if constexpr (Lanes == 1) {
                backward<1, T>(trellis, edge_scores, values, vertex, rows_out);
            } else {
                backward<Lanes, T>(trellis, edge_scores, values, vertex, lanes);
                separate<Lanes, T>(lanes, edges, rows_out);
            }
        });
}

template <class T>
constexpr DynamicPrograms<T> dynamic_programs = {viterbi<T>, topk<T>, log_partition<T>,
                                                 marginals<T>};

template <class Weight>
void score_rows(const Features& x, const Weights& weights, Index edges, Index first, Index last,
                float* h) {
    Row row(x);
    for (Index i = first; i < last; ++i, h += edges) {
        row.load(x, i);
        edge_scores(row, static_cast<const Weight*>(weights.rows), weights.scales, weights.stride,
                    edges, h);
    }
}

void edge_scores_of_rows(const Features& x, const Weights& weights, Index edges, Index first,
                         Index last, float* h) {
    switch (weights.kind) {
        case Weights::f32:
            return score_rows<float>(x, weights, edges, first, last, h);
        case Weights::f16:
            return score_rows<std::uint16_t>(x, weights, edges, first, last, h);
        case Weights::i8:
            return score_rows<std::int8_t>(x, weights, edges, first, last, h);
    }
}

Index decode(const Trellis& trellis, const Decoding& decoding, const float* h, Index rows,
             Index* labels, float* scores) {
    const Index length = decoding.n_trellises * decoding.block;
    const Index bad = first_bad_row(h, rows, length);
    if (bad >= 0) return bad;
    Predictor predictor(trellis, decoding);
    for (Index row = 0; row < rows; ++row)
        predictor.run(h + row * length, labels + row * decoding.k, scores + row * decoding.k);
    return -1;
}

void logistic_scores_of_rows(const Trellis& trellis, const float* h, Index rows, float* g) {
    for (Index row = 0; row < rows; ++row, h += trellis.n_edges, g += trellis.n_edges)
        logistic_scores(trellis, h, g);
}

Learnt train(const Trellis& trellis, const Features& x, const Learned& learned,
             const Lesson& lesson) {
    switch (lesson.loss) {
        case Loss::separation:
            return Trainer<Separation>(trellis, x, learned, lesson).run();
        case Loss::softmax:
            return Trainer<Softmax>(trellis, x, learned, lesson).run();
        case Loss::logistic:
            return Trainer<Logistic>(trellis, x, learned, lesson).run();
    }
    return {};
}

}  // namespace

#define LTLS_TEXT_OF(name) #name
#define LTLS_TEXT(name) LTLS_TEXT_OF(name)

extern const Kernels table;
const Kernels table = {LTLS_TEXT(LTLS_ISA),
                       {edge_scores_of_rows, logistic_scores_of_rows, decode, train},
                       dynamic_programs<float>,
                       dynamic_programs<double>};

}  // namespace ltls::LTLS_ISA
