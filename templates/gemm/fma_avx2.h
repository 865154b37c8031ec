// Micro kernels with AVX2 FMA for float, bf16 and f16, by weights of the same type or of int8: 6 rows by 16 columns of C in
// 12 registers. All are multiplied and added in float.
//
// Preconditions: FMA and F16C; those of avx2.h.
#pragma once

#include "avx2.h"

namespace icpu::gemm {

// 8 values of a type as floats.
inline ICPU_INLINE __m256 eight_floats(const float* from) { return _mm256_loadu_ps(from); }
inline ICPU_INLINE __m256 eight_floats(const bf16* from) {
  const auto bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline ICPU_INLINE __m256 eight_floats(const f16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline ICPU_INLINE __m256 eight_floats(const int8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

template <class A, class B = A>
struct FmaAvx2Products {
  using Source = A;
  using Element = float;
  using Weight = B;
  using Sum = float;
  static constexpr int kPair = 1;
  static constexpr int kLanes = 8;
  static constexpr bool kShifted = false;

  static ICPU_INLINE __m256 line(const B* b) { return eight_floats(b); }
  static ICPU_INLINE __m256 spread(const float* a) { return _mm256_broadcast_ss(a); }
  static ICPU_INLINE __m256 dot(__m256 sum, __m256 a, __m256 b) { return _mm256_fmadd_ps(a, b, sum); }
  static ICPU_INLINE __m256 groups(const A* from) { return eight_floats(from); }
};

template <class A, class B = A>
struct FmaAvx2 : Avx2<FmaAvx2Products<A, B>, 6, 256, 2> {};  // a panel of 16 KiB

struct FmaAvx2F32 : FmaAvx2<float> {};
struct FmaAvx2Bf16 : FmaAvx2<bf16> {};
struct FmaAvx2F16 : FmaAvx2<f16> {};
struct FmaAvx2F32S8 : FmaAvx2<float, int8_t> {};
struct FmaAvx2Bf16S8 : FmaAvx2<bf16, int8_t> {};
struct FmaAvx2F16S8 : FmaAvx2<f16, int8_t> {};

}  // namespace icpu::gemm
