// Micro kernels of int8 matrix products with the dot products of AVX-VNNI: 4 rows by 16 columns of C in 8 registers.
//
// Preconditions: avx_vnni; those of avx2.h. Otherwise as vnni_avx512.h.
#pragma once

#include "avx2.h"

namespace icpu::gemm {

template <class A>
struct VnniAvx2Products {
  using Source = A;
  using Element = uint8_t;
  using Weight = int8_t;
  using Sum = int32_t;
  static constexpr int kPair = 4;
  static constexpr int kLanes = 8;
  static constexpr bool kShifted = std::is_signed_v<A>;
  typedef int32_t Sums __attribute__((vector_size(32), may_alias));

  static ICPU_INLINE __m256i line(const int8_t* b) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)); }
  static ICPU_INLINE __m256i spread(const uint8_t* a) {
    int32_t four;
    std::memcpy(&four, a, sizeof(four));
    return _mm256_set1_epi32(four);
  }
  static ICPU_INLINE __m256i shift() { return _mm256_set1_epi8(static_cast<char>(0x80)); }
  static ICPU_INLINE Sums dot(Sums sum, __m256i a, __m256i b) {
    return reinterpret_cast<Sums>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sum), a, b));
  }
  static ICPU_INLINE __m256 groups(const A* from) {
    const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm256_castsi256_ps(kShifted ? _mm256_xor_si256(values, shift()) : values);
  }
};

struct VnniAvx2S8 : Avx2<VnniAvx2Products<int8_t>, 4, 1024> {};  // a panel of 16 KiB
struct VnniAvx2U8 : Avx2<VnniAvx2Products<uint8_t>, 4, 1024> {};

}  // namespace icpu::gemm
