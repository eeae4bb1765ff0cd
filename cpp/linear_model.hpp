// The linear model: h = xW and W += x ⊗ u. W is stored by feature, so one non-zero feature reads
// one contiguous row.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "features.hpp"
#include "semiring.hpp"

namespace ltls::LTLS_ISA {

// Some rows of features one after another, in buffers that are used again.
class Rows {
  public:
    void load(const Features& x, Index first, Index last) {
        count_ = row_begin_ = 0;
        ends_.keep(last - first);
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
    template <class Value, class Int>
    void load_csr(const Features& x, Index first, Index last) {
        const Int* indptr = static_cast<const Int*>(x.indptr);
        const Int* indices = static_cast<const Int*>(x.indices);
        const Value* values = static_cast<const Value*>(x.values);
        make_room(indptr[last] - indptr[first] + last - first);
        for (Index row = first; row < last; ++row) {
            for (Int i = indptr[row]; i < indptr[row + 1]; ++i)
                add(indices[i], static_cast<float>(values[i]));
            ends_[row - first] = end_row(x);
        }
    }
    template <class Value>
    void load_dense(const Features& x, Index first, Index last) {
        const Value* values = static_cast<const Value*>(x.values) + first * x.n_features;
        make_room((last - first) * (x.n_features + 1));
        for (Index row = first; row < last; ++row, values += x.n_features) {
            for (Index feature = 0; feature < x.n_features; ++feature)
                if (values[feature] != 0) add(feature, static_cast<float>(values[feature]));
            ends_[row - first] = end_row(x);
        }
    }
    void make_room(Index entries) {
        features_.keep(entries);
        values_.keep(entries);
    }
    LTLS_INLINE void add(Index feature, float value) {
        features_[count_] = feature;
        values_[count_++] = value;
    }
    // The intercept is the weight of one more feature that is always 1.
    LTLS_INLINE Index end_row(const Features& x) {
        if (x.unit_length) divide_by_length();
        if (x.intercept) add(x.n_features, 1.0f);
        return row_begin_ = count_;
    }

    // In double, so that no square is too large or too small.
    void divide_by_length() {
        double squares = 0;
        for (Index i = row_begin_; i < count_; ++i)
            squares += static_cast<double>(values_[i]) * static_cast<double>(values_[i]);
        if (squares == 0) return;
        const float scale = static_cast<float>(1 / std::sqrt(squares));
        for (Index i = row_begin_; i < count_; ++i) values_[i] *= scale;
    }

    Buffer<Index> features_, ends_;
    Buffer<float> values_;
    Index count_ = 0, row_begin_ = 0;
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

// Rows of W lie all over memory, and a processor that waits for each of them does little else. They
// are asked for some rows early, a cache line at a time.
template <class Weight>
class Prefetch {
  public:
    Prefetch(const Rows& x, const Weight* weights, Index stride, Index edges)
        : x_(x),
          weights_(weights),
          stride_(stride),
          bytes_(edges * static_cast<Index>(sizeof(Weight))),
          ahead_(1 + lines_ahead * line / (bytes_ + 1)) {}

    // Asks for the row of W that will be read when `ahead` more entries are done.
    LTLS_INLINE void operator()(Index entry) const {
        if (entry + ahead_ >= x_.size()) return;
        const char* row =
            reinterpret_cast<const char*>(weights_ + x_.feature(entry + ahead_) * stride_);
        for (Index byte = 0; byte < bytes_; byte += line) ask_for(row + byte);
    }
    LTLS_INLINE void first() const {
        for (Index entry = -ahead_; entry < 0; ++entry) (*this)(entry);
    }

  private:
    static constexpr Index line = 64, lines_ahead = 64;
    LTLS_INLINE static void ask_for(const char* address) {
#if defined(__GNUC__)
        __builtin_prefetch(address);
#else
        (void)address;
#endif
    }

    const Rows& x_;
    const Weight* weights_;
    Index stride_, bytes_, ahead_;
};

// h[i] = x[i]·W for all rows loaded, with rows of W in any storage; `scales` has a factor per row
// of W, or is null.
template <class Weight>
LTLS_INLINE void edge_scores(const Rows& x, Index rows, const Weight* weights, const float* scales,
                             Index stride, Index edges, float* h) {
    const Prefetch<Weight> prefetch(x, weights, stride, edges);
    prefetch.first();
    for (Index i = 0; i < rows; ++i, h += edges) {
        for (Index e = 0; e < edges; ++e) h[e] = 0;
        for (Index entry = x.begin(i); entry < x.end(i); ++entry) {
            prefetch(entry);
            const Index feature = x.feature(entry);
            const Weight* row = weights + feature * stride;
            const float value = scales ? x.value(entry) * scales[feature] : x.value(entry);
            for (Index e = 0; e < edges; ++e) h[e] += value * weight(row[e]);
        }
    }
}

// Reads what edge_scores would read, in the same order and as early, and computes nothing: how fast
// that can be. Returns something that depends on all of it.
template <class Weight>
LTLS_INLINE std::uint32_t read_rows(const Rows& x, const Weight* weights, Index stride) {
    constexpr Index lane = 16;  // words of a cache line
    const Index words = stride * static_cast<Index>(sizeof(Weight)) / 4;
    const Prefetch<Weight> prefetch(x, weights, stride, stride);
    prefetch.first();
    std::uint32_t mixed[lane] = {};
    for (Index entry = 0; entry < x.size(); ++entry) {
        prefetch(entry);
        const auto* row =
            reinterpret_cast<const std::uint32_t*>(weights + x.feature(entry) * stride);
        for (Index i = 0; i + lane <= words; i += lane)
            for (Index j = 0; j < lane; ++j) mixed[j] ^= row[i + j];
    }
    std::uint32_t result = 0;
    for (Index j = 0; j < lane; ++j) result ^= mixed[j];
    return result;
}

// h = x·st(W, limit)
LTLS_INLINE void thresholded_edge_scores(const Rows& x, const float* weights, float limit,
                                         Index stride, Index edges, float* h) {
    for (Index e = 0; e < edges; ++e) h[e] = 0;
    for (Index i = 0; i < x.size(); ++i) {
        const float* row = weights + x.feature(i) * stride;
        const float value = x.value(i);
        for (Index e = 0; e < edges; ++e) h[e] += value * soft_threshold(row[e], limit);
    }
}

// The step of one feature, of plain SGD: w += rate·x·u, or of AdaGrad (Duchi, Hazan and Singer
// 2011), where every weight divides by the root of its squared gradients. `sums`, unless null, adds
// up time × step.
LTLS_INLINE void update(float scale, float rate, const float* u, Index edges, float* row,
                        float* squares, double* sums, double time) {
    const auto each = [&](const auto& delta) {
        if (sums)
            for (Index e = 0; e < edges; ++e) {
                const float step = delta(e);
                row[e] += step;
                sums[e] += time * static_cast<double>(step);
            }
        else
            for (Index e = 0; e < edges; ++e) row[e] += delta(e);
    };
    if (squares)
        each([&](Index e) {
            const float gradient = scale * u[e];
            squares[e] += gradient * gradient;
            return rate * gradient / std::sqrt(squares[e]);
        });
    else
        each([&](Index e) { return rate * scale * u[e]; });
}

}  // namespace ltls::LTLS_ISA
