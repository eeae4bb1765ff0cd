// The libFuzzer target of CSR inputs, as the kernels get them. The bindings validate a matrix, but
// another thread may change its arrays afterwards: whatever they hold, no kernel may read or write
// outside of them. Of a valid matrix, the edge scores must be those of a plain loop.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"
#include "structure/codebook.hpp"

using namespace ltls;

namespace {

constexpr Index n_features = 9, n_classes = 20, width = 3, n_trellises = 2, k = 4, most_rows = 24;

// Consumes an input from its start; what is missing is 0.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}

    template <class T>
    T take() {
        T value{};
        const std::size_t n = std::min(sizeof(T), left_);
        if (n) std::memcpy(&value, at_, n);
        at_ += n;
        left_ -= n;
        return value;
    }
    Index below(Index limit) { return take<std::uint8_t>() % limit; }

  private:
    const std::uint8_t* at_;
    std::size_t left_;
};

// Exactly as many elements as it says, so that the sanitizer sees a step beyond the last.
template <class T>
std::unique_ptr<T[]> array(Index size) {
    return std::make_unique<T[]>(static_cast<std::size_t>(size));
}

struct Model {
    Trellis trellis{n_classes, width};
    RandomCodebook first{{n_classes}, 1}, second{{n_classes}, 2};
    const LabelMap* maps[n_trellises] = {&first, &second};
    Index block = (trellis.n_edges + 15) / 16 * 16, stride = n_trellises * block;
    std::vector<float> dense, scales;
    std::vector<std::int8_t> rounded;
    std::vector<Index> row_ptr{0};
    std::vector<std::uint16_t> columns;

    Model() : dense(static_cast<std::size_t>((n_features + 1) * stride)), scales(n_features + 1) {
        std::minstd_rand random(1);
        std::normal_distribution<float> normal;
        for (float& each : dense) each = normal(random);
        for (float& each : scales) each = 0.01f;
        for (Index row = 0; row <= n_features; ++row) {
            for (Index column = row % 3; column < stride; column += 3) {
                columns.push_back(static_cast<std::uint16_t>(column));
                rounded.push_back(static_cast<std::int8_t>(random() % 255 - 127));
            }
            row_ptr.push_back(static_cast<Index>(columns.size()));
        }
    }
    Weights weights(bool pruned) const {
        if (pruned)
            return {Weights::pruned_i8, rounded.data(), scales.data(), stride,
                    row_ptr.data(),     columns.data()};
        return {Weights::f32, dense.data(), nullptr, stride, nullptr, nullptr};
    }
    DecodeOptions options(LossId loss) const {
        return {loss, block, maps, n_trellises, n_classes, 3, k};
    }
};

template <class Value, class Int>
struct Matrix {
    std::unique_ptr<Int[]> indptr, indices;
    std::unique_ptr<Value[]> values;
    Features x{};
    bool valid = true;

    Matrix(Input& input, Features::Kind kind) {
        x.kind = kind;
        x.n_rows = input.below(most_rows);
        x.n_values = input.below(64);
        x.n_features = n_features;
        x.longest_row = input.below(x.n_values + 1);
        x.intercept = input.below(2);
        x.unit_length = input.below(2);
        indptr = array<Int>(x.n_rows + 1);
        indices = array<Int>(x.n_values);
        values = array<Value>(x.n_values);
        const bool wild = input.below(2);  // any integers, or small ones, which are often valid
        const auto number = [&](Index limit) {
            return wild ? input.take<Int>() : static_cast<Int>(input.below(limit));
        };
        for (Index row = 0; row <= x.n_rows; ++row)
            indptr[row] = wild || !row ? number(1) : indptr[row - 1] + number(4);
        for (Index i = 0; i < x.n_values; ++i) {
            indices[i] = number(n_features);
            values[i] = wild ? input.take<Value>() : static_cast<Value>(input.take<std::int8_t>());
        }
        for (Index row = 0; row < x.n_rows; ++row)
            valid = valid && indptr[row] >= 0 && indptr[row] <= indptr[row + 1] &&
                    indptr[row + 1] <= x.n_values &&
                    indptr[row + 1] - indptr[row] <= static_cast<Int>(x.longest_row);
        for (Index i = 0; i < x.n_values; ++i)
            valid = valid && indices[i] >= 0 && indices[i] < n_features &&
                    std::fabs(values[i]) <= Value(1e15);
        x.values = values.get();
        x.indices = indices.get();
        x.indptr = indptr.get();
    }

    double edge_score(const Model& model, Index row, Index edge) const {
        double sum = x.intercept ? model.dense[n_features * model.stride + edge] : 0, squares = 0;
        for (Int i = indptr[row]; i < indptr[row + 1]; ++i)
            squares += double(values[i]) * values[i];
        const double scale = x.unit_length && squares > 0 ? 1 / std::sqrt(squares) : 1;
        for (Int i = indptr[row]; i < indptr[row + 1]; ++i)
            sum += scale * values[i] * model.dense[indices[i] * model.stride + edge];
        return sum;
    }
};

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
}

template <class Value, class Int>
void score(const Model& model, const Matrix<Value, Int>& matrix) {
    const Features& x = matrix.x;
    const auto h = array<float>(x.n_rows * model.stride);
    kernels().edge_scores(x, model.weights(false), model.stride, 0, x.n_rows, h.get());
    for (Index row = 0; matrix.valid && row < x.n_rows; ++row)
        for (Index edge = 0; edge < model.stride; ++edge) {
            const double expected = matrix.edge_score(model, row, edge);
            const double found = h[row * model.stride + edge];
            require(std::fabs(found - expected) <= 1e-2 + 1e-3 * std::fabs(expected) ||
                        std::fabs(expected) > 1e12,  // far terms cancel out
                    "edge scores are those of a plain loop");
        }
}

void predict(const Model& model, const Features& x, LossId loss, bool pruned) {
    const Weights weights = model.weights(pruned);
    const DecodeOptions options = model.options(loss);
    const std::unique_ptr<RowPredictor> predictor(
        kernels().predictor(model.trellis, options, weights, nullptr));
    const auto labels = array<Index>(x.n_rows * k);
    const auto scores = array<float>(x.n_rows * k);
    if (predictor->predict(x, 0, x.n_rows, labels.get(), scores.get()) >= 0) return;
    for (Index i = 0; i < x.n_rows * k; ++i) {
        require(labels[i] >= -1 && labels[i] < n_classes, "labels are in range");
        require(!std::isnan(scores[i]), "scores are numbers");
    }
}

void train(const Model& model, const Features& x, LossId loss, Index batch_size) {
    const Index rows = (n_features + 1) * model.block;
    const auto weights = array<float>(rows), squares = array<float>(rows);
    const auto label_ptr = array<Index>(x.n_rows + 1), order = array<Index>(x.n_rows);
    const auto labels = array<Index>(x.n_rows), paths = array<Index>(x.n_rows);
    for (Index row = 0; row < x.n_rows; ++row) {
        label_ptr[row + 1] = row + 1;
        order[row] = row;
        labels[row] = paths[row] = row % n_classes;
    }
    const TrainExamples examples{label_ptr.get(), labels.get(), paths.get(), nullptr, nullptr};
    const TrainOptions options{loss, false, 0.5f, 0, true, batch_size, 1};
    kernels().train(model.trellis, x, {weights.get(), squares.get(), nullptr, model.block},
                    examples, options, {order.get(), x.n_rows, 0});
}

template <class Value, class Int>
void use(Input& input, Features::Kind kind) {
    static const Model model;
    const LossId loss = static_cast<LossId>(input.below(kernels().n_losses));
    const Index pruned = input.below(2), batch_size = 1 + input.below(8);
    const Matrix<Value, Int> matrix(input, kind);
    score(model, matrix);
    predict(model, matrix.x, loss, pruned);
    train(model, matrix.x, loss, batch_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    switch (input.below(4)) {
        case 0:
            use<float, std::int32_t>(input, Features::csr_f32_i32);
            break;
        case 1:
            use<float, std::int64_t>(input, Features::csr_f32_i64);
            break;
        case 2:
            use<double, std::int32_t>(input, Features::csr_f64_i32);
            break;
        default:
            use<double, std::int64_t>(input, Features::csr_f64_i64);
    }
    return 0;
}
