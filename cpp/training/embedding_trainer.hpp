// Training of the embedding reranker by sampled softmax.
#pragma once

#include <cmath>

#include "core/vector_math.hpp"
#include "linear/embedding.hpp"
#include "linear/rows.hpp"
#include "training/train_task.hpp"

namespace ltls::LTLS_ISA {

// One pass of AdaGrad over a chunk of rows. The softmax runs over the labels of the row, its
// candidates and its importance-weighted samples, so that a step does not depend on the number of
// labels.
class EmbeddingTrainer {
  public:
    EmbeddingTrainer(const Features& x, const TrainableEmbedding& embedding,
                     const EmbeddingExamples& examples, const EmbeddingChunk& chunk,
                     float learning_rate)
        : x_(x),
          embedding_(embedding),
          examples_(examples),
          chunk_(chunk),
          learning_rate_(learning_rate),
          vector_(embedding.stride),
          step_(embedding.stride) {}

    double run() {
        double loss = 0;
        for (Index i = 0; i < chunk_.count; ++i) loss += train_on(i);
        return loss;
    }

  private:
    double train_on(Index place) {
        const Index example = chunk_.rows[place];
        const Index n_positives = examples_.label_ptr[example + 1] - examples_.label_ptr[example];
        const float weight = examples_.example_weights ? examples_.example_weights[example] : 1.0f;
        if (n_positives == 0 || weight == 0) return 0;
        row_.load(x_, example, example + 1);
        const Index stride = embedding_.stride;
        for (Index i = 0; i < stride; ++i) vector_[i] = 0;
        for (Index entry = 0; entry < row_.size(); ++entry) {
            const float* a = embedding_.features + row_.feature(entry) * stride;
            const float value = row_.value(entry);
            for (Index i = 0; i < stride; ++i) vector_[i] += value * a[i];
        }
        vector_[embedding_.rank] = 1;
        collect_labels(example, place);
        const double loss = compute_gradients(n_positives);
        update(weight);
        return weight * loss;
    }

    // The labels in the softmax: positives first, then candidates, then samples.
    void collect_labels(Index example, Index place) {
        const Index first = examples_.label_ptr[example], last = examples_.label_ptr[example + 1];
        const Index capacity = last - first + examples_.n_candidates + chunk_.n_samples;
        labels_.reserve(capacity);
        scores_.reserve(capacity);
        log_importance_.reserve(capacity);
        count_ = 0;
        for (Index i = first; i < last; ++i) labels_[count_++] = examples_.labels[i];
        const Index* candidates = examples_.candidates + example * examples_.n_candidates;
        for (Index i = 0; i < examples_.n_candidates; ++i)
            if (candidates[i] >= 0 && !contains(candidates[i], count_))
                labels_[count_++] = candidates[i];
        n_exact_ = count_;
        for (Index i = 0; i < n_exact_; ++i) log_importance_[i] = 0;
        const Index first_sample = place * chunk_.n_samples;
        for (Index i = first_sample; i < first_sample + chunk_.n_samples; ++i)
            if (const Index label = chunk_.samples[i]; label >= 0 && !contains(label, n_exact_)) {
                log_importance_[count_] = chunk_.log_importance[i];
                labels_[count_++] = label;
            }
    }
    bool contains(Index label, Index count) const {
        bool found = false;
        for (Index i = 0; i < count; ++i) found |= labels_[i] == label;
        return found;
    }

    // Replaces scores_ by minus the gradient of the loss in them, and returns the loss. A sample
    // has the importance weight 1 / (n_samples · its probability), so that the samples estimate the
    // sum over all other labels.
    double compute_gradients(Index n_positives) {
        float highest = minus_infinity<float>;
        for (Index j = 0; j < count_; ++j) {
            const float* b = embedding_.labels + labels_[j] * embedding_.stride;
            scores_[j] = inner_product(vector_, b, embedding_.stride) + log_importance_[j];
            highest = scores_[j] > highest ? scores_[j] : highest;
        }
        const float each = 1 / static_cast<float>(n_positives);
        float sum = 0, positive = 0;
        for (Index j = 0; j < n_positives; ++j) positive += each * (scores_[j] - highest);
        for (Index j = 0; j < count_; ++j) sum += scores_[j] = exp_(scores_[j] - highest);
        for (Index j = 0; j < count_; ++j)
            scores_[j] = (j < n_positives ? each : 0) - scores_[j] / sum;
        return std::log(sum) - positive;
    }

    void update(float weight) {
        const Index stride = embedding_.stride;
        for (Index i = 0; i < stride; ++i) step_[i] = 0;
        for (Index j = 0; j < count_; ++j) {
            const float scale = weight * scores_[j];
            if (std::fabs(scale) < min_scale) continue;
            float* b = embedding_.labels + labels_[j] * stride;
            for (Index i = 0; i < stride; ++i) step_[i] += scale * b[i];
            adagrad(scale, vector_, embedding_.label_squares + labels_[j] * stride, b);
        }
        step_[embedding_.rank] = 0;
        for (Index entry = 0; entry < row_.size(); ++entry) {
            const Index first = row_.feature(entry) * stride;
            adagrad(row_.value(entry), step_, embedding_.feature_squares + first,
                    embedding_.features + first);
        }
    }
    LTLS_INLINE void adagrad(float scale, const float* direction, float* squares, float* numbers) {
        for (Index i = 0; i < embedding_.stride; ++i) {
            const float gradient = scale * direction[i];
            squares[i] += gradient * gradient;
            numbers[i] += learning_rate_ * gradient / std::sqrt(squares[i]);
        }
    }

    static constexpr float min_scale = 1e-5f;  // smaller updates are skipped

    const Features x_;
    const TrainableEmbedding embedding_;
    const EmbeddingExamples examples_;
    const EmbeddingChunk chunk_;
    const float learning_rate_;
    Rows row_;
    Buffer<float> vector_, step_, scores_, log_importance_;
    Buffer<Index> labels_;
    Index count_ = 0;    // labels in the softmax
    Index n_exact_ = 0;  // those that are not samples
};

}  // namespace ltls::LTLS_ISA
