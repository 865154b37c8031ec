// What every kernel needs: element types, constants and the status word.
//
// Preconditions: an x86-64 compiler with C++20 and GNU extensions; no fast-math. Kernels live in any namespace and call
// everything here as icpu::name.
#pragma once

// Without C++17's special functions of libstdc++, which nothing here calls: each unit instantiates all their templates,
// a third of what an empty one takes to compile.
#include <cstddef>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "float8.h"

// Every header here is read again for each unit: <atomic> and <memory> would cost more than a small kernel.
#ifdef __F16C__
#include <immintrin.h>
#else
#include <c10/util/Half.h>
#endif

// What the CPU has beside its instruction set.
#ifdef __AVX512BF16__
#define ICPU_AVX512_BF16
#endif
#ifdef __AVX512VNNI__
#define ICPU_AVX512_VNNI
#endif

#define ICPU_INLINE __attribute__((always_inline))

namespace icpu {

// The low-precision types as memory holds them. Conversions round to nearest, ties to even; a NaN stays one.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float a) : bits(round(std::bit_cast<uint32_t>(a))) {}
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

 private:
  static uint16_t round(uint32_t a) {
    if ((a & 0x7fffffff) > 0x7f800000) return 0x7fc0;
    return static_cast<uint16_t>((a + 0x7fff + ((a >> 16) & 1)) >> 16);
  }
};

#ifdef __F16C__
struct f16 {
  uint16_t bits;
  f16() = default;
  f16(float a) : bits(_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT)) {}
  operator float() const { return _cvtsh_ss(bits); }
};
#else
using f16 = c10::Half;
#endif

template <class T>
inline constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

template <class T>
inline constexpr bool is_low_precision = std::is_same_v<T, bf16> || std::is_same_v<T, f16> || is_float8<T>;

// The type that holds a value in scalar code: low precision is computed in float.
template <class T>
using scalar_t = std::conditional_t<is_low_precision<T>, float, T>;

// What went wrong in a kernel, as bits: a data-dependent index out of range, an integer division by zero, a value that
// an operator refuses or a position of one that raises another error for it than for an index.
inline constexpr int64_t kBadIndex = 1;
inline constexpr int64_t kZeroDivision = 2;
inline constexpr int64_t kBadElement = 4;

class Status {
 public:
  void raise(int64_t bit) { __atomic_fetch_or(&bits_, bit, __ATOMIC_RELAXED); }
  int64_t bits() const { return __atomic_load_n(&bits_, __ATOMIC_RELAXED); }

 private:
  int64_t bits_ = 0;
};

// A status that nobody reads, for divisors that are known not to be zero.
struct NoStatus {
  void raise(int64_t) {}
};

// Memory of one thread that lives as long as the thread, for rows that are too long for the stack: whole cache lines. Each
// slot is one block; asking again for it may move it.
template <class T, int slot>
inline T* scratch(int64_t count) {
  constexpr std::align_val_t kLine{64};
  static thread_local struct Block {
    T* memory = nullptr;
    int64_t capacity = 0;
    void free() {
      ::operator delete[](std::exchange(memory, nullptr), kLine);
      capacity = 0;
    }
    ~Block() { free(); }
  } block;
  if (block.capacity < count) {
    block.free();
    block.memory = new (kLine) T[static_cast<size_t>(count)];
    block.capacity = count;
  }
  return block.memory;
}

}  // namespace icpu
