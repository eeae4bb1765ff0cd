// Stochastic gradient training of the linear model, by single examples or mini-batches.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/parallel.hpp"
#include "linear/edge_scores.hpp"
#include "structure/losses.hpp"
#include "training/train_task.hpp"
#include "training/update.hpp"

namespace ltls::LTLS_ISA {

// The step of one example, W += learning rate · weight · row ⊗ u. Only some ranges of edges are
// updated.
struct Step {
    Rows row;
    Buffer<float> u;
    Buffer<Index> bounds;  // begin and end of each range
    Index n_bounds = 0;
    float weight = 0;
    double loss = 0;
    bool computed = false, counts = false, hit = false;

    // Finds the ranges to update. Most edges are far from every likely path and have tiny steps,
    // but updating them would read the weights of every feature: a vector of edges is skipped if
    // none of its steps reaches a thousandth of a full one.
    void find_ranges(Index edges) {
        constexpr Index vector = 16;
        constexpr float smallest = 1e-3f;
        bounds.reserve(2 * (edges / vector + 1));
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

// Computes the steps of examples in one thread. It only reads the weights.
template <class Loss>
class Worker {
  public:
    Worker(const Trellis& trellis, const Features& x, const TrainableWeights& weights,
           const TrainExamples& examples, const TrainOptions& options)
        : trellis_(trellis),
          x_(x),
          weights_(weights),
          examples_(examples),
          options_(options),
          loss_(trellis),
          h_(trellis.n_edges),
          decode_scores_(HasDecodeScores<Loss> ? trellis.n_edges : 0),
          best_(trellis, 1) {}

    void compute_step(Index example, Step& step) {
        step.weight = examples_.example_weights ? examples_.example_weights[example] : 1.0f;
        step.counts = step.hit = false;
        step.n_bounds = 0;
        step.loss = 0;
        if (step.weight == 0) return;
        step.row.load(x_, example, example + 1);
        if (options_.threshold > 0)
            thresholded_edge_scores(step.row, weights_.rows, options_.threshold, weights_.stride,
                                    trellis_.n_edges, h_);
        else
            edge_scores<float>(step.row, 1, weights_.rows, nullptr, weights_.stride,
                               trellis_.n_edges, h_);
        const Positives positives = find_positives(example);
        if (Loss::needs_positives && positives.count == 0) return;
        step.counts = true;
        if (options_.count_hits) step.hit = positives.contains(best_path());
        step.u.reserve(trellis_.n_edges);
        const LossResult result = loss_.step(h_, positives, options_.multilabel, step.u);
        step.loss = step.weight * result.loss;
        if (result.has_step) step.find_ranges(trellis_.n_edges);
    }

    // Whether a label of an example has no path yet.
    bool has_new_label(Index example) const {
        for (Index i = examples_.label_ptr[example]; i < examples_.label_ptr[example + 1]; ++i) {
            Index& path = examples_.paths[i];
            if (path < 0) path = examples_.assigner->path_of(examples_.labels[i]);
            if (path < 0) return true;
        }
        return false;
    }

  private:
    // The positive paths of an example. New labels get a path.
    Positives find_positives(Index example) {
        const Index first = examples_.label_ptr[example];
        const Index count = examples_.label_ptr[example + 1] - first;
        positives_.reserve(count);
        for (Index i = 0; i < count; ++i) {
            Index& path = examples_.paths[first + i];
            if (path < 0) path = assign(examples_.labels[first + i]);
            positives_[i] = path;
        }
        // A lambda is a type of this namespace: instances of `std::sort` for other types would be
        // shared between instruction sets.
        Index* const paths = positives_;
        std::sort(paths, paths + count, [](Index a, Index b) { return a < b; });
        Index distinct = 0;  // labels may share a path
        for (Index i = 0; i < count; ++i)
            if (i == 0 || positives_[i] != positives_[i - 1])
                positives_[distinct++] = positives_[i];
        return {positives_, distinct};
    }

    Index assign(Index label) {
        PathAssigner& assigner = *examples_.assigner;
        const Index known = assigner.path_of(label);
        if (known >= 0) return known;
        Index k = assigner.n_ranked();
        if (k > trellis_.n_classes) k = trellis_.n_classes;
        best_.set_k(k);
        forward<1, KBest<float>, float>(trellis_, h_, best_);
        ranked_.reserve(k);
        Index count = 0;
        while (const auto* entry = count < k ? best_.next() : nullptr)
            ranked_[count++] = entry->path;
        return assigner.assign(label, ranked_, count);
    }

    Index best_path() {
        best_.set_k(1);
        const float* scores = h_;
        if constexpr (HasDecodeScores<Loss>) {
            Loss::decode_scores(trellis_, h_, decode_scores_);
            scores = decode_scores_;
        }
        forward<1, KBest<float>, float>(trellis_, scores, best_);
        const auto* best = best_.next();
        return best ? best->path : -1;
    }

    const Trellis& trellis_;
    const Features x_;
    const TrainableWeights weights_;
    const TrainExamples examples_;
    const TrainOptions options_;
    Loss loss_;
    Buffer<float> h_, decode_scores_;
    KBest<float> best_;
    Buffer<Index> positives_, ranked_;
};

// Trains on a chunk of rows in mini-batches. The steps of a mini-batch are computed from the same
// weights, with threads sharing the examples, and then applied, with threads sharing the features.
// Every weight is updated in the order of the examples, so the result does not depend on the number
// of threads.
template <class Loss>
class Trainer {
  public:
    Trainer(const Trellis& trellis, const Features& x, const TrainableWeights& weights,
            const TrainExamples& examples, const TrainOptions& options)
        : weights_(weights), options_(options), n_workers_(options.n_threads) {
        if (n_workers_ > options.batch_size) n_workers_ = options.batch_size;
        assigns_first_ = n_workers_ > 1 && examples.assigner;
        for (Index i = 0; i < n_workers_; ++i)
            workers_.push_back(
                std::make_unique<Worker<Loss>>(trellis, x, weights, examples, options));
    }

    TrainStats run(const TrainChunk& chunk) {
        const Index batch_size =
            chunk.count < options_.batch_size ? chunk.count : options_.batch_size;
        while (static_cast<Index>(steps_.size()) < batch_size)
            steps_.push_back(std::make_unique<Step>());
        TrainStats stats;
        for (Index first = 0; first < chunk.count; first += batch_size) {
            const Index rest = chunk.count - first;
            const Index count = rest < batch_size ? rest : batch_size;
            compute_steps(chunk.rows + first, count);
            each_worker([&](Index worker) {
                for (Index i = 0; i < count; ++i)
                    apply(*steps_[i], worker, static_cast<double>(chunk.step + first + i));
            });
            for (Index i = 0; i < count; ++i)
                stats += {steps_[i]->loss, steps_[i]->hit, steps_[i]->counts};
        }
        return stats;
    }

  private:
    template <class Work>
    void each_worker(Work&& work) {
        in_parallel(n_workers_, static_cast<int>(n_workers_), [&](Index first, Index last) {
            for (Index worker = first; worker < last; ++worker) work(worker);
        });
    }

    void compute_steps(const Index* examples, Index count) {
        // Examples with new labels modify the codebook, so they go first and sequentially.
        for (Index i = 0; i < count; ++i) {
            steps_[i]->computed = assigns_first_ && workers_[0]->has_new_label(examples[i]);
            if (steps_[i]->computed) workers_[0]->compute_step(examples[i], *steps_[i]);
        }
        each_worker([&](Index worker) {
            for (Index i = count * worker / n_workers_; i < count * (worker + 1) / n_workers_; ++i)
                if (!steps_[i]->computed) workers_[worker]->compute_step(examples[i], *steps_[i]);
        });
    }

    // Applies a step to the features that a worker owns.
    void apply(const Step& step, Index worker, double number) {
        if (step.n_bounds == 0) return;
        for (Index entry = 0; entry < step.row.size(); ++entry) {
            const Index feature = step.row.feature(entry), first = feature * weights_.stride;
            if (n_workers_ > 1 && feature % n_workers_ != worker) continue;
            for (Index range = 0; range < step.n_bounds; range += 2) {
                const Index begin = step.bounds[range], at = first + begin;
                update(step.weight * step.row.value(entry), options_.learning_rate, step.u + begin,
                       step.bounds[range + 1] - begin, weights_.rows + at,
                       weights_.squares ? weights_.squares + at : nullptr,
                       weights_.sums ? weights_.sums + at : nullptr, number);
            }
        }
    }

    const TrainableWeights weights_;
    const TrainOptions options_;
    Index n_workers_;
    bool assigns_first_;
    std::vector<std::unique_ptr<Worker<Loss>>> workers_;
    std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace ltls::LTLS_ISA
