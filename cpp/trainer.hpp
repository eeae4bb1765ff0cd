// Learning, one example after another: score, assign, lose, step.
#pragma once

#include "linear_model.hpp"
#include "losses.hpp"
#include "tasks.hpp"

namespace ltls::LTLS_ISA {

template <class Rule>
class Trainer {
  public:
    Trainer(const Trellis& trellis, const Features& x, const Learned& learned, const Lesson& lesson)
        : trellis_(trellis),
          x_(x),
          learned_(learned),
          lesson_(lesson),
          loss_(trellis),
          h_(trellis.n_edges),
          step_(trellis.n_edges),
          decoded_(lesson.loss == Loss::logistic ? trellis.n_edges : 0),
          best_(trellis, 1) {}

    Learnt run() {
        Learnt learnt;
        for (Index i = 0; i < lesson_.count; ++i)
            learn(lesson_.order[i], lesson_.clock + i, learnt);
        return learnt;
    }

  private:
    void learn(Index example, Index clock, Learnt& learnt) {
        const float weight = lesson_.example_weights ? lesson_.example_weights[example] : 1.0f;
        if (weight == 0) return;
        row_.load(x_, example, example + 1);
        if (lesson_.threshold > 0)
            thresholded_edge_scores(row_, learned_.rows, lesson_.threshold, learned_.stride,
                                    trellis_.n_edges, h_);
        else
            edge_scores<float>(row_, 1, learned_.rows, nullptr, learned_.stride, trellis_.n_edges,
                               h_);
        const Positives positives = find_positives(example);
        if (positives.count == 0 && lesson_.loss != Loss::logistic) return;
        ++learnt.examples;
        if (lesson_.count_hits) learnt.hits += positives.contains(best_path());
        bool moves = false;
        learnt.loss += weight * loss_.step(h_, positives, lesson_.multilabel, step_, moves);
        if (moves) update(weight, clock);
    }

    // The positive paths of an example, assigned where a label is new.
    Positives find_positives(Index example) {
        const Index first = lesson_.label_ptr[example];
        const Index count = lesson_.label_ptr[example + 1] - first;
        positives_.keep(count);
        for (Index i = 0; i < count; ++i) {
            Index& path = lesson_.paths[first + i];
            if (path < 0) path = assign(lesson_.labels[first + i]);
            positives_[i] = path;
            for (Index j = i; j > 0 && positives_[j - 1] > positives_[j]; --j) {
                const Index smaller = positives_[j];
                positives_[j] = positives_[j - 1];
                positives_[j - 1] = smaller;
            }
        }
        return {positives_, count};
    }

    // The paper's section 5.1: an unseen label takes the best free path among the top few.
    Index assign(Index label) {
        const Index known = lesson_.assigner->path_of(label);
        if (known >= 0) return known;
        Index k = lesson_.assigner->n_ranked();
        if (k > trellis_.n_classes) k = trellis_.n_classes;
        best_.keep(k);
        forward<1, KBest<float>, float>(trellis_, h_, best_);
        ranked_.keep(k);
        Index count = 0;
        while (const auto* entry = count < k ? best_.next() : nullptr)
            ranked_[count++] = entry->path;
        return lesson_.assigner->assign(label, ranked_, count);
    }

    Index best_path() {
        best_.keep(1);
        if (lesson_.loss == Loss::logistic) logistic_scores(trellis_, h_, decoded_);
        forward<1, KBest<float>, float>(trellis_, lesson_.loss == Loss::logistic ? decoded_ : h_,
                                        best_);
        const auto* best = best_.next();
        return best ? best->path : -1;
    }

    void update(float weight, Index clock) {
        for (Index entry = 0; entry < row_.size(); ++entry) {
            const Index first = row_.feature(entry) * learned_.stride;
            ltls::LTLS_ISA::update(
                weight * row_.value(entry), lesson_.rate, step_, trellis_.n_edges,
                learned_.rows + first, learned_.squares ? learned_.squares + first : nullptr,
                learned_.sums ? learned_.sums + first : nullptr, static_cast<double>(clock));
        }
    }

    const Trellis& trellis_;
    const Features x_;
    const Learned learned_;
    const Lesson lesson_;
    Rows row_;
    Rule loss_;
    Buffer<float> h_, step_, decoded_;
    KBest<float> best_;
    Buffer<Index> positives_, ranked_;
};

}  // namespace ltls::LTLS_ISA
