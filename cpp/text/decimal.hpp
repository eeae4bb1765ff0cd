// Decimal numbers in text, converted to the nearest float32 or to an integer.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <limits>
#if !defined(__cpp_lib_to_chars)
#include <locale>
#include <sstream>
#include <string>
#endif

namespace ltls {

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// A decimal number ±digits · 10^exponent, parsed from [+-]digits[.digits][e[+-]digits]. It keeps
// the first 19 significant digits; `cut` tells whether nonzero digits were dropped.
//
// Why not std::from_chars: it is not faster in libstdc++ 12, and Apple's libc++ has none for floats
// yet; a stream is many times slower. Labels need the digits in any case, since 3.0 and 1e3 are
// integers.
struct Decimal {
    std::uint64_t digits = 0;
    std::int64_t exponent = 0;
    bool negative = false;
    bool cut = false;
    const char* unsigned_text = nullptr;  // first character after the sign
    const char* end = nullptr;            // after the last character; null if not a number

    // Parses a number that is followed by a character other than a digit, '.' or 'e'.
    static Decimal read(const char* at) {
        Decimal number;
        number.negative = *at == '-';
        at += *at == '-' || *at == '+';
        number.unsigned_text = at;
        const char* point = nullptr;
        const char* const begin = at;
        for (;; ++at) {
            if (is_digit(*at))
                number.digits = number.digits * 10 + static_cast<std::uint64_t>(*at - '0');
            else if (*at == '.' && !point)
                point = at;
            else
                break;
        }
        const std::int64_t n_digits = at - begin - (point ? 1 : 0);
        if (n_digits == 0) return number;
        if (point) number.exponent = point + 1 - at;
        if (n_digits > 19) number.read_long(begin, at);
        if (*at == 'e' || *at == 'E') {
            const char* power = at + 1;
            const bool below_one = *power == '-';
            power += *power == '-' || *power == '+';
            if (!is_digit(*power)) return number;  // "1e" is not a number
            std::int64_t value = 0;
            for (; is_digit(*power); ++power)
                if (value < 1'000'000'000'000) value = value * 10 + (*power - '0');
            number.exponent += below_one ? -value : value;
            at = power;
        }
        number.end = at;
        return number;
    }

    // The digits if they may overflow 64 bits: those after the 19th only change the exponent.
    void read_long(const char* at, const char* last) {
        digits = 0;
        exponent = 0;
        int kept = 0;
        bool fraction = false;
        for (; at < last; ++at) {
            if (*at == '.') {
                fraction = true;
                continue;
            }
            if (kept < 19) {
                digits = digits * 10 + static_cast<std::uint64_t>(*at - '0');
                kept += digits > 0;
                exponent -= fraction;
            } else {
                cut |= *at != '0';
                exponent += !fraction;
            }
        }
    }

    // The value as an integer; returns whether it is one, and below 10^18 in magnitude.
    bool to_integer(std::int64_t& result) const {
        std::uint64_t value = digits;
        std::int64_t power = exponent;
        for (; power < 0 && value % 10 == 0 && value > 0; ++power) value /= 10;
        for (; power > 0 && value > 0 && value < 100'000'000'000'000'000; --power) value *= 10;
        if (value > 0 && (power != 0 || cut || value >= 1'000'000'000'000'000'000)) return false;
        result = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
        return true;
    }

    // The nearest float32, ties to even; returns whether it is finite.
    //
    // digits · 10^exponent in double precision is off by less than two units in the last place:
    // half a unit each for digits, the power and their product, and very little for dropped digits.
    // So rounding it to float is correct unless it is that close to the midpoint of two floats.
    // Those numbers, one in 10^7, and those out of range are left to the standard library.
    bool to_float(float& result) const {
        if (digits == 0) {
            result = negative ? -0.0f : 0.0f;
            return true;
        }
        constexpr std::int64_t most = static_cast<std::int64_t>(powers.size()) - 1;
        if (exponent >= -most && exponent <= most) {
            const double number = static_cast<double>(digits);
            const double value = exponent < 0 ? number / powers[static_cast<std::size_t>(-exponent)]
                                              : number * powers[static_cast<std::size_t>(exponent)];
            constexpr std::uint64_t middle = std::uint64_t{1} << 28;
            const std::uint64_t lost = std::bit_cast<std::uint64_t>(value) & (2 * middle - 1);
            if (value >= std::numeric_limits<float>::min() &&
                value <= std::numeric_limits<float>::max() && lost + 8 - middle > 16) {
                result = static_cast<float>(negative ? -value : value);
                return true;
            }
        }
        return to_float_exactly(result);
    }

  private:
    bool to_float_exactly(float& result) const {
#if defined(__cpp_lib_to_chars)
        const auto [_, error] = std::from_chars(unsigned_text, end, result);
        const bool read = error == std::errc{};
#else
        std::istringstream stream(std::string(unsigned_text, end));
        stream.imbue(std::locale::classic());
        stream >> result;
        const bool read = !stream.fail() && result > 0;
#endif
        if (!read) {  // digits is at least 1 and below 10^19
            if (exponent > 0) return false;
            result = 0;
        }
        if (negative) result = -result;
        return result <= std::numeric_limits<float>::max() &&
               result >= -std::numeric_limits<float>::max();
    }

    static constexpr std::array<double, 61> powers = {
        1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12,
        1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25,
        1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32, 1e33, 1e34, 1e35, 1e36, 1e37, 1e38,
        1e39, 1e40, 1e41, 1e42, 1e43, 1e44, 1e45, 1e46, 1e47, 1e48, 1e49, 1e50, 1e51,
        1e52, 1e53, 1e54, 1e55, 1e56, 1e57, 1e58, 1e59, 1e60};
};

}  // namespace ltls
