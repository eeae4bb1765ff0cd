// The properties of a loss at run time.
#pragma once

#include "structure/trellis.hpp"

namespace ltls {

// The position of a loss in the registry at the end of losses.hpp.
using LossId = int;

// See losses.hpp for their meaning.
struct LossInfo {
    const char* name;
    bool normalizes;
    bool needs_positives;
    void (*decode_scores)(const Trellis&, const float* h, float* g);  // null: h itself ranks
};

}  // namespace ltls
