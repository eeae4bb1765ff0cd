// Buckets of similar labels, by balanced spherical 2-means.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
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
// are `n_buckets`. Every part has a random start of its own, so the result does not depend on the
// number of threads.
class SimilarBuckets {
  public:
    SimilarBuckets(const LabelVectorRows& vectors, Index n_buckets, std::uint64_t seed)
        : vectors_(vectors), n_buckets_(n_buckets), seed_(seed) {}

    void run(Index* buckets, int threads) {
        labels_.resize(static_cast<std::size_t>(vectors_.n_labels));
        std::iota(labels_.begin(), labels_.end(), Index{0});
        std::vector<Part> parts{{0, vectors_.n_labels, 0, n_buckets_}};
        while (!parts.empty()) {
            std::vector<Part> halves(2 * parts.size());
            in_parallel(static_cast<Index>(parts.size()), threads, [&](Index first, Index last) {
                Scratch scratch(vectors_.n_dimensions);
                for (Index i = first; i < last; ++i) {
                    const Part& part = parts[static_cast<std::size_t>(i)];
                    const Index left = part.n_buckets / 2, cut = part.count * left / part.n_buckets;
                    if (cut > 0) split(part, cut, scratch);
                    Part* const both = halves.data() + 2 * i;
                    both[0] = {part.first, cut, part.bucket, left};
                    both[1] = {part.first + cut, part.count - cut, part.bucket + left,
                               part.n_buckets - left};
                }
            });
            parts.clear();
            for (const Part& half : halves) {
                if (half.n_buckets > 1 && half.count > 1)
                    parts.push_back(half);
                else
                    for (Index i = half.first; i < half.first + half.count; ++i)
                        buckets[labels_[static_cast<std::size_t>(i)]] = half.bucket;
            }
        }
    }

  private:
    struct Part {
        Index first, count;       // of labels_
        Index bucket, n_buckets;  // to split into
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

    template <class Visit>
    void each_entry(Index label, Visit&& visit) const {
        for (Index i = vectors_.indptr[label]; i < vectors_.indptr[label + 1]; ++i)
            visit(static_cast<std::size_t>(vectors_.indices[i]), vectors_.values[i]);
    }

    // Reorders the labels of a part such that the first `cut` are similar, and so are the others.
    void split(const Part& part, Index cut, Scratch& s) {
        Index* const labels = labels_.data() + part.first;
        Index* const middle = labels + cut;
        Index* const end = labels + part.count;
        for (const Index* label = labels; label < end; ++label)
            each_entry(*label, [&](std::size_t at, float) {
                if (!s.used[at]) s.dimensions.push_back(at);
                s.used[at] = true;
            });
        Random random(seed_ ^ Random(static_cast<std::uint64_t>(part.bucket) << 32 ^
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
    const std::uint64_t seed_;
    std::vector<Index> labels_;
};

}  // namespace ltls
