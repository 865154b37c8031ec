// Random bits as a function of a counter and a key: Philox2x32-10 (J. Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). Not part of the prelude: few kernels need it.
//
// Preconditions: the prelude comes first. (counter, high) is the counter of 64 bits; integers stand for their bits. The
// two words of a result are asked for one by one: the compiler computes what they share once.
#pragma once

#include "vec_ops.h"

namespace icpu {

inline constexpr uint32_t kPhiloxMultiplier = 0xD256D193u, kPhiloxStep = 0x9E3779B9u;
inline constexpr int kPhiloxRounds = 10;

template <int word>
inline int32_t philox(int32_t counter, int32_t high, int32_t key) {
  auto a = static_cast<uint32_t>(counter), b = static_cast<uint32_t>(high), k = static_cast<uint32_t>(key);
  for (int round = 0; round < kPhiloxRounds; ++round, k += kPhiloxStep) {
    const uint64_t product = uint64_t(a) * kPhiloxMultiplier;
    a = static_cast<uint32_t>(product >> 32) ^ k ^ b;
    b = static_cast<uint32_t>(product);
  }
  return static_cast<int32_t>(word == 0 ? a : b);
}

template <int word>
inline ICPU_INLINE Reg<int32_t> philox(Reg<int32_t> a, Reg<int32_t> b, Reg<int32_t> key) {
#if defined(CPU_CAPABILITY_AVX512)
  const __m512i multiplier = _mm512_set1_epi32(static_cast<int32_t>(kPhiloxMultiplier));
#else
  const __m256i multiplier = _mm256_set1_epi32(static_cast<int32_t>(kPhiloxMultiplier));
#endif
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
#if defined(CPU_CAPABILITY_AVX512)
    const __m512i even = _mm512_mul_epu32((__m512i)a, multiplier);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), multiplier);
    const __m512i upper = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_CDAB);
    const __m512i lower = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CDAB);
#else
    const __m256i even = _mm256_mul_epu32((__m256i)a, multiplier);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), multiplier);
    const __m256i upper = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    const __m256i lower = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#endif
    a = (Reg<int32_t>)upper ^ key ^ b;
    b = (Reg<int32_t>)lower;
    key = (Reg<int32_t>)((Reg<uint32_t>)key + kPhiloxStep);  // unsigned: it overflows
  }
  return word == 0 ? a : b;
}

template <int word, int U>
inline ICPU_INLINE Vec<int32_t, U> philox(const Vec<int32_t, U>& a, const Vec<int32_t, U>& b, const Vec<int32_t, U>& key) {
  Vec<int32_t, U> bits;
  for (int u = 0; u < U; ++u) bits.r[u] = philox<word>(a.r[u], b.r[u], key.r[u]);
  return bits;
}

}  // namespace icpu
