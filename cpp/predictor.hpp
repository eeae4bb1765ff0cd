// From the edge scores of a row to its best labels, over one or several trellises.
#pragma once

#include "losses.hpp"

namespace ltls::LTLS_ISA {

class Predictor {
  public:
    Predictor(const Trellis& trellis, const Decoding& decoding)
        : trellis_(trellis),
          decoding_(decoding),
          best_(trellis, decoding.n_paths),
          log_values_(trellis),
          decoded_(decoding.loss == Loss::logistic ? decoding.n_trellises * decoding.block : 0) {
        while (slots_ < 4 * decoding.n_trellises * decoding.n_paths) slots_ *= 2;
        seen_.keep(slots_);
    }

    // Writes the k best labels and their scores, best first; −1 and −∞ where there are fewer.
    void run(const float* h, Index* labels, float* scores) {
        const Index k = decoding_.k, n_trellises = decoding_.n_trellises;
        for (Index i = 0; i < k; ++i) {
            labels[i] = -1;
            scores[i] = minus_infinity<float>;
        }
        for (Index i = 0; i < slots_; ++i) seen_[i] = -1;
        const float* g = h;
        if (decoding_.loss == Loss::logistic) {
            for (Index r = 0; r < n_trellises; ++r)
                logistic_scores(trellis_, h + r * decoding_.block, decoded_ + r * decoding_.block);
            g = decoded_;
        }
        for (Index r = 0; r < n_trellises; ++r) {
            forward<1, KBest<float>, float>(trellis_, g + r * decoding_.block, best_);
            for (Index i = 0; i < decoding_.n_paths; ++i) {
                const auto* entry = best_.next();
                if (!entry) break;
                const auto [score, path] = *entry;
                const Index label = decoding_.codebooks[r]->label_of(path);
                if (label < 0 || label >= decoding_.n_labels) continue;
                if (n_trellises == 1)
                    insert(label, score, labels, scores);
                else if (is_new(label))
                    insert(label, total(g, label), labels, scores);
            }
        }
        if (decoding_.loss == Loss::softmax) {  // log-probabilities
            const float offset = log_partitions(h);
            for (Index i = 0; i < k; ++i) scores[i] -= offset;
        }
    }

  private:
    // The sum over all trellises of the score of a label's path.
    float total(const float* g, Index label) const {
        float sum = 0;
        for (Index r = 0; r < decoding_.n_trellises; ++r) {
            const Index path = decoding_.codebooks[r]->path_of(label);
            if (path < 0) return minus_infinity<float>;
            sum += path_score(trellis_, g + r * decoding_.block, path);
        }
        return sum;
    }

    float log_partitions(const float* h) {
        float sum = 0;
        for (Index r = 0; r < decoding_.n_trellises; ++r) {
            forward<1>(trellis_, h + r * decoding_.block, log_values_);
            sum += log_values_.total()[0];
        }
        return sum;
    }

    // Whether a candidate comes for the first time: a hash table with linear probing.
    bool is_new(Index label) {
        const std::uint64_t hash = static_cast<std::uint64_t>(label) * 0x9e3779b97f4a7c15;
        for (Index slot = static_cast<Index>(hash >> 32) & (slots_ - 1);;
             slot = (slot + 1) & (slots_ - 1)) {
            if (seen_[slot] == label) return false;
            if (seen_[slot] < 0) {
                seen_[slot] = label;
                return true;
            }
        }
    }

    // Keeps the k best in order; of equal ones the first that came stays ahead.
    void insert(Index label, float score, Index* labels, float* scores) const {
        Index i = decoding_.k;
        if (!(score > scores[i - 1])) return;
        for (--i; i > 0 && score > scores[i - 1]; --i) {
            labels[i] = labels[i - 1];
            scores[i] = scores[i - 1];
        }
        labels[i] = label;
        scores[i] = score;
    }

    const Trellis& trellis_;
    const Decoding decoding_;
    KBest<float> best_;
    Values<Log, float, 1> log_values_;
    Buffer<float> decoded_;
    Buffer<Index> seen_;
    Index slots_ = 16;
};

}  // namespace ltls::LTLS_ISA
