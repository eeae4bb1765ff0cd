// What the files that know Python share: *bindings.cpp, and no others.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>

#include "trellis.hpp"

namespace nb = nanobind;

namespace ltls {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline Index size(std::size_t n) { return static_cast<Index>(n); }

inline void same_size(const char* name, std::size_t given, Index expected) {
    if (size(given) != expected)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(expected) +
                                    " entries, got " + std::to_string(given));
}

void bind_learning(nb::module_& module);
void bind_reading(nb::module_& module);

}  // namespace ltls
