// The hot kernels behind one table, in the build that suits this machine's processor.
#pragma once

#include <string>
#include <vector>

#include "features.hpp"
#include "tasks.hpp"
#include "trellis.hpp"

namespace ltls {

// Each takes `rows` rows of edge scores one after another and returns the first row that holds NaN
// or +∞, or −1 where all is well.
template <class T>
struct DynamicPrograms {
    Index (*viterbi)(const Trellis&, const T* h, Index rows, Index* paths, T* scores);
    Index (*topk)(const Trellis&, const T* h, Index rows, Index k, Index* paths, T* scores);
    Index (*log_partition)(const Trellis&, const T* h, Index rows, T* totals);
    Index (*marginals)(const Trellis&, const T* h, Index rows, T* marginals);
    // n paths of every row, each row with a seed of its own: seed, seed + 1, …
    Index (*sample)(const Trellis&, const T* h, Index rows, Index n, std::uint64_t seed,
                    Index* paths, T* log_probabilities);
};

// The linear model; like the dynamic programs these work on a range of rows in one thread.
struct LinearKernels {
    // h = xW for rows first … last−1 of x, written one after another.
    void (*edge_scores)(const Features& x, const Weights&, Index edges, Index first, Index last,
                        float* h);
    // Reads the weights that those rows need and nothing else: what edge_scores is measured by.
    std::uint32_t (*read_rows)(const Features& x, const Weights&, Index first, Index last);
    // What a model of independent logistic edges decodes, see losses.hpp.
    void (*logistic_scores)(const Trellis&, const float* h, Index rows, float* g);
    // The best labels of rows of h; returns the first row that holds NaN or +∞, or −1.
    Index (*decode)(const Trellis&, const Decoding&, const float* h, Index rows, Index* labels,
                    float* scores);
    // A new predictor of features and weights; what it is given must outlive it.
    RowPredictor* (*predictor)(const Trellis&, const Decoding&, const Weights&);
    Learnt (*train)(const Trellis&, const Features& x, const Learned&, const Lesson&);
    // Returns the summed loss.
    double (*train_embedding)(const Features& x, const Embedding&, const EmbeddingLesson&);
    // Adds weight × the embedding's scores to those of `count` candidates a row, and sorts them.
    void (*rescore)(const Embedding&, const float* vectors, float weight, Index rows, Index count,
                    Index* labels, float* scores);
};

struct Kernels {
    const char* instruction_set;
    LinearKernels linear;
    DynamicPrograms<float> single_precision;
    DynamicPrograms<double> double_precision;

    template <class T>
    const DynamicPrograms<T>& programs() const {
        if constexpr (sizeof(T) == sizeof(float))
            return single_precision;
        else
            return double_precision;
    }
};

// The kernels in use: the fastest build that this machine supports, until another is chosen.
const Kernels& kernels();

// The instruction sets of this build that this machine supports, slowest first.
std::vector<std::string> instruction_sets();

// Chooses one of them, for tests and measurements; returns the name of the one used before.
std::string use_instruction_set(const std::string& name);

}  // namespace ltls
