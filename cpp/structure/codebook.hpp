// Codebooks: which label has which path.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "structure/label_map.hpp"

namespace ltls {

// A keyed permutation of 0 … size−1 in O(1) memory: a Feistel network over the next power of two,
// with cycle walking. Model files store only the key, so its output must never change.
class KeyedPermutation {
  public:
    KeyedPermutation(Index size, std::uint64_t key) : size_(size) {
        const int bits =
            std::max(2, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1))));
        low_bits_ = bits / 2;
        low_ = (std::uint64_t{1} << low_bits_) - 1;
        high_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
        Random random(key);
        for (std::uint64_t& round_key : keys_) round_key = random.next();
    }

    Index forward(Index x) const {
        std::uint64_t value = static_cast<std::uint64_t>(x);
        do {
            std::uint64_t low = value & low_, high = value >> low_bits_;
            for (int round = 0; round < rounds; round += 2) {
                low ^= mix(high, keys_[round]) & low_;
                high ^= mix(low, keys_[round + 1]) & high_;
            }
            value = high << low_bits_ | low;
        } while (value >= static_cast<std::uint64_t>(size_));
        return static_cast<Index>(value);
    }

    Index inverse(Index y) const {
        std::uint64_t value = static_cast<std::uint64_t>(y);
        do {
            std::uint64_t low = value & low_, high = value >> low_bits_;
            for (int round = rounds - 2; round >= 0; round -= 2) {
                high ^= mix(low, keys_[round + 1]) & high_;
                low ^= mix(high, keys_[round]) & low_;
            }
            value = high << low_bits_ | low;
        } while (value >= static_cast<std::uint64_t>(size_));
        return static_cast<Index>(value);
    }

  private:
    static constexpr int rounds = 16;

    static std::uint64_t mix(std::uint64_t half, std::uint64_t key) {
        std::uint64_t z = (half + key) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 32) * 0x94d049bb133111eb;
        return z >> 32;
    }

    Index size_;
    int low_bits_;
    std::uint64_t low_, high_;
    std::uint64_t keys_[rounds];
};

// A random assignment computed from a seed. It grows by blocks: block b permutes the labels
// sizes[b−1] … sizes[b]−1 among the paths of the same numbers, so growing never moves a label.
class RandomCodebook final : public LabelMap {
  public:
    RandomCodebook(const std::vector<Index>& sizes, std::uint64_t seed)
        : sizes_(sizes), seed_(seed) {
        Index first = 0;
        for (std::size_t block = 0; block < sizes.size(); ++block) {
            if (sizes[block] <= first)
                throw std::invalid_argument("sizes must increase, got " +
                                            std::to_string(sizes[block]) + " after " +
                                            std::to_string(first));
            blocks_.emplace_back(sizes[block] - first, seed + block * 0xd1342543de82ef95);
            first = sizes[block];
        }
    }

    Index size() const { return sizes_.back(); }
    const std::vector<Index>& sizes() const { return sizes_; }
    std::uint64_t seed() const { return seed_; }

    Index path_of(Index label) const override {
        const auto [block, first] = block_of(label);
        return first + blocks_[block].forward(label - first);
    }
    Index label_of(Index path) const override {
        const auto [block, first] = block_of(path);
        return first + blocks_[block].inverse(path - first);
    }

  private:
    struct Place {
        std::size_t block;
        Index first;
    };
    Place block_of(Index x) const {
        std::size_t block = sizes_.size() - 1;
        while (block > 0 && x < sizes_[block - 1]) --block;
        return {block, block > 0 ? sizes_[block - 1] : 0};
    }

    std::vector<Index> sizes_;
    std::uint64_t seed_;
    std::vector<KeyedPermutation> blocks_;
};

// An explicit assignment, in which paths may be free. label_[path] is the label of a path, or −1−p
// if the path is entry p of the list of free paths, so that any free path is removed in O(1).
class TableCodebook final : public LabelMap {
  public:
    TableCodebook(Index n_paths, const Index* paths, Index n_labels) {
        if (n_paths < 1)
            throw std::invalid_argument("n_paths must be at least 1, got " +
                                        std::to_string(n_paths));
        add_paths(n_paths);
        for (Index label = 0; label < n_labels; ++label)
            if (paths[label] != -1) assign(label, paths[label]);
        path_.resize(static_cast<std::size_t>(std::max<Index>(n_labels, this->n_labels())), -1);
    }

    Index n_paths() const { return static_cast<Index>(label_.size()); }
    Index n_labels() const { return static_cast<Index>(path_.size()); }
    Index n_free() const { return static_cast<Index>(free_.size()); }
    const std::vector<Index>& paths() const { return path_; }

    Index path_of(Index label) const override {
        return label < n_labels() ? path_[static_cast<std::size_t>(label)] : -1;
    }
    Index label_of(Index path) const override {
        return std::max<Index>(label_[static_cast<std::size_t>(path)], -1);
    }
    bool is_free(Index path) const { return label_[static_cast<std::size_t>(path)] < 0; }

    Index free_path() const {
        if (free_.empty())
            throw std::invalid_argument("no path is free: all " + std::to_string(n_paths()) +
                                        " have a label; grow the codebook");
        return free_.back();
    }

    void assign(Index label, Index path) {
        if (label < 0)
            throw std::invalid_argument("label must be at least 0, got " + std::to_string(label));
        if (path < 0 || path >= n_paths())
            throw std::invalid_argument("path must be between 0 and " +
                                        std::to_string(n_paths() - 1) + ", got " +
                                        std::to_string(path));
        if (!is_free(path))
            throw std::invalid_argument("path " + std::to_string(path) + " has label " +
                                        std::to_string(label_of(path)) + " already");
        if (label < n_labels() && path_of(label) != -1)
            throw std::invalid_argument("label " + std::to_string(label) + " has path " +
                                        std::to_string(path_of(label)) +
                                        " already; release it first");
        if (label >= n_labels()) path_.resize(static_cast<std::size_t>(label) + 1, -1);
        const Index place = -1 - label_[static_cast<std::size_t>(path)];
        const Index moved = free_.back();
        free_[static_cast<std::size_t>(place)] = moved;
        label_[static_cast<std::size_t>(moved)] = -1 - place;
        free_.pop_back();
        label_[static_cast<std::size_t>(path)] = label;
        path_[static_cast<std::size_t>(label)] = path;
    }

    void release(Index label) {
        if (label < 0 || label >= n_labels() || path_of(label) == -1)
            throw std::invalid_argument("label " + std::to_string(label) +
                                        " has no path to release");
        const Index path = path_of(label);
        path_[static_cast<std::size_t>(label)] = -1;
        add_free(path);
    }

    // Adds paths; the new ones are free.
    void grow(Index n_paths) {
        if (n_paths < this->n_paths())
            throw std::invalid_argument("n_paths must be at least " +
                                        std::to_string(this->n_paths()) + ", got " +
                                        std::to_string(n_paths));
        add_paths(n_paths);
    }

  private:
    void add_paths(Index n_paths) {
        const Index old = this->n_paths();
        label_.resize(static_cast<std::size_t>(n_paths));
        // In reverse, so that free_path() returns the shortest paths first.
        for (Index path = n_paths - 1; path >= old; --path) add_free(path);
    }
    void add_free(Index path) {
        label_[static_cast<std::size_t>(path)] = -1 - n_free();
        free_.push_back(path);
    }

    std::vector<Index> path_, label_, free_;
};

// Buckets: several labels share a path.
class BucketCodebook final : public LabelMap {
  public:
    BucketCodebook(Index n_paths, const Index* paths, Index n_labels)
        : paths_(paths, paths + n_labels), labels_(static_cast<std::size_t>(n_labels)) {
        if (n_paths < 1)
            throw std::invalid_argument("n_paths must be at least 1, got " +
                                        std::to_string(n_paths));
        start_.assign(static_cast<std::size_t>(n_paths) + 1, 0);
        for (const Index path : paths_) {
            if (path < 0 || path >= n_paths)
                throw std::invalid_argument("paths must be between 0 and " +
                                            std::to_string(n_paths - 1) + ", got " +
                                            std::to_string(path));
            ++start_[static_cast<std::size_t>(path) + 1];
        }
        for (std::size_t path = 1; path < start_.size(); ++path) start_[path] += start_[path - 1];
        std::vector<Index> next(start_);
        for (Index label = 0; label < n_labels; ++label) {
            Index& place = next[static_cast<std::size_t>(path_of(label))];
            labels_[static_cast<std::size_t>(place++)] = label;
        }
        buckets_ = {paths_.data(), labels_.data(), start_.data(), n_labels};
    }
    BucketCodebook(const BucketCodebook&) = delete;

    Index n_paths() const { return static_cast<Index>(start_.size()) - 1; }
    Index n_labels() const { return static_cast<Index>(paths_.size()); }

    Index path_of(Index label) const override {
        return label < n_labels() ? paths_[static_cast<std::size_t>(label)] : -1;
    }
    Index label_of(Index path) const override {
        const Index first = start_[static_cast<std::size_t>(path)];
        return first < start_[static_cast<std::size_t>(path) + 1]
                   ? labels_[static_cast<std::size_t>(first)]
                   : -1;
    }
    const Buckets* buckets() const override { return &buckets_; }

  private:
    std::vector<Index> paths_, labels_, start_;
    Buckets buckets_;
};

// The paper's assignment (section 5.1): the first free path among the m = O(log C) best, else any
// free path.
class RankingAssigner final : public PathAssigner {
  public:
    RankingAssigner(TableCodebook& codebook, Index multiplier)
        : codebook_(codebook),
          max_ranked_(multiplier *
                      std::bit_width(static_cast<std::uint64_t>(codebook.n_paths() - 1))) {}

    Index path_of(Index label) const override { return codebook_.path_of(label); }
    Index n_ranked() const override {
        return std::max<Index>(1,
                               std::min(codebook_.n_paths() - codebook_.n_free() + 2, max_ranked_));
    }
    Index assign(Index label, const Index* ranked, Index count) override {
        Index path = -1;
        for (Index i = 0; i < count && path < 0; ++i)
            if (codebook_.is_free(ranked[i])) path = ranked[i];
        if (path < 0) path = codebook_.free_path();
        codebook_.assign(label, path);
        return path;
    }

  private:
    TableCodebook& codebook_;
    Index max_ranked_;
};

}  // namespace ltls
