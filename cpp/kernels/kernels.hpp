// The table of kernels. There is one build per instruction set, and one is selected at run time.
// A kernel runs in one thread; the bindings split the rows among threads.
#pragma once

#include <string>
#include <vector>

#include "inference/decode_options.hpp"
#include "linear/features.hpp"
#include "linear/row_index.hpp"
#include "structure/loss_info.hpp"
#include "structure/trellis.hpp"
#include "training/sibling_task.hpp"
#include "training/train_task.hpp"

namespace ltls {

// The dynamic programs. Each takes `rows` contiguous rows of edge scores and returns the first row
// with NaN or +∞, or −1.
template <class T>
struct DynamicPrograms {
    Index (*viterbi)(const Trellis&, const T* h, Index rows, Index* paths, T* scores);
    Index (*topk)(const Trellis&, const T* h, Index rows, Index k, Index* paths, T* scores);
    Index (*log_partition)(const Trellis&, const T* h, Index rows, T* totals);
    Index (*marginals)(const Trellis&, const T* h, Index rows, T* marginals);
    // Draws n paths per row. Row i uses the random stream of seed + i.
    Index (*sample)(const Trellis&, const T* h, Index rows, Index n, std::uint64_t seed,
                    Index* paths, T* log_probabilities);
};

// One build of the kernels.
struct Kernels {
    const char* instruction_set;
    const LossInfo* losses;  // indexed by LossId
    int n_losses;
    DynamicPrograms<float> single_precision;
    DynamicPrograms<double> double_precision;

    // h = xW for rows first … last−1 of x, written contiguously.
    void (*edge_scores)(const Features& x, const Weights&, Index edges, Index first, Index last,
                        float* h);
    // The best labels of rows of h. Returns the first row with NaN or +∞, or −1.
    Index (*decode)(const Trellis&, const DecodeOptions&, const float* h, Index rows, Index* labels,
                    float* scores);
    // A new predictor from features. The arguments must outlive it.
    // Without a reranking, the candidates are returned.
    RowPredictor* (*predictor)(const Trellis&, const DecodeOptions&, const Weights&,
                               const Reranking*);
    TrainStats (*train)(const Trellis&, const Features& x, const TrainableWeights&,
                        const TrainExamples&, const TrainOptions&, const TrainChunk&);
    // A new trainer of label weights. The arguments must outlive it.
    SiblingTrainer* (*sibling_trainer)(const Features& x, const LabelRows&, const SiblingOptions&);
    // The inner products of rows first … last−1 of x with `count` given vectors each.
    void (*products)(const SparseVectors&, const Features& x, Index first, Index last, Index count,
                     const Index* ids, float* products);
    // The `count` vectors with the largest inner products above 0, best first; −1 and 0 if there
    // are fewer. And the inner products with `n_known` given vectors each.
    void (*largest_products)(const SparseVectors&, const Features& x, Index first, Index last,
                             Index count, Index* ids, float* products, Index n_known,
                             const Index* known, float* known_products);
    // The scores of `count` given dense vectors for each of some rows of integers.
    void (*dense_scores)(const DenseVectors&, const std::int16_t* rows, const float* units,
                         Index n_rows, Index count, const Index* ids, float* scores);
    // Those of all vectors.
    void (*all_dense_scores)(const DenseVectors&, const std::int16_t* rows, const float* units,
                             Index n_rows, float* scores);
    // The `count` dense vectors with the highest scores, best first; there are at least so many.
    void (*highest_scores)(const DenseVectors&, const std::int16_t* rows, const float* units,
                           Index n_rows, Index count, Index* ids, float* scores);
    // The k rows with the largest cosines, best first; −1 and 0 if there are fewer.
    void (*nearest_rows)(const SparseRows&, const RowIndex&, const Features& x, Index first,
                         Index last, Index k, Index* nearest, float* cosines);
    // totals = log(eᵗᵒᵗᵃˡˢ + eˢᶜᵒʳᵉˢ)
    void (*add_exponentials)(const float* scores, Index count, float* totals);

    template <class T>
    const DynamicPrograms<T>& programs() const {
        if constexpr (sizeof(T) == sizeof(float))
            return single_precision;
        else
            return double_precision;
    }
};

// The build in use: the fastest that this machine supports, unless use_instruction_set() was
// called.
const Kernels& kernels();

// The instruction sets of this build that this machine supports, slowest first.
std::vector<std::string> instruction_sets();

// Selects a build, for tests and measurements. Returns the name of the previous one.
std::string use_instruction_set(const std::string& name);

}  // namespace ltls
