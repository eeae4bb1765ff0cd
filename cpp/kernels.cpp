// Compiled once per instruction set; LTLS_ISA names the namespace of each build.
#include "kernels.hpp"

#include "dynamic_program.hpp"
#include "embedding.hpp"
#include "predictor.hpp"
#include "row_groups.hpp"
#include "sampler.hpp"
#include "trainer.hpp"

namespace ltls::LTLS_ISA {
namespace {

// One class has one path without edges.
template <class T>
void fill(T* out, Index count, T value) {
    for (Index i = 0; i < count; ++i) out[i] = value;
}

// Runs the forward pass of Max or Log and gives each group of rows to `use`, unless a row is bad.
template <class Sum, class T, class Use>
Index each_group(const Trellis& trellis, const T* h, Index rows, Use&& use) {
    const Index bad = first_bad_row(h, rows, trellis.n_edges);
    if (bad < 0) RowGroups<Sum, T>(trellis).each(h, trellis.n_edges, rows, use);
    return bad;
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
Index sample(const Trellis& trellis, const T* h, Index rows, Index n, std::uint64_t seed,
             Index* paths, T* log_probabilities) {
    if (trellis.n_slices == 0) {
        fill(paths, rows * n, Index{0});
        fill(log_probabilities, rows * n, T(0));
        return -1;
    }
    const Index bad = first_bad_row(h, rows, trellis.n_edges);
    if (bad >= 0) return bad;
    Sampler<T> sampler(trellis);
    for (Index row = 0; row < rows; ++row, h += trellis.n_edges) {
        sampler.see(h);
        Random random(Random(seed + static_cast<std::uint64_t>(row)).next());
        for (Index i = row * n; i < (row + 1) * n; ++i)
            paths[i] = sampler.draw(random, log_probabilities[i]);
    }
    return -1;
}

template <class T>
constexpr DynamicPrograms<T> dynamic_programs = {viterbi<T>, topk<T>, log_partition<T>,
                                                 marginals<T>, sample<T>};

// h = xW for a few rows at a time.
class Scorer {
  public:
    Scorer(const Weights& weights, Index edges) : weights_(weights), edges_(edges) {}

    // How many rows to take at a time: enough that the next row's weights are asked for while this
    // one's are read, and no more than fit in a fast cache.
    static Index rows_at_a_time(const Features& x) {
        constexpr Index most_entries = 1 << 14;
        const Index rows = most_entries / (x.longest_row + 1);
        return rows < 1 ? 1 : rows < row_lanes ? rows : row_lanes;
    }

    void run(const Features& x, Index first, Index last, float* h) {
        with_weights(x, first, last, [&](const auto* rows) {
            edge_scores(rows_, last - first, rows, weights_.scales, weights_.stride, edges_, h);
        });
    }
    std::uint32_t read(const Features& x, Index first, Index last) {
        std::uint32_t result = 0;
        with_weights(x, first, last,
                     [&](const auto* rows) { result = read_rows(rows_, rows, weights_.stride); });
        return result;
    }

  private:
    template <class Use>
    void with_weights(const Features& x, Index first, Index last, Use&& use) {
        rows_.load(x, first, last);
        switch (weights_.kind) {
            case Weights::f32:
                return use(static_cast<const float*>(weights_.rows));
            case Weights::f16:
                return use(static_cast<const std::uint16_t*>(weights_.rows));
            case Weights::i8:
                return use(static_cast<const std::int8_t*>(weights_.rows));
        }
    }

    const Weights weights_;
    const Index edges_;
    Rows rows_;
};

void edge_scores_of_rows(const Features& x, const Weights& weights, Index edges, Index first,
                         Index last, float* h) {
    Scorer scorer(weights, edges);
    const Index step = Scorer::rows_at_a_time(x);
    for (Index row = first; row < last; row += step)
        scorer.run(x, row, row + step < last ? row + step : last, h + (row - first) * edges);
}

std::uint32_t read_rows_of(const Features& x, const Weights& weights, Index first, Index last) {
    Scorer scorer(weights, 0);
    const Index step = Scorer::rows_at_a_time(x);
    std::uint32_t result = 0;
    for (Index row = first; row < last; row += step)
        result ^= scorer.read(x, row, row + step < last ? row + step : last);
    return result;
}

Index decode(const Trellis& trellis, const Decoding& decoding, const float* h, Index rows,
             Index* labels, float* scores) {
    return Predictor(trellis, decoding).run(h, rows, labels, scores);
}

// Scores a few rows and decodes them while their scores are still in the cache.
class FeaturePredictor final : public RowPredictor {
  public:
    FeaturePredictor(const Trellis& trellis, const Decoding& decoding, const Weights& weights)
        : decoding_(decoding),
          edges_(decoding.n_trellises * decoding.block),
          scorer_(weights, edges_),
          predictor_(trellis, decoding),
          h_(edges_ * row_lanes) {}

    Index predict(const Features& x, Index first, Index last, Index* labels,
                  float* scores) override {
        const Index step = Scorer::rows_at_a_time(x);
        for (Index row = first; row < last; row += step) {
            const Index end = row + step < last ? row + step : last;
            scorer_.run(x, row, end, h_);
            const Index place = (row - first) * decoding_.k;
            const Index bad = predictor_.run(h_, end - row, labels + place, scores + place);
            if (bad >= 0) return row + bad;
        }
        return -1;
    }

  private:
    const Decoding decoding_;
    const Index edges_;
    Scorer scorer_;
    Predictor predictor_;
    Buffer<float> h_;
};

RowPredictor* predictor(const Trellis& trellis, const Decoding& decoding, const Weights& weights) {
    return new FeaturePredictor(trellis, decoding, weights);
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

double train_embedding(const Features& x, const Embedding& embedding,
                       const EmbeddingLesson& lesson) {
    return EmbeddingLearner(x, embedding, lesson).run();
}

void rescore(const Embedding& embedding, const float* vectors, float weight, Index rows,
             Index count, Index* labels, float* scores) {
    for (Index row = 0; row < rows; ++row, vectors += embedding.stride)
        rescore_row(embedding, vectors, weight, count, labels + row * count, scores + row * count);
}

}  // namespace

#define LTLS_TEXT_OF(name) #name
#define LTLS_TEXT(name) LTLS_TEXT_OF(name)

extern const Kernels table;
const Kernels table = {LTLS_TEXT(LTLS_ISA),
                       {edge_scores_of_rows, read_rows_of, logistic_scores_of_rows, decode,
                        predictor, train, train_embedding, rescore},
                       dynamic_programs<float>,
                       dynamic_programs<double>};

}  // namespace ltls::LTLS_ISA
