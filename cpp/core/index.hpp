// The integer type of every index and size in the engine.
#pragma once

#include <cstdint>

namespace ltls {

using Index = std::int64_t;

}  // namespace ltls
