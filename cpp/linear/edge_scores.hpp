// The linear model, h = xW. W is stored by feature, so that a non-zero feature reads one contiguous
// row.
#pragma once

#include <bit>
#include <cstdint>

#include "core/buffer.hpp"
#include "linear/rows.hpp"

namespace ltls::LTLS_ISA {

LTLS_INLINE float half_to_float(std::uint16_t half) {
    // The multiplication corrects the exponent bias, and normalizes subnormal numbers.
    const float magnitude =
        std::bit_cast<float>(static_cast<std::uint32_t>(half & 0x7fff) << 13) * 0x1p112f;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

LTLS_INLINE float weight(float w) { return w; }
LTLS_INLINE float weight(std::int8_t w) { return static_cast<float>(w); }
LTLS_INLINE float weight(std::uint16_t w) { return half_to_float(w); }

// The soft threshold of the paper (section 6), applied to weights when scoring with L1.
LTLS_INLINE float soft_threshold(float w, float limit) {
    const float clipped = w > limit ? limit : (w < -limit ? -limit : w);
    return w - clipped;
}

// Software prefetch of rows of W, whose addresses no hardware prefetcher can predict: some entries
// ahead, one cache line at a time.
template <class Weight>
class Prefetch {
  public:
    Prefetch(const Rows& x, const Weight* weights, Index stride, Index edges)
        : x_(x),
          weights_(weights),
          stride_(stride),
          bytes_(edges * static_cast<Index>(sizeof(Weight))),
          distance_(1 + lines_ahead * line / (bytes_ + 1)) {}

    // Prefetches the row of W of the entry `distance` after this one.
    LTLS_INLINE void operator()(Index entry) const {
        if (entry + distance_ >= x_.size()) return;
        const char* row =
            reinterpret_cast<const char*>(weights_ + x_.feature(entry + distance_) * stride_);
        for (Index byte = 0; byte < bytes_; byte += line) prefetch(row + byte);
    }
    LTLS_INLINE void start() const {
        for (Index entry = -distance_; entry < 0; ++entry) (*this)(entry);
    }

  private:
    static constexpr Index line = 64, lines_ahead = 64;

    const Rows& x_;
    const Weight* weights_;
    Index stride_, bytes_, distance_;
};

// h[i] = x[i]·W for the loaded rows, with W in any storage type. `scales` has one factor per row of
// W, or is null.
template <class Weight>
LTLS_INLINE void edge_scores(const Rows& x, Index rows, const Weight* weights, const float* scales,
                             Index stride, Index edges, float* h) {
    const Prefetch<Weight> prefetch(x, weights, stride, edges);
    prefetch.start();
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

// The same for pruned rows.
LTLS_INLINE void pruned_edge_scores(const Rows& x, Index rows, const Weights& weights, Index edges,
                                    float* h) {
    const std::int8_t* const kept = static_cast<const std::int8_t*>(weights.rows);
    for (Index i = 0; i < rows; ++i, h += edges) {
        for (Index e = 0; e < edges; ++e) h[e] = 0;
        for (Index entry = x.begin(i); entry < x.end(i); ++entry) {
            const Index feature = x.feature(entry);
            const float value = x.value(entry) * weights.scales[feature];
            const Index last = weights.row_ptr[feature + 1];
            for (Index j = weights.row_ptr[feature]; j < last; ++j)
                h[weights.columns[j]] += value * weight(kept[j]);
        }
    }
}

// h = x·soft_threshold(W, limit)
LTLS_INLINE void thresholded_edge_scores(const Rows& x, const float* weights, float limit,
                                         Index stride, Index edges, float* h) {
    for (Index e = 0; e < edges; ++e) h[e] = 0;
    for (Index i = 0; i < x.size(); ++i) {
        const float* row = weights + x.feature(i) * stride;
        const float value = x.value(i);
        for (Index e = 0; e < edges; ++e) h[e] += value * soft_threshold(row[e], limit);
    }
}

// Computes h = xW for a few rows at a time.
class EdgeScorer {
  public:
    EdgeScorer(const Weights& weights, Index edges) : weights_(weights), edges_(edges) {}

    // How many rows to pass to run(): enough that prefetching crosses rows, and few enough to fit
    // in the L1 cache.
    static Index chunk_rows(const Features& x) {
        constexpr Index max_rows = 16, max_entries = 1 << 14;
        const Index rows = max_entries / (x.longest_row + 1);
        return rows < 1 ? 1 : rows < max_rows ? rows : max_rows;
    }

    // The rows that were scored last.
    const Rows& rows() const { return rows_; }

    void run(const Features& x, Index first, Index last, float* h) {
        rows_.load(x, first, last);
        const auto score = [&](const auto* weights) {
            edge_scores(rows_, last - first, weights, weights_.scales, weights_.stride, edges_, h);
        };
        switch (weights_.kind) {
            case Weights::f32:
                return score(static_cast<const float*>(weights_.rows));
            case Weights::f16:
                return score(static_cast<const std::uint16_t*>(weights_.rows));
            case Weights::i8:
                return score(static_cast<const std::int8_t*>(weights_.rows));
            case Weights::pruned_i8:
                return pruned_edge_scores(rows_, last - first, weights_, edges_, h);
        }
    }

  private:
    const Weights weights_;
    const Index edges_;
    Rows rows_;
};

}  // namespace ltls::LTLS_ISA
