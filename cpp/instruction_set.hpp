// The hot kernels are compiled once per instruction set, each build in a namespace of its own, so
// that the linker never puts an AVX-512 copy of a template where an older machine needs the plain
// one.
#pragma once

#ifndef LTLS_ISA
#define LTLS_ISA baseline
#endif

// For what the kernels share with the rest of the engine and is not in such a namespace: inlined
// into each of them, it leaves no copy that the linker could mix up.
#if defined(_MSC_VER)
#define LTLS_INLINE __forceinline
#else
#define LTLS_INLINE inline __attribute__((always_inline))
#endif
