// Buckets of similar labels, by balanced spherical 2-means.
#pragma once

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "core/parallel.hpp"
#include "core/random.hpp"

namespace ltls {

// Sparse vectors of labels, in CSR layout.
struct LabelVectorRows {
    const Index* indptr;
    const Index* indices;
    const float* values;
    Index n_labels, n_dimensions;
};

// Splits the labels into two parts of similar labels, each of these again, and so on, until there
// are `n_buckets`; once for every seed. Every part has a random start of its own, so the result
// does not depend on the number of threads. Threads take the largest parts first.
class SimilarBuckets {
  public:
    SimilarBuckets(const LabelVectorRows& vectors, Index n_buckets,
                   std::vector<std::uint64_t> seeds)
        : vectors_(vectors), n_buckets_(n_buckets), seeds_(std::move(seeds)) {}

    // Writes the bucket of every label, `n_labels` for each seed.
    void run(Index* buckets, int threads) {
        std::vector<Index> labels(static_cast<std::size_t>(vectors_.n_labels));
        std::iota(labels.begin(), labels.end(), Index{0});
        labels_.assign(seeds_.size(), labels);
        for (std::size_t seed = 0; seed < seeds_.size(); ++seed)
            add({seed, 0, vectors_.n_labels, 0, n_buckets_}, buckets);
        in_parallel(threads, threads, [&](Index first, Index last) {
            for (Index i = first; i < last; ++i) work(buckets);
        });
    }

  private:
    struct Part {
        std::size_t seed;
        Index first, count;       // of the seed's labels_
        Index bucket, n_buckets;  // to split into
        bool operator<(const Part& other) const { return count < other.count; }
    };
    // Vectors that are 0 except in some dimensions.
    struct Scratch {
        explicit Scratch(Index n_dimensions)
            : axis(static_cast<std::size_t>(n_dimensions)), mean(axis), used(axis.size()) {}
        std::vector<float> axis, mean;
        std::vector<bool> used;
        std::vector<std::size_t> dimensions;  // those that `used` marks
    };
    static constexpr int rounds = 8;

    // Splits parts until there are none, nor any that another thread is about to split.
    void work(Index* buckets) {
        Scratch scratch(vectors_.n_dimensions);
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return !parts_.empty() || n_busy_ == 0; });
            if (parts_.empty()) return;
            const Part part = parts_.top();
            parts_.pop();
            ++n_busy_;
            lock.unlock();
            const Index left = part.n_buckets / 2, cut = part.count * left / part.n_buckets;
            try {
                if (cut > 0) split(part, cut, scratch);
            } catch (...) {
                lock.lock();
                parts_ = {};
                --n_busy_;
                changed_.notify_all();
                throw;
            }
            lock.lock();
            add({part.seed, part.first, cut, part.bucket, left}, buckets);
            add({part.seed, part.first + cut, part.count - cut, part.bucket + left,
                 part.n_buckets - left},
                buckets);
            --n_busy_;
            changed_.notify_all();
        }
    }

    // Adds a part to those that are to be split, or writes its buckets.
    void add(const Part& part, Index* buckets) {
        if (part.n_buckets > 1 && part.count > 1) {
            parts_.push(part);
            return;
        }
        const std::vector<Index>& labels = labels_[part.seed];
        Index* const own = buckets + static_cast<Index>(part.seed) * vectors_.n_labels;
        for (Index i = part.first; i < part.first + part.count; ++i)
            own[labels[static_cast<std::size_t>(i)]] = part.bucket;
    }

    template <class Visit>
    void each_entry(Index label, Visit&& visit) const {
        for (Index i = vectors_.indptr[label]; i < vectors_.indptr[label + 1]; ++i)
            visit(static_cast<std::size_t>(vectors_.indices[i]), vectors_.values[i]);
    }

    // Reorders the labels of a part such that the first `cut` are similar, and so are the others.
    void split(const Part& part, Index cut, Scratch& s) {
        Index* const labels = labels_[part.seed].data() + part.first;
        Index* const middle = labels + cut;
        Index* const end = labels + part.count;
        for (const Index* label = labels; label < end; ++label)
            each_entry(*label, [&](std::size_t at, float) {
                if (!s.used[at]) s.dimensions.push_back(at);
                s.used[at] = true;
            });
        Random random(seeds_[part.seed] ^ Random(static_cast<std::uint64_t>(part.bucket) << 32 ^
                                                 static_cast<std::uint64_t>(part.n_buckets))
                                              .next());
        const std::uint64_t count = static_cast<std::uint64_t>(part.count);
        const std::uint64_t a = random.next() % count;
        const std::uint64_t b = (a + 1 + random.next() % (count - 1)) % count;
        each_entry(labels[a], [&](std::size_t at, float value) { s.axis[at] += value; });
        each_entry(labels[b], [&](std::size_t at, float value) { s.axis[at] -= value; });
        std::vector<std::pair<float, Index>> ranked(count);
        std::vector<Index> before;
        for (int round = 0; round < rounds; ++round) {
            for (std::uint64_t i = 0; i < count; ++i) {
                float sum = 0;
                each_entry(labels[i],
                           [&](std::size_t at, float value) { sum += s.axis[at] * value; });
                ranked[i] = {-sum, labels[i]};
            }
            std::nth_element(ranked.begin(), ranked.begin() + cut, ranked.end());
            for (std::uint64_t i = 0; i < count; ++i) labels[i] = ranked[i].second;
            std::sort(labels, middle);
            std::sort(middle, end);
            if (std::equal(before.begin(), before.end(), labels, middle)) break;
            before.assign(labels, middle);
            // The difference of the two means, each scaled to length 1.
            for (const std::size_t at : s.dimensions) s.axis[at] = 0;
            add_mean(labels, middle, 1, s);
            add_mean(middle, end, -1, s);
        }
        for (const std::size_t at : s.dimensions) {
            s.axis[at] = 0;
            s.used[at] = false;
        }
        s.dimensions.clear();
    }

    // Adds the mean of some labels to the axis, scaled to length 1 and with a sign.
    void add_mean(const Index* first, const Index* last, float sign, Scratch& s) const {
        for (const Index* label = first; label < last; ++label)
            each_entry(*label, [&](std::size_t at, float value) { s.mean[at] += value; });
        double squares = 0;
        for (const std::size_t at : s.dimensions)
            squares += static_cast<double>(s.mean[at]) * static_cast<double>(s.mean[at]);
        const float scale = squares > 0 ? sign / static_cast<float>(std::sqrt(squares)) : 0;
        for (const std::size_t at : s.dimensions) {
            s.axis[at] += scale * s.mean[at];
            s.mean[at] = 0;
        }
    }

    const LabelVectorRows vectors_;
    const Index n_buckets_;
    const std::vector<std::uint64_t> seeds_;
    std::vector<std::vector<Index>> labels_;  // of every seed
    std::priority_queue<Part> parts_;         // to be split
    Index n_busy_ = 0;                        // threads that split one
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace ltls
