// The table of kernels. There is one build per instruction set, and one is selected at run time.
// A kernel runs in one thread; the bindings split the rows among threads.
#pragma once

#include <string>
#include <vector>

#include "inference/decode_options.hpp"
#include "linear/features.hpp"
#include "structure/loss_info.hpp"
#include "structure/trellis.hpp"
#include "training/label_task.hpp"
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
    // Returns the summed loss.
    double (*train_embedding)(const Features& x, const TrainableEmbedding&,
                              const EmbeddingExamples&, const EmbeddingChunk&, float learning_rate);
    // Adds weight × the embedding's scores to `count` candidates per row, and sorts them.
    void (*rerank)(const LabelVectors&, const float* row_vectors, float weight, Index rows,
                   Index count, Index* labels, float* scores);
    // The same with label weights, for rows first … last−1 of x; `weight` is that of the scores so
    // far.
    void (*rerank_by_weights)(const Features& x, const LabelWeights&, float weight, Index first,
                              Index last, Index count, Index* labels, float* scores);
    // A new trainer of label weights. The arguments must outlive it.
    LabelTrainer* (*label_trainer)(const Features& x, const LabelExamples&, const LabelOptions&);

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
