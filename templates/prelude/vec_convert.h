// Conversions between vectors of different element types, and rounding to bf16 and f16.
//
// Preconditions: results that do not fit are those of the x86 conversion instructions, as in scalar code.
#pragma once

#include "vec_ops.h"

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
inline __m256 low_half(Reg<float> a) { return _mm512_castps512_ps256(a); }
inline __m256 high_half(Reg<float> a) { return _mm512_extractf32x8_ps(a, 1); }
inline __m256i low_half(Reg<int32_t> a) { return _mm512_castsi512_si256((__m512i)a); }
inline __m256i high_half(Reg<int32_t> a) { return _mm512_extracti64x4_epi64((__m512i)a, 1); }
inline Reg<float> join(__m256 lo, __m256 hi) { return _mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1); }
inline Reg<int32_t> join(__m256i lo, __m256i hi) {
  return (Reg<int32_t>)_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}

inline void widen(Reg<float> a, Reg<double>* r) {
  r[0] = _mm512_cvtps_pd(low_half(a));
  r[1] = _mm512_cvtps_pd(high_half(a));
}
inline void widen(Reg<float> a, Reg<int64_t>* r) {
  r[0] = (Reg<int64_t>)_mm512_cvttps_epi64(low_half(a));
  r[1] = (Reg<int64_t>)_mm512_cvttps_epi64(high_half(a));
}
inline void widen(Reg<int32_t> a, Reg<double>* r) {
  r[0] = _mm512_cvtepi32_pd(low_half(a));
  r[1] = _mm512_cvtepi32_pd(high_half(a));
}
inline void widen(Reg<int32_t> a, Reg<int64_t>* r) {
  r[0] = (Reg<int64_t>)_mm512_cvtepi32_epi64(low_half(a));
  r[1] = (Reg<int64_t>)_mm512_cvtepi32_epi64(high_half(a));
}
inline void narrow(const Reg<double>* a, Reg<float>& r) { r = join(_mm512_cvtpd_ps(a[0]), _mm512_cvtpd_ps(a[1])); }
inline void narrow(const Reg<double>* a, Reg<int32_t>& r) {
  r = join(_mm512_cvttpd_epi32(a[0]), _mm512_cvttpd_epi32(a[1]));
}
inline void narrow(const Reg<int64_t>* a, Reg<float>& r) {
  r = join(_mm512_cvtepi64_ps((__m512i)a[0]), _mm512_cvtepi64_ps((__m512i)a[1]));
}
inline void narrow(const Reg<int64_t>* a, Reg<int32_t>& r) {
  r = join(_mm512_cvtepi64_epi32((__m512i)a[0]), _mm512_cvtepi64_epi32((__m512i)a[1]));
}
inline Reg<double> same_width(Reg<int64_t> a, double) { return _mm512_cvtepi64_pd((__m512i)a); }
inline Reg<int64_t> same_width(Reg<double> a, int64_t) { return (Reg<int64_t>)_mm512_cvttpd_epi64(a); }
inline Reg<float> same_width(Reg<int32_t> a, float) { return _mm512_cvtepi32_ps((__m512i)a); }
inline Reg<int32_t> same_width(Reg<float> a, int32_t) { return (Reg<int32_t>)_mm512_cvttps_epi32(a); }
#else
inline __m128 low_half(Reg<float> a) { return _mm256_castps256_ps128(a); }
inline __m128 high_half(Reg<float> a) { return _mm256_extractf128_ps(a, 1); }
inline __m128i low_half(Reg<int32_t> a) { return _mm256_castsi256_si128((__m256i)a); }
inline __m128i high_half(Reg<int32_t> a) { return _mm256_extracti128_si256((__m256i)a, 1); }
inline Reg<float> join(__m128 lo, __m128 hi) { return _mm256_set_m128(hi, lo); }
inline Reg<int32_t> join(__m128i lo, __m128i hi) { return (Reg<int32_t>)_mm256_set_m128i(hi, lo); }

// AVX2 has no conversion between 64-bit integers and floats. Where 32 bits hold all lanes, as they do positions, it is one of
// 32 bits; else these go through scalar instructions.
template <class To, class From>
inline void each_lane(const From* from, To* to, int n) {
  for (int i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
}

// Whether a conversion to 32 bits has met no number that they do not hold.
inline bool all_fit(Reg<int32_t> converted) {
  const __m256i none = _mm256_set1_epi32(std::numeric_limits<int32_t>::min());
  return _mm256_testz_si256(_mm256_cmpeq_epi32((__m256i)converted, none), _mm256_set1_epi32(-1));
}
inline bool all_fit(__m128i converted) {
  return _mm_testz_si128(_mm_cmpeq_epi32(converted, _mm_set1_epi32(std::numeric_limits<int32_t>::min())), _mm_set1_epi32(-1));
}

// The lower halves of four integers, and whether these are the integers.
inline __m128i low_words(Reg<int64_t> a) {
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32((__m256i)a, even));
}
inline bool are_all_of(__m128i words, Reg<int64_t> a) {
  const __m256i differ = _mm256_xor_si256(_mm256_cvtepi32_epi64(words), (__m256i)a);
  return _mm256_testz_si256(differ, differ);
}

inline void widen(Reg<float> a, Reg<double>* r) {
  r[0] = _mm256_cvtps_pd(low_half(a));
  r[1] = _mm256_cvtps_pd(high_half(a));
}
inline void widen(Reg<float> a, Reg<int64_t>* r) {
  const auto words = (Reg<int32_t>)_mm256_cvttps_epi32(a);
  if (all_fit(words)) {
    r[0] = (Reg<int64_t>)_mm256_cvtepi32_epi64(low_half(words));
    r[1] = (Reg<int64_t>)_mm256_cvtepi32_epi64(high_half(words));
    return;
  }
  float from[8];
  int64_t to[8];
  std::memcpy(from, &a, sizeof(from));
  each_lane(from, to, 8);
  std::memcpy(r, to, sizeof(to));
}
inline void widen(Reg<int32_t> a, Reg<double>* r) {
  r[0] = _mm256_cvtepi32_pd(low_half(a));
  r[1] = _mm256_cvtepi32_pd(high_half(a));
}
inline void widen(Reg<int32_t> a, Reg<int64_t>* r) {
  r[0] = (Reg<int64_t>)_mm256_cvtepi32_epi64(low_half(a));
  r[1] = (Reg<int64_t>)_mm256_cvtepi32_epi64(high_half(a));
}
inline void narrow(const Reg<double>* a, Reg<float>& r) { r = join(_mm256_cvtpd_ps(a[0]), _mm256_cvtpd_ps(a[1])); }
inline void narrow(const Reg<double>* a, Reg<int32_t>& r) {
  r = join(_mm256_cvttpd_epi32(a[0]), _mm256_cvttpd_epi32(a[1]));
}
inline void narrow(const Reg<int64_t>* a, Reg<float>& r) {
  const __m128i low = low_words(a[0]), high = low_words(a[1]);
  if (are_all_of(low, a[0]) && are_all_of(high, a[1])) {
    r = _mm256_cvtepi32_ps(_mm256_set_m128i(high, low));
    return;
  }
  int64_t from[8];
  float to[8];
  std::memcpy(from, a, sizeof(from));
  each_lane(from, to, 8);
  std::memcpy(&r, to, sizeof(to));
}
inline void narrow(const Reg<int64_t>* a, Reg<int32_t>& r) {
  r = join(low_words(a[0]), low_words(a[1]));
}
template <class From, class To>
inline Reg<To> by_lane(Reg<From> a) {
  From from[4];
  To to[4];
  std::memcpy(from, &a, sizeof(from));
  each_lane(from, to, 4);
  Reg<To> r;
  std::memcpy(&r, to, sizeof(to));
  return r;
}
inline Reg<double> same_width(Reg<int64_t> a, double) {
  const __m128i words = low_words(a);
  return are_all_of(words, a) ? _mm256_cvtepi32_pd(words) : by_lane<int64_t, double>(a);
}
inline Reg<int64_t> same_width(Reg<double> a, int64_t) {
  const __m128i words = _mm256_cvttpd_epi32(a);
  return all_fit(words) ? (Reg<int64_t>)_mm256_cvtepi32_epi64(words) : by_lane<double, int64_t>(a);
}
inline Reg<float> same_width(Reg<int32_t> a, float) { return _mm256_cvtepi32_ps((__m256i)a); }
inline Reg<int32_t> same_width(Reg<float> a, int32_t) { return (Reg<int32_t>)_mm256_cvttps_epi32(a); }
#endif

// To: the element type of the result; one of the types that Vec can hold. Narrower integers: convert, then wrap.
template <class To, class From, int U>
inline value_t<To, U> convert(const Vec<From, U>& a) {
  if constexpr (std::is_same_v<To, From>) {
    return a;
  } else if constexpr (std::is_same_v<To, bool>) {
    return a != splat<U>(From(0));
  } else {
    static_assert(sizeof(To) >= 4);
    Vec<To, U> result;
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      if constexpr (sizeof(From) < sizeof(To)) {
        widen(a.r[u], &result.r[2 * u]);
      } else if constexpr (sizeof(From) > sizeof(To)) {
        narrow(&a.r[2 * u], result.r[u]);
      } else {
        constexpr int n = Vec<To, U>::per_unit;
        for (int j = 0; j < n; ++j) result.r[n * u + j] = same_width(a.r[n * u + j], To());
      }
    }
    return result;
  }
}

template <class To, int U>
inline value_t<To, U> convert(const Mask<U>& a) {
  if constexpr (std::is_same_v<To, bool>) {
    return a;
  } else {
    return select(a, splat<U>(To(1)), splat<U>(To(0)));
  }
}

// -- bf16 and f16 -----------------------------------------------------------------------------------------------------
// Bits of the nearest bf16 (ties to even) in the high half of each lane; the low half is zero. NaN gives a quiet NaN.
#if defined(CPU_CAPABILITY_AVX512)
// The nearest bf16 in the high half of each lane; the low one holds what is left. For lanes whose NaN have a low half of
// zeros: a sum could carry another one into the sign. To the bits are added 0x7fff and the last bit that stays.
inline Reg<uint32_t> plain_halves(Reg<float> a) {
  const __m512i bits = (__m512i)a, last = _mm512_set1_epi32(0x10000), below = _mm512_set1_epi32(0x7fff);
#if defined(ICPU_AVX512_VNNI)
  // Both at once, as the sum of the 16-bit halves of (bits & last) | below.
  const __m512i halves = _mm512_ternarylogic_epi32(bits, last, below, 0xea);
  return (Reg<uint32_t>)_mm512_dpwssd_epi32(bits, halves, _mm512_set1_epi16(1));
#else
  const __mmask16 odd = _mm512_test_epi32_mask(bits, last);
  return (Reg<uint32_t>)_mm512_mask_add_epi32(_mm512_add_epi32(bits, below), odd, bits, _mm512_set1_epi32(0x8000));
#endif
}
inline Reg<uint32_t> plain_bf16_bits(Reg<float> a) { return plain_halves(a) & 0xffff0000u; }
inline Reg<uint32_t> bf16_bits(Reg<float> a) {
  return plain_bf16_bits(_mm512_fixupimm_ps(a, a, _mm512_set1_epi32(0x33), 0));  // NaN becomes the processor's own
}
#else
// As with AVX-512, for NaN with a low half of zeros; `halves` takes any NaN and gives it its own bits.
inline Reg<uint32_t> plain_halves(Reg<float> a) {
  const auto bits = (Reg<uint32_t>)a;
  // Half of what is cut off, or one less where the last bit that stays is 0: ties then go to even ones.
  const __m256 less = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fff)), half = _mm256_castsi256_ps(_mm256_set1_epi32(0x8000));
  return bits + (Reg<uint32_t>)_mm256_blendv_ps(less, half, (__m256)(bits << 15));
}
inline Reg<uint32_t> halves(Reg<float> a) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  return (Reg<uint32_t>)_mm256_blendv_ps((__m256)plain_halves(a), nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
inline Reg<uint32_t> plain_bf16_bits(Reg<float> a) { return plain_halves(a) & 0xffff0000u; }
inline Reg<uint32_t> bf16_bits(Reg<float> a) { return halves(a) & 0xffff0000u; }

// The high halves of 16 lanes.
inline __m256i high_words(Reg<uint32_t> lo, Reg<uint32_t> hi) {
  const __m256i packed = _mm256_packus_epi32((__m256i)(lo >> 16), (__m256i)(hi >> 16));
  return _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
}
// The nearest bf16 of each lane, packed.
inline __m128i narrow_bf16(Reg<float> a) {
  const Reg<uint32_t> nearest = halves(a);
  return _mm256_castsi256_si128(high_words(nearest, nearest));
}
inline __m256i narrow_bf16(Reg<float> lo, Reg<float> hi) { return high_words(halves(lo), halves(hi)); }
#endif

#if defined(CPU_CAPABILITY_AVX512)
// Where the 16-bit words of a register go to, or come from, when bf16 are the high halves of floats.
alignas(64) inline constexpr uint16_t kHalfOfWord[32] = {0,  0,  1,  1,  2,  2,  3,  3,  4,  4,  5,
                                                         5,  6,  6,  7,  7,  8,  8,  9,  9,  10, 10,
                                                         11, 11, 12, 12, 13, 13, 14, 14, 15, 15};
alignas(64) inline constexpr uint16_t kHighWords[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                        23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                        45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

inline Reg<float> of_bf16_bits(__m256i a) {
  const __m512i places = _mm512_load_si512(kHalfOfWord);
  return (Reg<float>)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, places, _mm512_castsi256_si512(a));
}

// The high halves of 32 lanes.
inline __m512i high_words(__m512i lo, __m512i hi) {
  return _mm512_permutex2var_epi16(lo, _mm512_load_si512(kHighWords), hi);
}

// The nearest bf16 of each lane, packed. The instructions take denormals for zero, so they go the long way.
inline __m256i narrow_bf16(Reg<float> a) {
#if defined(ICPU_AVX512_BF16)
  if (__builtin_expect(_mm512_fpclass_ps_mask(a, 0x20) == 0, 1)) return (__m256i)_mm512_cvtneps_pbh(a);
#endif
  return _mm512_cvtepi32_epi16((__m512i)(bf16_bits(a) >> 16));
}
inline __m512i narrow_bf16(Reg<float> lo, Reg<float> hi) {
#if defined(ICPU_AVX512_BF16)
  const bool normal = _kortestz_mask16_u8(_mm512_fpclass_ps_mask(lo, 0x20), _mm512_fpclass_ps_mask(hi, 0x20));
  if (__builtin_expect(normal, 1)) return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
#endif
  return high_words((__m512i)bf16_bits(lo), (__m512i)bf16_bits(hi));
}
#endif

template <int U>
inline Vec<float, U> round_bf16(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return (Reg<float>)bf16_bits(x); }, a);
}
template <int U>
inline Vec<float, U> round_plain_bf16(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return (Reg<float>)plain_bf16_bits(x); }, a);
}

#if defined(CPU_CAPABILITY_AVX512)
inline __m256i f16_bits(Reg<float> a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Reg<float> of_f16_bits(__m256i a) { return _mm512_cvtph_ps(a); }
#else
inline __m128i f16_bits(Reg<float> a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Reg<float> of_f16_bits(__m128i a) { return _mm256_cvtph_ps(a); }
#endif

template <int U>
inline Vec<float, U> round_f16(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return of_f16_bits(f16_bits(x)); }, a);
}

}  // namespace icpu
