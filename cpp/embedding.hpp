// The embedding that rescores candidates: features and labels as vectors of a small rank,
// score(x, label) = xA·b + c. It is learned by a softmax over the labels of a row, the candidates
// that the trellises give it, and a few labels drawn from a trellis that stand for all others, so a
// step does not depend on the number of labels.
#pragma once

#include "linear_model.hpp"
#include "tasks.hpp"

namespace ltls::LTLS_ISA {

// The inner product of a row's vector and a label's, whose last number c meets a 1. Rows are padded
// to whole vectors, and every lane of them sums by itself.
LTLS_INLINE float inner_product(const float* a, const float* b, Index length) {
    constexpr Index lanes = 16;
    float sums[lanes] = {};
    for (Index first = 0; first < length; first += lanes)
        for (Index lane = 0; lane < lanes; ++lane) sums[lane] += a[first + lane] * b[first + lane];
    float sum = 0;
    for (Index lane = 0; lane < lanes; ++lane) sum += sums[lane];
    return sum;
}

class EmbeddingLearner {
  public:
    EmbeddingLearner(const Features& x, const Embedding& embedding, const EmbeddingLesson& lesson)
        : x_(x),
          embedding_(embedding),
          lesson_(lesson),
          vector_(embedding.stride),
          step_(embedding.stride) {}

    double run() {
        double loss = 0;
        for (Index i = 0; i < lesson_.count; ++i) loss += learn(i);
        return loss;
    }

  private:
    double learn(Index place) {
        const Index example = lesson_.order[place];
        const Index n_positives = lesson_.label_ptr[example + 1] - lesson_.label_ptr[example];
        const float weight = lesson_.example_weights ? lesson_.example_weights[example] : 1.0f;
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
        choose(example, place);
        const double loss = score(n_positives);
        update(weight);
        return weight * loss;
    }

    // The labels that take part: the row's own, then the candidates, then samples.
    void choose(Index example, Index place) {
        const Index first = lesson_.label_ptr[example], last = lesson_.label_ptr[example + 1];
        const Index most = last - first + lesson_.n_candidates + lesson_.n_samples;
        labels_.keep(most);
        scores_.keep(most);
        stands_for_.keep(most);
        count_ = 0;
        for (Index i = first; i < last; ++i) labels_[count_++] = lesson_.labels[i];
        const Index* candidates = lesson_.candidates + example * lesson_.n_candidates;
        for (Index i = 0; i < lesson_.n_candidates; ++i)
            if (candidates[i] >= 0 && !has(candidates[i], count_))
                labels_[count_++] = candidates[i];
        n_certain_ = count_;
        for (Index i = 0; i < n_certain_; ++i) stands_for_[i] = 0;
        const Index first_sample = place * lesson_.n_samples;
        for (Index i = first_sample; i < first_sample + lesson_.n_samples; ++i)
            if (const Index label = lesson_.samples[i]; label >= 0 && !has(label, n_certain_)) {
                stands_for_[count_] = lesson_.stands_for[i];
                labels_[count_++] = label;
            }
    }
    bool has(Index label, Index count) const {
        bool found = false;
        for (Index i = 0; i < count; ++i) found |= labels_[i] == label;
        return found;
    }
    // Leaves in scores_ what each label should move by, and returns the loss. A sample stands for
    // 1 / (n_samples · its probability) labels, so that all samples stand for all other labels.
    double score(Index n_positives) {
        float highest = minus_infinity<float>;
        for (Index j = 0; j < count_; ++j) {
            const float* b = embedding_.labels + labels_[j] * embedding_.stride;
            scores_[j] = inner_product(vector_, b, embedding_.stride) + stands_for_[j];
            highest = scores_[j] > highest ? scores_[j] : highest;
        }
        const float each = 1 / static_cast<float>(n_positives);
        float sum = 0, own = 0;
        for (Index j = 0; j < n_positives; ++j) own += each * (scores_[j] - highest);
        for (Index j = 0; j < count_; ++j) sum += scores_[j] = exp_(scores_[j] - highest);
        for (Index j = 0; j < count_; ++j)
            scores_[j] = (j < n_positives ? each : 0) - scores_[j] / sum;
        return std::log(sum) - own;
    }

    void update(float weight) {
        const Index stride = embedding_.stride;
        for (Index i = 0; i < stride; ++i) step_[i] = 0;
        for (Index j = 0; j < count_; ++j) {
            const float move = weight * scores_[j];
            if (std::fabs(move) < smallest_move) continue;
            float* b = embedding_.labels + labels_[j] * stride;
            for (Index i = 0; i < stride; ++i) step_[i] += move * b[i];
            adagrad(move, vector_, embedding_.label_squares + labels_[j] * stride, b);
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
            numbers[i] += lesson_.rate * gradient / std::sqrt(squares[i]);
        }
    }

    static constexpr float smallest_move = 1e-5f;

    const Features x_;
    const Embedding embedding_;
    const EmbeddingLesson lesson_;
    Rows row_;
    Buffer<float> vector_, step_, scores_, stands_for_;
    Buffer<Index> labels_;
    Index count_ = 0, n_certain_ = 0;
};

// Adds weight × the embedding's score to those of a row's candidates, and puts the best first;
// equal ones stay in their order.
LTLS_INLINE void rescore_row(const Embedding& embedding, const float* vector, float weight,
                             Index count, Index* labels, float* scores) {
    for (Index i = 0; i < count && labels[i] >= 0; ++i) {
        const float* b = embedding.labels + labels[i] * embedding.stride;
        const float score = scores[i] + weight * inner_product(vector, b, embedding.stride);
        const Index label = labels[i];
        Index place = i;
        for (; place > 0 && score > scores[place - 1]; --place) {
            labels[place] = labels[place - 1];
            scores[place] = scores[place - 1];
        }
        labels[place] = label;
        scores[place] = score;
    }
}

}  // namespace ltls::LTLS_ISA
