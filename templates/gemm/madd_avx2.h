// Micro kernels of int8 matrix products with AVX2: 6 rows by 16 columns of C in 12 registers. See madd.h.
//
// Preconditions: those of avx2.h.
#pragma once

#include "avx2.h"
#include "madd.h"

namespace icpu::gemm {

// 16 bytes as vectors of 16-bit values.
struct Words256 {
  static constexpr int kLanes = 8;
  using Vector = __m256i;
  typedef int32_t Sums __attribute__((vector_size(32), may_alias));

  static ICPU_INLINE __m128i bytes(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
  static ICPU_INLINE __m256i widened(const int8_t* from) { return _mm256_cvtepi8_epi16(bytes(from)); }
  static ICPU_INLINE __m256i widened(const uint8_t* from) { return _mm256_cvtepu8_epi16(bytes(from)); }
  static ICPU_INLINE __m256i spread(int32_t pair) { return _mm256_set1_epi32(pair); }
  static ICPU_INLINE Sums multiplied(__m256i a, __m256i b) { return reinterpret_cast<Sums>(_mm256_madd_epi16(a, b)); }
};

template <class A>
struct MaddAvx2Products : MaddProducts<A, Words256> {
  static ICPU_INLINE __m256 groups(const A* from) { return _mm256_castsi256_ps(Words256::widened(from)); }
};

struct MaddAvx2S8 : Avx2<MaddAvx2Products<int8_t>, 6, 1024> {};  // a panel of 16 KiB
struct MaddAvx2U8 : Avx2<MaddAvx2Products<uint8_t>, 6, 1024> {};

}  // namespace icpu::gemm
