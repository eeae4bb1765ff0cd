// The linear model: h = xW and W += x ⊗ u. W is stored by feature, so one non-zero feature reads
// one contiguous row.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "features.hpp"
#include "semiring.hpp"

namespace ltls::LTLS_ISA {

// One example: feature numbers and values, in buffers that every row reuses.
class Row {
  public:
    explicit Row(const Features& x) : features_(x.longest_row + 1), values_(x.longest_row + 1) {}

    void load(const Features& x, Index row) {
        count_ = 0;
        switch (x.kind) {
            case Features::csr_f32_i32:
                return load_csr<float, std::int32_t>(x, row);
            case Features::csr_f32_i64:
                return load_csr<float, std::int64_t>(x, row);
            case Features::csr_f64_i32:
                return load_csr<double, std::int32_t>(x, row);
            case Features::csr_f64_i64:
                return load_csr<double, std::int64_t>(x, row);
            case Features::dense_f32:
                return load_dense<float>(x, row);
            case Features::dense_f64:
                return load_dense<double>(x, row);
        }
    }

    LTLS_INLINE Index size() const { return count_; }
    LTLS_INLINE Index feature(Index i) const { return features_[i]; }
    LTLS_INLINE float value(Index i) const { return values_[i]; }

  private:
    template <class Value, class Int>
    void load_csr(const Features& x, Index row) {
        const Int* indptr = static_cast<const Int*>(x.indptr);
        const Int* indices = static_cast<const Int*>(x.indices);
        const Value* values = static_cast<const Value*>(x.values);
        for (Int i = indptr[row]; i < indptr[row + 1]; ++i)
            add(indices[i], static_cast<float>(values[i]));
        end(x);
    }
    template <class Value>
    void load_dense(const Features& x, Index row) {
        const Value* values = static_cast<const Value*>(x.values) + row * x.n_features;
        for (Index feature = 0; feature < x.n_features; ++feature)
            if (values[feature] != 0) add(feature, static_cast<float>(values[feature]));
        end(x);
    }
    LTLS_INLINE void add(Index feature, float value) {
        features_[count_] = feature;
        values_[count_++] = value;
    }
    // The intercept is the weight of one more feature that is always 1.
    LTLS_INLINE void end(const Features& x) {
        if (x.unit_length) divide_by_length();
        if (x.intercept) add(x.n_features, 1.0f);
    }

    // In double, so that no square is too large or too small.
    void divide_by_length() {
        double squares = 0;
        for (Index i = 0; i < count_; ++i)
            squares += static_cast<double>(values_[i]) * static_cast<double>(values_[i]);
        if (squares == 0) return;
        const float scale = static_cast<float>(1 / std::sqrt(squares));
        for (Index i = 0; i < count_; ++i) values_[i] *= scale;
    }

    Buffer<Index> features_;
    Buffer<float> values_;
    Index count_ = 0;
};

LTLS_INLINE float half_to_float(std::uint16_t half) {
    // The exponent's bias is mended by a multiplication, which also gives subnormal numbers their
    // value.
    const float magnitude =
        std::bit_cast<float>(static_cast<std::uint32_t>(half & 0x7fff) << 13) * 0x1p112f;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

LTLS_INLINE float weight(float w) { return w; }
LTLS_INLINE float weight(std::int8_t w) { return static_cast<float>(w); }
LTLS_INLINE float weight(std::uint16_t w) { return half_to_float(w); }

// The paper's soft threshold (section 6): weights as they count when scoring under L1.
LTLS_INLINE float soft_threshold(float w, float limit) {
    const float clipped = w > limit ? limit : (w < -limit ? -limit : w);
    return w - clipped;
}

// h = xW, with rows of W in any storage; `scales` has a factor per row of W, or is null.
template <class Weight>
LTLS_INLINE void edge_scores(const Row& x, const Weight* weights, const float* scales, Index stride,
                             Index edges, float* h) {
    for (Index e = 0; e < edges; ++e) h[e] = 0;
    for (Index i = 0; i < x.size(); ++i) {
        const Weight* row = weights + x.feature(i) * stride;
        const float value = scales ? x.value(i) * scales[x.feature(i)] : x.value(i);
        for (Index e = 0; e < edges; ++e) h[e] += value * weight(row[e]);
    }
}

// h = x·st(W, limit)
LTLS_INLINE void thresholded_edge_scores(const Row& x, const float* weights, float limit,
                                         Index stride, Index edges, float* h) {
    for (Index e = 0; e < edges; ++e) h[e] = 0;
    for (Index i = 0; i < x.size(); ++i) {
        const float* row = weights + x.feature(i) * stride;
        const float value = x.value(i);
        for (Index e = 0; e < edges; ++e) h[e] += value * soft_threshold(row[e], limit);
    }
}

// The step of plain SGD for one feature: w += rate·x·u.
LTLS_INLINE void plain_update(float scale, float rate, const float* u, Index edges, float* delta) {
    for (Index e = 0; e < edges; ++e) delta[e] = rate * scale * u[e];
}

// AdaGrad's (Duchi, Hazan and Singer 2011): every weight divides by the root of its squared
// gradients.
LTLS_INLINE void adagrad_update(float scale, float rate, const float* u, Index edges,
                                float* squares, float* delta) {
    for (Index e = 0; e < edges; ++e) {
        const float gradient = scale * u[e];
        squares[e] += gradient * gradient;
        delta[e] = rate * gradient / std::sqrt(squares[e]);
    }
}

}  // namespace ltls::LTLS_ISA
