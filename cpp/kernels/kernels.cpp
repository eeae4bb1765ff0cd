// The kernels, compiled once per instruction set with LTLS_ISA naming the namespace of each build.
#include "kernels/kernels.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "inference/feature_predictor.hpp"
#include "linear/dense_vectors.hpp"
#include "linear/row_index.hpp"
#include "linear/sparse_vectors.hpp"
#include "structure/losses.hpp"
#include "structure/row_groups.hpp"
#include "structure/sampler.hpp"
#include "training/trainer.hpp"

namespace ltls::LTLS_ISA {

SiblingTrainer* sibling_trainer(const Features&, const LabelRows&, const SiblingOptions&);

namespace {

// Runs the forward pass of Max or Log and calls `use` for each group of rows, unless a row is bad.
template <class Sum, class T, class Use>
Index each_group(const Trellis& trellis, const T* h, Index rows, Use&& use) {
    const Index bad = first_bad_row(h, rows, trellis.n_edges);
    if (bad < 0) RowGroups<Sum, T>(trellis).each(h, trellis.n_edges, rows, use);
    return bad;
}

template <class T>
Index viterbi(const Trellis& trellis, const T* h, Index rows, Index* paths, T* scores) {
    return each_group<Max>(
        trellis, h, rows,
        [&]<int Lanes>(Index row, const T* edge_scores, const Values<Max, T, Lanes>& values) {
            trace<Lanes>(trellis, edge_scores, values, paths + row);
            for (int lane = 0; lane < Lanes; ++lane) scores[row + lane] = values.total()[lane];
        });
}

template <class T>
Index topk(const Trellis& trellis, const T* h, Index rows, Index k, Index* paths, T* scores) {
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
    return each_group<Log>(
        trellis, h, rows, [&]<int Lanes>(Index row, const T*, const Values<Log, T, Lanes>& values) {
            for (int lane = 0; lane < Lanes; ++lane) totals[row + lane] = values.total()[lane];
        });
}

template <class T>
Index marginals(const Trellis& trellis, const T* h, Index rows, T* out) {
    const Index edges = trellis.n_edges;
    Buffer<T> vertex(trellis.width * row_lanes);
    Buffer<T> lanes(trellis.width <= max_interleaved_width ? edges * row_lanes : 0);
    return each_group<Log>(
        trellis, h, rows,
        [&]<int Lanes>(Index row, const T* edge_scores, const Values<Log, T, Lanes>& values) {
            T* rows_out = out + row * edges;
            if constexpr (Lanes == 1) {
                backward<1, T>(trellis, edge_scores, values, vertex, rows_out);
            } else {
                backward<Lanes, T>(trellis, edge_scores, values, vertex, lanes);
                deinterleave<Lanes, T>(lanes, edges, rows_out);
            }
        });
}

template <class T>
Index sample(const Trellis& trellis, const T* h, Index rows, Index n, std::uint64_t seed,
             Index* paths, T* log_probabilities) {
    const Index bad = first_bad_row(h, rows, trellis.n_edges);
    if (bad >= 0) return bad;
    Sampler<T> sampler(trellis);
    for (Index row = 0; row < rows; ++row, h += trellis.n_edges) {
        sampler.set_row(h);
        Random random(Random(seed + static_cast<std::uint64_t>(row)).next());
        for (Index i = row * n; i < (row + 1) * n; ++i)
            paths[i] = sampler.draw(random, log_probabilities[i]);
    }
    return -1;
}

template <class T>
constexpr DynamicPrograms<T> dynamic_programs = {viterbi<T>, topk<T>, log_partition<T>,
                                                 marginals<T>, sample<T>};

void edge_scores_of_rows(const Features& x, const Weights& weights, Index edges, Index first,
                         Index last, float* h) {
    EdgeScorer scorer(weights, edges);
    const Index step = EdgeScorer::chunk_rows(x);
    for (Index row = first; row < last; row += step)
        scorer.run(x, row, row + step < last ? row + step : last, h + (row - first) * edges);
}

Index decode(const Trellis& trellis, const DecodeOptions& options, const float* h, Index rows,
             Index* labels, float* scores) {
    return Decoder(trellis, options).run(h, rows, labels, scores);
}

RowPredictor* predictor(const Trellis& trellis, const DecodeOptions& options,
                        const Weights& weights, const Reranking* reranking) {
    return new FeaturePredictor(trellis, options, weights, reranking);
}

TrainStats train(const Trellis& trellis, const Features& x, const TrainableWeights& weights,
                 const TrainExamples& examples, const TrainOptions& options,
                 const TrainChunk& chunk) {
    return AllLosses::visit<TrainStats>(options.loss, [&]<class Loss>() {
        return Trainer<Loss>(trellis, x, weights, examples, options).run(chunk);
    });
}

void products(const SparseVectors& vectors, const Features& x, Index first, Index last, Index count,
              const Index* ids, float* products) {
    VectorProducts all(vectors);
    Rows row;
    for (Index i = first; i < last; ++i, ids += count, products += count) {
        row.load(x, i, i + 1);
        all.some(row, 0, ids, count, products);
    }
}

void largest_products(const SparseVectors& vectors, const Features& x, Index first, Index last,
                      Index count, Index* ids, float* products, Index n_known, const Index* known,
                      float* known_products) {
    VectorProducts all(vectors);
    BestLabels best(count, 12 * BestLabels::block);
    Rows row;
    for (Index i = first; i < last; ++i, ids += count, products += count) {
        row.load(x, i, i + 1);
        all.best(row, 0, best);
        const Index found = best.finish();
        best.sort();
        for (Index j = 0; j < count; ++j) {
            ids[j] = j < found ? best[j].label : -1;
            products[j] = j < found ? best[j].score : 0.0f;
        }
        if (n_known == 0) continue;
        all.products_of(known, n_known, known_products);
        known += n_known;
        known_products += n_known;
    }
}

void dense_scores(const DenseVectors& vectors, const std::int16_t* rows, const float* units,
                  Index n_rows, Index count, const Index* ids, float* scores) {
    const DenseProducts all(vectors);
    for (Index row = 0; row < n_rows; ++row, rows += 2 * vectors.n_pairs)
        for (Index j = row * count; j < (row + 1) * count; ++j)
            scores[j] = ids[j] < 0 ? 0.0f : all.one(rows, units[row], ids[j]);
}

void all_dense_scores(const DenseVectors& vectors, const std::int16_t* rows, const float* units,
                      Index n_rows, float* scores) {
    const DenseProducts all(vectors);
    const Index n = vectors.n_vectors;
    for (Index first = 0; first < n_rows; first += DenseProducts::most_rows)
        all.each_block(rows + first * 2 * vectors.n_pairs, units + first,
                       std::min(n_rows - first, DenseProducts::most_rows),
                       [&](Index row, Index begin, const float* block) {
                           std::copy_n(block, std::min(n - begin, BestLabels::block),
                                       scores + (first + row) * n + begin);
                       });
}

void highest_scores(const DenseVectors& vectors, const std::int16_t* rows, const float* units,
                    Index n_rows, Index count, Index* ids, float* scores) {
    const DenseProducts all(vectors);
    std::vector<std::unique_ptr<BestLabels>> best;
    for (Index row = 0; row < std::min(n_rows, DenseProducts::most_rows); ++row)
        best.push_back(std::make_unique<BestLabels>(count, 12 * BestLabels::block));
    const auto found = [&](Index row) -> BestLabels& {
        return *best[static_cast<std::size_t>(row)];
    };
    for (Index first = 0; first < n_rows; first += DenseProducts::most_rows) {
        const Index some = std::min(n_rows - first, DenseProducts::most_rows);
        for (Index row = 0; row < some; ++row) found(row).clear();
        all.each_block(rows + first * 2 * vectors.n_pairs, units + first, some,
                       [&](Index row, Index begin, const float* block) {
                           found(row).add_block(block, begin);
                       });
        for (Index row = 0; row < some; ++row) {
            found(row).finish();
            found(row).sort();
            for (Index j = 0; j < count; ++j, ++ids, ++scores) {
                *ids = found(row)[j].label;
                *scores = found(row)[j].score;
            }
        }
    }
}

void nearest_rows(const SparseRows& rows, const RowIndex& index, const Features& x, Index first,
                  Index last, Index k, Index* nearest, float* cosines) {
    NearestRows search(rows, index, k);
    Rows row;
    for (Index i = first; i < last; ++i, nearest += k, cosines += k) {
        row.load(x, i, i + 1);
        search.run(row, 0, nearest, cosines);
    }
}

void add_exponentials(const float* scores, Index count, float* totals) {
    for (Index i = 0; i < count; ++i) {
        const float high = scores[i] > totals[i] ? scores[i] : totals[i];
        const float low = scores[i] > totals[i] ? totals[i] : scores[i];
        const float sum = high + log_(1.0f + exp_(low - high));
        totals[i] = low > minus_infinity<float> ? sum : high;
    }
}

}  // namespace

#define LTLS_TEXT_OF(name) #name
#define LTLS_TEXT(name) LTLS_TEXT_OF(name)

extern const Kernels table;
const Kernels table = {.instruction_set = LTLS_TEXT(LTLS_ISA),
                       .losses = AllLosses::info,
                       .n_losses = AllLosses::count,
                       .single_precision = dynamic_programs<float>,
                       .double_precision = dynamic_programs<double>,
                       .edge_scores = edge_scores_of_rows,
                       .decode = decode,
                       .predictor = predictor,
                       .train = train,
                       .sibling_trainer = sibling_trainer,
                       .products = products,
                       .largest_products = largest_products,
                       .dense_scores = dense_scores,
                       .all_dense_scores = all_dense_scores,
                       .highest_scores = highest_scores,
                       .nearest_rows = nearest_rows,
                       .add_exponentials = add_exponentials};

}  // namespace ltls::LTLS_ISA
