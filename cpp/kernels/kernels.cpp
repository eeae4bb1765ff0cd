// The kernels, compiled once per instruction set with LTLS_ISA naming the namespace of each build.
#include "kernels/kernels.hpp"

#include "inference/feature_predictor.hpp"
#include "linear/embedding.hpp"
#include "linear/label_weights.hpp"
#include "structure/losses.hpp"
#include "structure/row_groups.hpp"
#include "structure/sampler.hpp"
#include "training/embedding_trainer.hpp"
#include "training/label_trainer.hpp"
#include "training/trainer.hpp"

namespace ltls::LTLS_ISA {
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

double train_embedding(const Features& x, const TrainableEmbedding& embedding,
                       const EmbeddingExamples& examples, const EmbeddingChunk& chunk,
                       float learning_rate) {
    return EmbeddingTrainer(x, embedding, examples, chunk, learning_rate).run();
}

void rerank(const LabelVectors& vectors, const float* row_vectors, float weight, Index rows,
            Index count, Index* labels, float* scores) {
    Buffer<RankedLabel> scratch(count);
    for (Index row = 0; row < rows; ++row, row_vectors += vectors.stride)
        rerank_row(vectors, row_vectors, weight, count, labels + row * count, scores + row * count,
                   scratch);
}

void rerank_by_weights(const Features& x, const LabelWeights& weights, float weight, Index first,
                       Index last, Index count, Index* labels, float* scores) {
    LabelScorer scorer(weights, count);
    Rows row;
    for (Index i = first; i < last; ++i, labels += count, scores += count) {
        row.load(x, i, i + 1);
        scorer.rerank(row, 0, weight, labels, scores);
    }
}

LabelTrainer* label_trainer(const Features& x, const LabelExamples& examples,
                            const LabelOptions& options) {
    return new CoordinateDescent(x, examples, options);
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
                       .train_embedding = train_embedding,
                       .rerank = rerank,
                       .rerank_by_weights = rerank_by_weights,
                       .label_trainer = label_trainer};

}  // namespace ltls::LTLS_ISA
