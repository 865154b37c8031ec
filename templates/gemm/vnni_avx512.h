// Micro kernels of int8 matrix products with the dot products of AVX-512: four products a lane, added in int32.
//
// Preconditions: those of avx512.h, and avx512_vnni. Sums wrap around beyond 32 bits. The instruction wants A without a
// sign: a signed A is packed with 128 added, and the sums lose 128 times the sums of B. Such an A cannot be filled with
// zero bytes (patches.h).
#pragma once

#include "avx512.h"

namespace icpu::gemm {

template <class A>
struct VnniProducts {
  using Source = A;
  using Element = uint8_t;
  using Weight = int8_t;
  using Sum = int32_t;
  static constexpr int kPair = 4;
  static constexpr int kLanes = 16;
  static constexpr bool kShifted = std::is_signed_v<A>;
  typedef int32_t Sums __attribute__((vector_size(64), may_alias));

  static ICPU_INLINE __m512i line(const int8_t* b) { return _mm512_loadu_si512(b); }
  static ICPU_INLINE __m512i spread(const uint8_t* a) {
    int32_t four;
    std::memcpy(&four, a, sizeof(four));
    return _mm512_set1_epi32(four);
  }
  static ICPU_INLINE __m512i shift() { return _mm512_set1_epi8(static_cast<char>(0x80)); }
  static ICPU_INLINE Sums dot(Sums sum, __m512i a, __m512i b) {
    return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), a, b));
  }
  static ICPU_INLINE __m512 groups(const A* from, int64_t count) {
    const __m512i values = _mm512_maskz_loadu_epi8(first_lanes<__mmask64>(count), from);
    return _mm512_castsi512_ps(kShifted ? _mm512_xor_si512(values, shift()) : values);
  }
};

struct VnniS8 : Avx512<VnniProducts<int8_t>> {};
struct VnniU8 : Avx512<VnniProducts<uint8_t>> {};

}  // namespace icpu::gemm
