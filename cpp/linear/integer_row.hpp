// A row of features as integers, so that its inner products with int8 vectors are exact sums: the
// same for any number of threads, any order of additions and any instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/buffer.hpp"
#include "linear/rows.hpp"

namespace ltls::LTLS_ISA {

class IntegerRow {
  public:
    // Takes the features below `n_features` of row i.
    void load(const Rows& rows, Index i, Index n_features) {
        const Index begin = rows.begin(i), end = rows.end(i);
        features_.reserve(end - begin);
        values_.reserve(end - begin);
        count_ = 0;
        float largest = 0, total = 0;
        for (Index entry = begin; entry < end; ++entry) {
            if (rows.feature(entry) >= n_features) continue;
            const float size = std::fabs(rows.value(entry));
            largest = size > largest ? size : largest;
            total += size;
        }
        unit_ = 1;
        if (!(largest > 0)) return;
        // At most 2¹⁴, and such that no sum of products with int8 overflows.
        const float scale = std::min(
            {largest_value / largest, largest_total / total, std::numeric_limits<float>::max()});
        for (Index entry = begin; entry < end; ++entry) {
            const float value = std::nearbyint(rows.value(entry) * scale);
            if (value == 0 || rows.feature(entry) >= n_features) continue;
            features_[count_] = rows.feature(entry);
            values_[count_++] = static_cast<std::int32_t>(value);
        }
        unit_ = 1 / scale;
    }

    LTLS_INLINE Index size() const { return count_; }
    LTLS_INLINE Index feature(Index i) const { return features_[i]; }
    LTLS_INLINE std::int32_t value(Index i) const { return values_[i]; }
    // What the integers are multiplied by.
    LTLS_INLINE float unit() const { return unit_; }

  private:
    static constexpr float largest_value = 16384, largest_total = 1e7f;

    Buffer<Index> features_;
    Buffer<std::int32_t> values_;
    Index count_ = 0;
    float unit_ = 1;
};

}  // namespace ltls::LTLS_ISA
