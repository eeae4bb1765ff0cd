// Learning: score, assign, lose, step, for one example after another or for batches of them.
#pragma once

#include <memory>
#include <vector>

#include "linear_model.hpp"
#include "losses.hpp"
#include "parallel.hpp"
#include "tasks.hpp"

namespace ltls::LTLS_ISA {

// What an example wants: W += rate · weight · row ⊗ u, in the runs of edges that move.
struct Step {
    Rows row;
    Buffer<float> u;
    Buffer<Index> bounds;  // where a run begins and where it ends, and so on
    Index n_bounds = 0;
    float weight = 0;
    double loss = 0;
    bool found = false, counts = false, hit = false;

    // Finds the runs. Most edges are far from all likely paths and would hardly move, but the
    // weights of every feature would have to be fetched for it: a vector of edges stays where it is
    // if none of them would move by a thousandth of a full step.
    void find_runs(Index edges) {
        constexpr Index vector = 16;
        constexpr float smallest = 1e-3f;
        bounds.keep(2 * (edges / vector + 1));
        n_bounds = 0;
        for (Index first = 0; first < edges; first += vector) {
            const Index last = first + vector < edges ? first + vector : edges;
            float largest = 0;
            for (Index e = first; e < last; ++e) {
                const float size = u[e] < 0 ? -u[e] : u[e];
                largest = size > largest ? size : largest;
            }
            if (largest < smallest) continue;
            if (n_bounds > 0 && bounds[n_bounds - 1] == first)
                --n_bounds;
            else
                bounds[n_bounds++] = first;
            bounds[n_bounds++] = last;
        }
    }
};

// One thread's way from an example to its step. The weights are only read.
template <class Rule>
class Student {
  public:
    Student(const Trellis& trellis, const Features& x, const Learned& learned, const Lesson& lesson)
        : trellis_(trellis),
          x_(x),
          learned_(learned),
          lesson_(lesson),
          loss_(trellis),
          h_(trellis.n_edges),
          decoded_(lesson.loss == Loss::logistic ? trellis.n_edges : 0),
          best_(trellis, 1) {}

    void look(Index example, Step& step) {
        step.weight = lesson_.example_weights ? lesson_.example_weights[example] : 1.0f;
        step.counts = step.hit = false;
        step.n_bounds = 0;
        step.loss = 0;
        if (step.weight == 0) return;
        step.row.load(x_, example, example + 1);
        if (lesson_.threshold > 0)
            thresholded_edge_scores(step.row, learned_.rows, lesson_.threshold, learned_.stride,
                                    trellis_.n_edges, h_);
        else
            edge_scores<float>(step.row, 1, learned_.rows, nullptr, learned_.stride,
                               trellis_.n_edges, h_);
        const Positives positives = find_positives(example);
        if (positives.count == 0 && lesson_.loss != Loss::logistic) return;
        step.counts = true;
        if (lesson_.count_hits) step.hit = positives.contains(best_path());
        step.u.keep(trellis_.n_edges);
        bool moves = false;
        step.loss = step.weight * loss_.step(h_, positives, lesson_.multilabel, step.u, moves);
        if (moves) step.find_runs(trellis_.n_edges);
    }

    // Whether a label of an example is still without a path.
    bool has_new_label(Index example) const {
        for (Index i = lesson_.label_ptr[example]; i < lesson_.label_ptr[example + 1]; ++i) {
            Index& path = lesson_.paths[i];
            if (path < 0) path = lesson_.assigner->path_of(lesson_.labels[i]);
            if (path < 0) return true;
        }
        return false;
    }

  private:
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

    const Trellis& trellis_;
    const Features x_;
    const Learned learned_;
    const Lesson lesson_;
    Rule loss_;
    Buffer<float> h_, decoded_;
    KBest<float> best_;
    Buffer<Index> positives_, ranked_;
};

// Takes the examples in batches: their steps are found from the same weights, threads sharing the
// examples, and then made, threads sharing the features. Every weight takes its steps in the order
// of the examples, so the number of threads changes nothing. A batch of one is plain online
// learning.
template <class Rule>
class Trainer {
  public:
    Trainer(const Trellis& trellis, const Features& x, const Learned& learned, const Lesson& lesson)
        : learned_(learned), lesson_(lesson), parts_(lesson.threads) {
        if (parts_ > lesson.batch) parts_ = lesson.batch;
        for (Index part = 0; part < parts_; ++part)
            students_.push_back(std::make_unique<Student<Rule>>(trellis, x, learned, lesson));
        for (Index i = 0; i < lesson.batch; ++i) steps_.push_back(std::make_unique<Step>());
    }

    Learnt run() {
        Learnt learnt;
        for (Index first = 0; first < lesson_.count; first += lesson_.batch) {
            const Index rest = lesson_.count - first;
            const Index count = rest < lesson_.batch ? rest : lesson_.batch;
            find_steps(lesson_.order + first, count);
            each_part([&](Index part) {
                for (Index i = 0; i < count; ++i) make_step(*steps_[i], part, first + i);
            });
            for (Index i = 0; i < count; ++i) {
                learnt.loss += steps_[i]->loss;
                learnt.hits += steps_[i]->hit;
                learnt.examples += steps_[i]->counts;
            }
        }
        return learnt;
    }

  private:
    template <class Work>
    void each_part(Work&& work) {
        in_parallel(parts_, static_cast<int>(parts_), [&](Index first, Index last) {
            for (Index part = first; part < last; ++part) work(part);
        });
    }

    void find_steps(const Index* examples, Index count) {
        // Examples with new labels change the codebook, so they come first and one by one.
        const bool assigns = parts_ > 1 && lesson_.assigner;
        for (Index i = 0; i < count; ++i) {
            steps_[i]->found = assigns && students_[0]->has_new_label(examples[i]);
            if (steps_[i]->found) students_[0]->look(examples[i], *steps_[i]);
        }
        each_part([&](Index part) {
            for (Index i = count * part / parts_; i < count * (part + 1) / parts_; ++i)
                if (!steps_[i]->found) students_[part]->look(examples[i], *steps_[i]);
        });
    }

    // Makes a step for the features of one part.
    void make_step(const Step& step, Index part, Index number) {
        if (step.n_bounds == 0) return;
        const double time = static_cast<double>(lesson_.clock + number);
        for (Index entry = 0; entry < step.row.size(); ++entry) {
            const Index feature = step.row.feature(entry), first = feature * learned_.stride;
            if (parts_ > 1 && feature % parts_ != part) continue;
            for (Index run = 0; run < step.n_bounds; run += 2) {
                const Index begin = step.bounds[run], at = first + begin;
                update(step.weight * step.row.value(entry), lesson_.rate, step.u + begin,
                       step.bounds[run + 1] - begin, learned_.rows + at,
                       learned_.squares ? learned_.squares + at : nullptr,
                       learned_.sums ? learned_.sums + at : nullptr, time);
            }
        }
    }

    const Learned learned_;
    const Lesson lesson_;
    Index parts_;
    std::vector<std::unique_ptr<Student<Rule>>> students_;
    std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace ltls::LTLS_ISA
