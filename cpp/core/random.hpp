// A reproducible random number generator: splitmix64 (Steele, Lea and Flood 2014).
#pragma once

#include <cstdint>

#include "core/instruction_set.hpp"

namespace ltls {

// One stream of random numbers; equal seeds give equal streams on every platform.
class Random {
  public:
    LTLS_INLINE explicit Random(std::uint64_t seed) : state_(seed) {}

    LTLS_INLINE std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }

    // Uniform in [0, 1), a multiple of 2⁻²⁴ for float and of 2⁻⁵³ for double.
    template <class T>
    LTLS_INLINE T uniform() {
        constexpr int bits = sizeof(T) == sizeof(float) ? 24 : 53;
        constexpr T unit = T(1) / static_cast<T>(std::uint64_t{1} << bits);
        return static_cast<T>(next() >> (64 - bits)) * unit;
    }

  private:
    std::uint64_t state_;
};

}  // namespace ltls
