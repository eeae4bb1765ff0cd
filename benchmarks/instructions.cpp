// The three hot paths, for callgrind to count their instructions: instructions PATH REPEATS.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

using namespace ltls;

namespace {

constexpr Index n_rows = 64, n_features = 1000, non_zeros = 50;

// Numbers between −1 and 1, the same everywhere.
float noise(Index i) {
    const auto mixed = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15;
    return static_cast<float>(mixed >> 40) * 0x1p-23f - 1.0f;
}

struct Data {
    std::vector<float> values;
    std::vector<std::int32_t> indices, indptr;
    Features view{};

    Data() {
        for (Index i = 0; i < n_rows * non_zeros; ++i) {
            values.push_back(noise(i));
            indices.push_back(static_cast<std::int32_t>(i * 7919 % n_features));
        }
        for (Index row = 0; row <= n_rows; ++row)
            indptr.push_back(static_cast<std::int32_t>(row * non_zeros));
        view = {Features::csr_f32_i32,
                values.data(),
                indices.data(),
                indptr.data(),
                n_rows,
                n_features,
                non_zeros,
                n_rows * non_zeros,
                false};
    }
};

std::vector<float> random_numbers(Index count) {
    std::vector<float> numbers;
    for (Index i = 0; i < count; ++i) numbers.push_back(noise(i));
    return numbers;
}

Index padded(Index edges) { return (edges + 15) / 16 * 16; }

// h = xW at width 2, a million classes.
void score(Index repeats) {
    const Data x;
    const Index stride = padded(Trellis(1'000'000, 2).n_edges);
    const std::vector<float> weights = random_numbers(n_features * stride);
    std::vector<float> h(static_cast<std::size_t>(n_rows * stride));
    const Weights w{Weights::f32, weights.data(), nullptr, stride};
    for (Index i = 0; i < repeats; ++i)
        kernels().edge_scores(x.view, w, stride, 0, n_rows, h.data());
}

// The five best paths at width 8, a million classes.
void top5(Index repeats) {
    const Trellis trellis(1'000'000, 8);
    const std::vector<float> h = random_numbers(n_rows * trellis.n_edges);
    std::vector<Index> paths(n_rows * 5);
    std::vector<float> scores(n_rows * 5);
    for (Index i = 0; i < repeats; ++i)
        kernels().single_precision.topk(trellis, h.data(), n_rows, 5, paths.data(), scores.data());
}

// Learning from a row with softmax and AdaGrad at width 8, ten thousand classes.
void update(Index repeats) {
    const Data x;
    const Trellis trellis(10'000, 8);
    const Index stride = padded(trellis.n_edges);
    std::vector<float> weights(static_cast<std::size_t>(n_features * stride), 0.0f);
    std::vector<float> squares(weights.size(), 1e-3f);
    std::vector<Index> order, pointers, labels, paths;
    for (Index row = 0; row <= n_rows; ++row) pointers.push_back(row);
    for (Index row = 0; row < n_rows; ++row) {
        order.push_back(row);
        labels.push_back(row);
        paths.push_back(row * 6151 % trellis.n_classes);
    }
    const TrainableWeights trainable{weights.data(), squares.data(), nullptr, stride};
    const TrainExamples examples{pointers.data(), labels.data(), paths.data(), nullptr, nullptr};
    TrainOptions options{};
    while (std::strcmp(kernels().losses[options.loss].name, "softmax") != 0) ++options.loss;
    options.learning_rate = 0.3f;
    options.batch_size = options.n_threads = 1;
    const TrainChunk chunk{order.data(), n_rows, 1};
    for (Index i = 0; i < repeats; ++i)
        kernels().train(trellis, x.view, trainable, examples, options, chunk);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::string path = argv[1];
    const Index repeats = std::atoll(argv[2]);
    if (path == "score") score(repeats);
    if (path == "top5") top5(repeats);
    if (path == "update") update(repeats);
    return 0;
}
