// exp and log without branches, tables or calls, so that loops over them vectorize.
#pragma once

#include <bit>
#include <cstdint>

#include "core/instruction_set.hpp"

namespace ltls::LTLS_ISA {

// Constants of the floating-point formats.
template <class T>
struct Float;

template <>
struct Float<float> {
    using Bits = std::int32_t;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr float shift = 12582912.0f;  // 1.5·2²³: adding it rounds to an integer
    static constexpr float ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
    static constexpr float lowest_exp = -87.0f;
    static constexpr int exp_terms = 7, log_terms = 5;
};

template <>
struct Float<double> {
    using Bits = std::int64_t;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr double shift = 6755399441055744.0;  // 1.5·2⁵²
    static constexpr double ln2_high = 0.69314718036912382, ln2_low = 1.9082149292705877e-10;
    static constexpr double lowest_exp = -708.0;
    static constexpr int exp_terms = 13, log_terms = 11;
};

// Taylor coefficients of eʳ, and of artanh(s)/s − 1 in s².
template <class T>
struct Series {
    static constexpr int exp_terms = Float<T>::exp_terms, log_terms = Float<T>::log_terms;
    T exp[exp_terms + 1], log[log_terms];
    constexpr Series() : exp{1}, log{} {
        for (int i = 1; i <= exp_terms; ++i) exp[i] = exp[i - 1] / T(i);
        for (int i = 0; i < log_terms; ++i) log[i] = T(1) / T(2 * i + 3);
    }
};
template <class T>
inline constexpr Series<T> series;

// c[0] + c[1]·x + … + c[Degree]·xᴰᵉᵍʳᵉᵉ
template <int Degree, class T>
LTLS_INLINE constexpr T polynomial(const T* c, T x) {
    if constexpr (Degree == 0)
        return c[0];
    else
        return c[0] + x * polynomial<Degree - 1>(c + 1, x);
}

// eˣ for x up to about 80; 0 where the result would be subnormal.
template <class T>
LTLS_INLINE T exp_(T x) {
    using F = Float<T>;
    using Bits = typename F::Bits;
    const T safe = x > F::lowest_exp ? x : F::lowest_exp;
    const T shifted = safe * T(1.4426950408889634) + F::shift;
    const T whole = shifted - F::shift;
    const T r = (safe - whole * F::ln2_high) - whole * F::ln2_low;  // |r| ≤ ln 2 / 2
    const T sum = polynomial<F::exp_terms>(series<T>.exp, r);
    const Bits exponent = std::bit_cast<Bits>(shifted) - std::bit_cast<Bits>(F::shift);
    const T scale = std::bit_cast<T>((exponent + F::bias) << F::mantissa);
    return x > F::lowest_exp ? sum * scale : T(0);
}

// log y for a normal number y > 0.
template <class T>
LTLS_INLINE T log_(T y) {
    using F = Float<T>;
    using Bits = typename F::Bits;
    // y = m·2ᵉ with m in [√½, √2), then log m = 2·artanh((m−1)/(m+1)) as a series.
    const Bits half = std::bit_cast<Bits>(T(0.70710678118654752));
    const Bits bits = std::bit_cast<Bits>(y) - half;
    const Bits exponent = bits >> F::mantissa;
    const T m = std::bit_cast<T>((bits & ((Bits(1) << F::mantissa) - 1)) + half);
    const T e = std::bit_cast<T>(exponent + std::bit_cast<Bits>(F::shift)) - F::shift;
    const T s = (m - T(1)) / (m + T(1)), s2 = s * s;
    const T tail = s2 * polynomial<F::log_terms - 1>(series<T>.log, s2);
    return e * F::ln2_high + (T(2) * s + (T(2) * s * tail + e * F::ln2_low));
}

}  // namespace ltls::LTLS_ISA
