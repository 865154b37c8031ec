// Micro kernels of int8 matrix products with AVX-512 but without its dot products of bytes. See madd.h.
//
// Preconditions: those of avx512.h.
#pragma once

#include "avx512.h"
#include "madd.h"

namespace icpu::gemm {

// 32 bytes as vectors of 16-bit values.
struct Words512 {
  static constexpr int kLanes = 16;
  using Vector = __m512i;
  typedef int32_t Sums __attribute__((vector_size(64), may_alias));

  static ICPU_INLINE __m512i widened(const int8_t* from) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static ICPU_INLINE __m512i spread(int32_t pair) { return _mm512_set1_epi32(pair); }
  static ICPU_INLINE Sums multiplied(__m512i a, __m512i b) { return reinterpret_cast<Sums>(_mm512_madd_epi16(a, b)); }
};

template <class A>
struct MaddAvx512Products : MaddProducts<A, Words512> {
  static ICPU_INLINE __m512 groups(const A* from, int64_t count) {
    const __m256i bytes = _mm256_maskz_loadu_epi8(first_lanes<__mmask32>(count), from);
    return _mm512_castsi512_ps(std::is_signed_v<A> ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes));
  }
};

struct MaddS8 : Avx512<MaddAvx512Products<int8_t>> {};
struct MaddU8 : Avx512<MaddAvx512Products<uint8_t>> {};

}  // namespace icpu::gemm
