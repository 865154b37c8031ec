// Micro kernels with AVX-512 FMA for float, bf16 and f16, by weights of the same type or of int8: all are multiplied and
// added in float.
//
// Preconditions: those of avx512.h.
#pragma once

#include "avx512.h"

namespace icpu::gemm {

// 16 values of a type as floats.
inline ICPU_INLINE __m512 floats(const float* from) { return _mm512_loadu_ps(from); }
inline ICPU_INLINE __m512 floats(const bf16* from) {
  const auto bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline ICPU_INLINE __m512 floats(const f16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline ICPU_INLINE __m512 floats(const int8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

template <class A, class B = A>
struct FmaProducts {
  using Source = A;
  using Element = float;
  using Weight = B;
  using Sum = float;
  static constexpr int kPair = 1;
  static constexpr int kLanes = 16;
  static constexpr bool kShifted = false;

  static ICPU_INLINE __m512 line(const B* b) { return floats(b); }
  static ICPU_INLINE __m512 spread(const float* a) { return _mm512_set1_ps(*a); }
  static ICPU_INLINE __m512 dot(__m512 sum, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, sum); }

  static ICPU_INLINE __m512 groups(const A* from, int64_t count) {
    if (count >= 16) return floats(from);
    if constexpr (sizeof(A) == 4) {
      return _mm512_maskz_loadu_ps(first_lanes<__mmask16>(count), from);
    } else {
      alignas(32) A some[16] = {};
      std::memcpy(static_cast<void*>(some), from, static_cast<size_t>(count) * sizeof(A));
      return floats(some);
    }
  }
};

struct FmaF32 : Avx512<FmaProducts<float>> {};
struct FmaBf16 : Avx512<FmaProducts<bf16>> {};
struct FmaF16 : Avx512<FmaProducts<f16>> {};
struct FmaF32S8 : Avx512<FmaProducts<float, int8_t>> {};
struct FmaBf16S8 : Avx512<FmaProducts<bf16, int8_t>> {};
struct FmaF16S8 : Avx512<FmaProducts<f16, int8_t>> {};

}  // namespace icpu::gemm
