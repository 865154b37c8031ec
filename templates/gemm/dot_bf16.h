// The micro kernel of bf16 matrix products with the dot products of AVX-512: two products a lane, added in float.
//
// Preconditions: those of avx512.h, and avx512_bf16.
#pragma once

#include "avx512.h"

namespace icpu::gemm {

struct DotBf16Products {
  using Source = bf16;
  using Element = bf16;
  using Weight = bf16;
  using Sum = float;
  static constexpr int kPair = 2;
  static constexpr int kLanes = 16;
  static constexpr bool kShifted = false;

  static ICPU_INLINE __m512i line(const bf16* b) { return _mm512_loadu_si512(b); }
  static ICPU_INLINE __m512i spread(const bf16* a) {
    int32_t pair;
    std::memcpy(&pair, a, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  static ICPU_INLINE __m512i spread_first(const bf16* a) {
    uint16_t value;
    std::memcpy(&value, a, sizeof(value));
    return _mm512_set1_epi32(value);
  }
  static ICPU_INLINE __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static ICPU_INLINE __m512 groups(const bf16* from, int64_t count) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first_lanes<__mmask32>(count), from));
  }
};

struct DotBf16 : Avx512<DotBf16Products> {};

}  // namespace icpu::gemm
