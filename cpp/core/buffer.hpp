// Scratch memory for the kernels.
#pragma once

#include <limits>
#include <new>

#include "core/index.hpp"
#include "core/instruction_set.hpp"

namespace ltls::LTLS_ISA {

template <class T>
inline constexpr T minus_infinity = -std::numeric_limits<T>::infinity();

// Asks for the cache line of an address before it is needed.
LTLS_INLINE void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

// Uninitialised memory, aligned to a cache line, that only ever grows.
template <class T>
class Buffer {
  public:
    explicit Buffer(Index size = 0) { reserve(size); }
    ~Buffer() { ::operator delete(data_, alignment); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    LTLS_INLINE operator T*() const { return data_; }

    // Makes room for at least `size` elements. The contents are lost if that reallocates.
    LTLS_INLINE void reserve(Index size) {
        if (size > size_) allocate(size);
    }

  private:
    static constexpr std::align_val_t alignment{64};

    void allocate(Index size) {
        ::operator delete(data_, alignment);
        data_ = nullptr;
        size_ = 0;
        data_ =
            static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), alignment));
        size_ = size;
    }

    T* data_ = nullptr;
    Index size_ = 0;
};

}  // namespace ltls::LTLS_ISA
