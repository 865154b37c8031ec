// Micro kernels of int8 matrix products without dot products of bytes: A and B are widened to 16 bits, two products a lane
// are added in int32.
//
// Preconditions: AVX2 or AVX-512 (BW), by the class that takes Products: avx2.h or avx512.h. Exact: sums wrap around beyond 32
// bits. (vpmaddubsw would multiply bytes as they are, but its sums of two products end at 16 bits.)
#pragma once

#include "vectors.h"

namespace icpu::gemm {

// A: int8_t or uint8_t. Words: how vectors of 16-bit values are made and multiplied, see madd_avx2.h.
template <class A, class Words>
struct MaddProducts {
  using Source = A;
  using Element = int16_t;
  using Weight = int8_t;
  using Sum = int32_t;
  static constexpr int kPair = 2;
  static constexpr int kLanes = Words::kLanes;
  static constexpr bool kShifted = false;
  using Sums = typename Words::Sums;
  using Vector = typename Words::Vector;

  static ICPU_INLINE Vector line(const int8_t* b) { return Words::widened(b); }
  static ICPU_INLINE Vector spread(const int16_t* a) {
    int32_t pair;
    std::memcpy(&pair, a, sizeof(pair));
    return Words::spread(pair);
  }
  static ICPU_INLINE Sums dot(Sums sum, Vector a, Vector b) { return sum + Words::multiplied(a, b); }
};

}  // namespace icpu::gemm
