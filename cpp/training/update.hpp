// The weight update, W += x ⊗ u.
#pragma once

#include <cmath>

#include "core/index.hpp"
#include "core/instruction_set.hpp"

namespace ltls::LTLS_ISA {

// Updates the row of one feature by SGD, w += rate·x·u, or by AdaGrad (Duchi, Hazan and Singer
// 2011) if `squares` is given. `sums`, unless null, accumulates step × update for averaging.
LTLS_INLINE void update(float scale, float rate, const float* u, Index edges, float* row,
                        float* squares, double* sums, double step) {
    const auto each = [&](const auto& delta) {
        if (sums)
            for (Index e = 0; e < edges; ++e) {
                const float change = delta(e);
                row[e] += change;
                sums[e] += step * static_cast<double>(change);
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
