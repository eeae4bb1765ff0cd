// Multiversioning. The kernels are compiled once per instruction set, each build in a namespace of
// its own (LTLS_ISA). Otherwise the linker could merge two copies of a template and call the
// AVX-512 one on a machine that lacks it.
#pragma once

#ifndef LTLS_ISA
#define LTLS_ISA baseline
#endif

// For functions that kernels use from outside such a namespace: always inlined, so that there is no
// copy to merge.
#if defined(_MSC_VER)
#define LTLS_INLINE __forceinline
#else
#define LTLS_INLINE inline __attribute__((always_inline))
#endif

// For functions that must round alike wherever they are called: compilers fuse multiplications and
// additions differently in every inlined copy.
#if defined(_MSC_VER)
#define LTLS_ONE_COPY __declspec(noinline)
#else
#define LTLS_ONE_COPY __attribute__((noinline))
#endif
