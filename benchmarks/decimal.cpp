// Time per number of Decimal and of what the standard library offers; not part of the build.
//
//   g++ -O3 -std=c++20 -I cpp benchmarks/decimal.cpp -o build/decimal
//   build/decimal
#include <chrono>
#include <cstdio>
#include <random>
#include <sstream>
#include <string>

#include "text/decimal.hpp"

namespace {

constexpr int n_numbers = 200'000, n_repeats = 15;

// The shortest time of parse(begin, end, number), which returns the end of the number.
template <class Parse>
double nanoseconds(const std::string& text, Parse parse) {
    double shortest = 1e9;
    for (int repeat = 0; repeat < n_repeats; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        float sum = 0, number = 0;
        const char* const end = text.data() + text.size();
        for (const char* at = text.data(); at < end; sum += number) at = parse(at, end, number) + 1;
        const std::chrono::duration<double, std::nano> time =
            std::chrono::steady_clock::now() - start;
        [[maybe_unused]] volatile float used = sum;
        shortest = std::min(shortest, time.count() / n_numbers);
    }
    return shortest;
}

}  // namespace

int main() {
    for (const char* format : {"1", "%.3f", "%.6f", "%.8g", "%.9e", "%.17g"}) {
        std::mt19937_64 random(0);
        std::uniform_real_distribution<double> uniform(0, 1);
        std::string text;
        for (int i = 0; i < n_numbers; ++i) {
            char word[64];
            std::snprintf(word, sizeof word, format, uniform(random));
            text += word + std::string(" ");
        }
        const double decimal = nanoseconds(text, [](const char* at, const char*, float& number) {
            const ltls::Decimal parsed = ltls::Decimal::read(at);
            parsed.to_float(number);
            return parsed.end;
        });
        const double from_chars =
            nanoseconds(text, [](const char* at, const char* end, float& number) {
                return std::from_chars(at, end, number).ptr;
            });
        const double stream = nanoseconds(text, [](const char* at, const char*, float& number) {
            const char* end = at;
            while (*end != ' ') ++end;
            std::istringstream(std::string(at, end)) >> number;
            return end;
        });
        std::printf("%-6s Decimal %5.1f ns, std::from_chars %5.1f ns, istringstream %5.1f ns\n",
                    format, decimal, from_chars, stream);
    }
}
