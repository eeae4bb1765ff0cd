// Reading rows of features in any supported format.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/buffer.hpp"
#include "linear/features.hpp"

namespace ltls::LTLS_ISA {

// Some rows of a feature matrix as (feature, value) entries, in reusable buffers.
class Rows {
  public:
    void load(const Features& x, Index first, Index last) {
        count_ = row_begin_ = 0;
        ends_.reserve(last - first);
        switch (x.kind) {
            case Features::csr_f32_i32:
                return load_csr<float, std::int32_t>(x, first, last);
            case Features::csr_f32_i64:
                return load_csr<float, std::int64_t>(x, first, last);
            case Features::csr_f64_i32:
                return load_csr<double, std::int32_t>(x, first, last);
            case Features::csr_f64_i64:
                return load_csr<double, std::int64_t>(x, first, last);
            case Features::dense_f32:
                return load_dense<float>(x, first, last);
            case Features::dense_f64:
                return load_dense<double>(x, first, last);
        }
    }

    // Row i has the entries begin(i) … end(i)−1.
    LTLS_INLINE Index begin(Index i) const { return i > 0 ? ends_[i - 1] : 0; }
    LTLS_INLINE Index end(Index i) const { return ends_[i]; }
    LTLS_INLINE Index size() const { return count_; }
    LTLS_INLINE Index feature(Index entry) const { return features_[entry]; }
    LTLS_INLINE float value(Index entry) const { return values_[entry]; }

  private:
    // The arrays were validated, but another thread may have changed them since: what points
    // outside of them now is skipped.
    template <class Value, class Int>
    void load_csr(const Features& x, Index first, Index last) {
        const Int* indptr = static_cast<const Int*>(x.indptr);
        const Int* indices = static_cast<const Int*>(x.indices);
        const Value* values = static_cast<const Value*>(x.values);
        reserve((last - first) * (x.longest_row + 1));
        for (Index row = first; row < last; ++row) {
            const Index begin = indptr[row], end = indptr[row + 1];
            // Unsigned: the difference of any two numbers may overflow.
            const auto length = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
            if (begin >= 0 && end <= x.n_values &&
                length <= static_cast<std::uint64_t>(x.longest_row))
                for (Index i = begin; i < end; ++i) {
                    const Index feature = indices[i];
                    if (static_cast<std::uint64_t>(feature) <
                        static_cast<std::uint64_t>(x.n_features))
                        add(feature, static_cast<float>(values[i]));
                }
            ends_[row - first] = end_row(x);
        }
    }
    template <class Value>
    void load_dense(const Features& x, Index first, Index last) {
        const Value* values = static_cast<const Value*>(x.values) + first * x.n_features;
        reserve((last - first) * (x.n_features + 1));
        for (Index row = first; row < last; ++row, values += x.n_features) {
            for (Index feature = 0; feature < x.n_features; ++feature)
                if (values[feature] != 0) add(feature, static_cast<float>(values[feature]));
            ends_[row - first] = end_row(x);
        }
    }
    void reserve(Index entries) {
        features_.reserve(entries);
        values_.reserve(entries);
    }
    LTLS_INLINE void add(Index feature, float value) {
        features_[count_] = feature;
        values_[count_++] = value;
    }
    // The intercept is one more feature, always 1.
    LTLS_INLINE Index end_row(const Features& x) {
        if (x.unit_length) divide_by_length();
        if (x.intercept) add(x.n_features, 1.0f);
        return row_begin_ = count_;
    }

    // In double, so that no square overflows or underflows.
    void divide_by_length() {
        double squares = 0;
        for (Index i = row_begin_; i < count_; ++i)
            squares += static_cast<double>(values_[i]) * static_cast<double>(values_[i]);
        if (squares == 0) return;
        const double scale = 1 / std::sqrt(squares);
        const float rounded = static_cast<float>(scale);
        if (std::isfinite(rounded))
            for (Index i = row_begin_; i < count_; ++i) values_[i] *= rounded;
        else  // all values are subnormal
            for (Index i = row_begin_; i < count_; ++i)
                values_[i] = static_cast<float>(values_[i] * scale);
    }

    Buffer<Index> features_, ends_;
    Buffer<float> values_;
    Index count_ = 0, row_begin_ = 0;
};

}  // namespace ltls::LTLS_ISA
