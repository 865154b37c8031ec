// AVX-512 (F, BW, DQ, VL, VNNI) in plain C++: the intrinsics that templates use, one line each where it can be.
//
// They are functions of the namespace icpu with the names of the compiler's own, which code in that namespace finds
// first; so one that is missing here is a compile error ("target specific option mismatch"), and none is taken for
// another. Semantics are those of Intel's manual (SDM, volume 2), for the immediates that templates use; any other ends
// the process.
//
// Preconditions: AVX2, FMA, F16C; round to nearest even; included in place of <immintrin.h> by the header of that name.
#pragma once

#include "lanes.h"

namespace icpu {

// Those that are macros in GCC.
#undef _mm512_setr_epi32
#undef _mm512_setr_epi64

#define OUT_OF_LINE [[gnu::noinline]] inline

// -- constants, parts -------------------------------------------------------------------------------------------------
inline __m512i _mm512_setzero_si512() { return __m512i{}; }
inline __m512 _mm512_set1_ps(float x) { return x - __m512{}; }  // a - 0 is exact, also for -0.0
inline __m512i _mm512_set1_epi8(char x) { return (__m512i)(__v64qi{} + x); }
inline __m512i _mm512_set1_epi16(short x) { return (__m512i)(__v32hi{} + x); }
inline __m512i _mm512_set1_epi32(int x) { return (__m512i)(__v16si{} + x); }
inline __m512i _mm512_set1_epi64(long long x) { return (__m512i)(__v8di{} + x); }
template <class... Ints>
inline __m512i _mm512_setr_epi32(Ints... x) {
  return (__m512i)__v16si{static_cast<int>(x)...};
}
template <class... Ints>
inline __m512i _mm512_setr_epi64(Ints... x) {
  return (__m512i)__v8di{static_cast<long long>(x)...};
}
inline __m128i _mm_maskz_set1_epi8(__mmask16 m, char x) { return emulated::select<char>(m, _mm_set1_epi8(x), __m128i{}); }

inline __m512d _mm512_castps_pd(__m512 a) { return (__m512d)a; }
inline __m512 _mm512_castpd_ps(__m512d a) { return (__m512)a; }
inline __m512i _mm512_castps_si512(__m512 a) { return (__m512i)a; }
inline __m512 _mm512_castsi512_ps(__m512i a) { return (__m512)a; }
inline __m256i _mm512_castsi512_si256(__m512i a) { return emulated::part<__m256i>(a, 0); }
inline __m128i _mm512_castsi512_si128(__m512i a) { return emulated::part<__m128i>(a, 0); }
inline __m256 _mm512_castps512_ps256(__m512 a) { return emulated::part<__m256>(a, 0); }
inline __m512i _mm512_castsi256_si512(__m256i a) { return emulated::with_part(__m512i{}, a, 0); }
inline __m512 _mm512_castps256_ps512(__m256 a) { return emulated::with_part(__m512{}, a, 0); }
inline __m256i _mm512_extracti64x4_epi64(__m512i a, int i) { return emulated::part<__m256i>(a, i); }
inline __m128i _mm512_extracti64x2_epi64(__m512i a, int i) { return emulated::part<__m128i>(a, i); }
inline __m128i _mm512_extracti32x4_epi32(__m512i a, int i) { return emulated::part<__m128i>(a, i); }
inline __m256 _mm512_extractf32x8_ps(__m512 a, int i) { return emulated::part<__m256>(a, i); }
inline __m512i _mm512_inserti64x4(__m512i a, __m256i b, int i) { return emulated::with_part(a, b, i); }
inline __m512 _mm512_insertf32x8(__m512 a, __m256 b, int i) { return emulated::with_part(a, b, i); }

// -- memory -----------------------------------------------------------------------------------------------------------
inline __m512 _mm512_loadu_ps(const void* p) { return emulated::load<__m512>(p); }
inline __m512i _mm512_loadu_si512(const void* p) { return emulated::load<__m512i>(p); }
inline __m512 _mm512_load_ps(const void* p) { return emulated::load<__m512>(emulated::aligned(p)); }
inline __m512i _mm512_load_si512(const void* p) { return emulated::load<__m512i>(emulated::aligned(p)); }
inline void _mm512_storeu_ps(void* p, __m512 v) { emulated::store(p, v); }
inline void _mm512_storeu_si512(void* p, __m512i v) { emulated::store(p, v); }
inline void _mm512_store_ps(void* p, __m512 v) { emulated::store(emulated::aligned(p), v); }
inline void _mm512_store_si512(void* p, __m512i v) { emulated::store(emulated::aligned(p), v); }
inline void _mm512_stream_si512(void* p, __m512i v) { emulated::store(emulated::aligned(p), v); }

#define MASKED_LOAD(name, V, T, M) \
  OUT_OF_LINE V name(M m, const void* p) { return emulated::load<V, T>(m, p); }
MASKED_LOAD(_mm512_maskz_loadu_ps, __m512, float, __mmask16)
MASKED_LOAD(_mm512_maskz_loadu_pd, __m512d, double, __mmask8)
MASKED_LOAD(_mm512_maskz_loadu_epi8, __m512i, char, __mmask64)
MASKED_LOAD(_mm512_maskz_loadu_epi16, __m512i, short, __mmask32)
MASKED_LOAD(_mm512_maskz_loadu_epi32, __m512i, int, __mmask16)
MASKED_LOAD(_mm512_maskz_loadu_epi64, __m512i, long long, __mmask8)
MASKED_LOAD(_mm256_maskz_loadu_epi8, __m256i, char, __mmask32)
MASKED_LOAD(_mm256_maskz_loadu_epi16, __m256i, short, __mmask16)
MASKED_LOAD(_mm_maskz_loadu_epi8, __m128i, char, __mmask16)
#undef MASKED_LOAD

#define MASKED_STORE(name, V, T, M) \
  OUT_OF_LINE void name(void* p, M m, V v) { emulated::store<T>(p, m, v); }
MASKED_STORE(_mm512_mask_storeu_ps, __m512, float, __mmask16)
MASKED_STORE(_mm512_mask_storeu_pd, __m512d, double, __mmask8)
MASKED_STORE(_mm512_mask_storeu_epi8, __m512i, char, __mmask64)
MASKED_STORE(_mm512_mask_storeu_epi16, __m512i, short, __mmask32)
MASKED_STORE(_mm512_mask_storeu_epi32, __m512i, int, __mmask16)
MASKED_STORE(_mm512_mask_storeu_epi64, __m512i, long long, __mmask8)
MASKED_STORE(_mm256_mask_storeu_epi16, __m256i, short, __mmask16)
MASKED_STORE(_mm_mask_storeu_epi8, __m128i, char, __mmask16)
#undef MASKED_STORE

OUT_OF_LINE __m256i _mm512_mask_i64gather_epi32(__m256i other, __mmask8 m, __m512i at, const void* p, int scale) {
  return emulated::gather<__m256i, int>(m, other, emulated::lanes<int64_t>(at), p, scale);
}
OUT_OF_LINE __m512i _mm512_mask_i64gather_epi64(__m512i other, __mmask8 m, __m512i at, const void* p, int scale) {
  return emulated::gather<__m512i, int64_t>(m, other, emulated::lanes<int64_t>(at), p, scale);
}
OUT_OF_LINE void _mm512_mask_i64scatter_epi32(void* p, __mmask8 m, __m512i at, __m256i v, int scale) {
  emulated::scatter<int>(p, m, emulated::lanes<int64_t>(at), v, scale);
}
OUT_OF_LINE void _mm512_mask_i64scatter_epi64(void* p, __mmask8 m, __m512i at, __m512i v, int scale) {
  emulated::scatter<int64_t>(p, m, emulated::lanes<int64_t>(at), v, scale);
}
OUT_OF_LINE __m512i _mm512_maskz_compress_epi32(__mmask16 m, __m512i a) { return emulated::compress<int>(m, a); }
OUT_OF_LINE __m512i _mm512_maskz_compress_epi64(__mmask8 m, __m512i a) { return emulated::compress<int64_t>(m, a); }

// -- arithmetic -------------------------------------------------------------------------------------------------------
inline __m512 _mm512_add_ps(__m512 a, __m512 b) { return a + b; }
inline __m512 _mm512_sub_ps(__m512 a, __m512 b) { return a - b; }
inline __m512 _mm512_mul_ps(__m512 a, __m512 b) { return a * b; }
inline __m512i _mm512_add_epi32(__m512i a, __m512i b) { return (__m512i)((__v16su)a + (__v16su)b); }
inline __m512i _mm512_add_epi64(__m512i a, __m512i b) { return (__m512i)((__v8du)a + (__v8du)b); }
inline __m512i _mm512_and_si512(__m512i a, __m512i b) { return a & b; }
inline __m512i _mm512_or_si512(__m512i a, __m512i b) { return a | b; }
inline __m512i _mm512_xor_si512(__m512i a, __m512i b) { return a ^ b; }
inline __m512i _mm512_mul_epu32(__m512i a, __m512i b) {
  return (__m512i)(((__v8du)a & 0xffffffff) * ((__v8du)b & 0xffffffff));
}
inline __m512i _mm512_slli_epi32(__m512i a, unsigned n) { return n > 31 ? __m512i{} : (__m512i)((__v16su)a << int(n)); }
inline __m512i _mm512_srli_epi32(__m512i a, unsigned n) { return n > 31 ? __m512i{} : (__m512i)((__v16su)a >> int(n)); }
inline __m512i _mm512_srai_epi32(__m512i a, unsigned n) { return (__m512i)((__v16si)a >> int(n > 31 ? 31 : n)); }
inline __m512i _mm512_srli_epi64(__m512i a, unsigned n) {
  return n > 63 ? __m512i{} : (__m512i)((__v8du)a >> static_cast<long long>(n));
}
inline __m512i _mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int table) {
  __m512i result{};
  for (int i = 0; i < 8; ++i) {
    if (emulated::bit(table, i)) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

// A row: name, register, type of the lanes, arguments, what lane i becomes of the lanes x, y and z of the arguments.
#define OF_ONE(name, V, T, value)                                       \
  OUT_OF_LINE V name(V a) {                                             \
    const auto x = emulated::lanes<T>(a);                               \
    return emulated::each<V, T>([&](int i) -> T { return value; });     \
  }
#define OF_TWO(name, V, T, value)                                       \
  OUT_OF_LINE V name(V a, V b) {                                        \
    const auto x = emulated::lanes<T>(a), y = emulated::lanes<T>(b);    \
    return emulated::each<V, T>([&](int i) -> T { return value; });     \
  }
#define OF_THREE(name, V, T, value)                                                                   \
  OUT_OF_LINE V name(V a, V b, V c) {                                                                 \
    const auto x = emulated::lanes<T>(a), y = emulated::lanes<T>(b), z = emulated::lanes<T>(c);       \
    return emulated::each<V, T>([&](int i) -> T { return value; });                                   \
  }
OF_THREE(_mm512_fmadd_ps, __m512, float, __builtin_fmaf(x[i], y[i], z[i]))
OF_THREE(_mm512_fmadd_pd, __m512d, double, __builtin_fma(x[i], y[i], z[i]))
OF_TWO(_mm512_min_ps, __m512, float, x[i] < y[i] ? x[i] : y[i])
OF_TWO(_mm512_max_ps, __m512, float, x[i] > y[i] ? x[i] : y[i])
OF_TWO(_mm512_min_pd, __m512d, double, x[i] < y[i] ? x[i] : y[i])
OF_TWO(_mm512_max_pd, __m512d, double, x[i] > y[i] ? x[i] : y[i])
OF_ONE(_mm512_sqrt_ps, __m512, float, __builtin_sqrtf(x[i]))
OF_ONE(_mm512_sqrt_pd, __m512d, double, __builtin_sqrt(x[i]))
OF_ONE(_mm512_rcp14_ps, __m512, float, emulated::about_reciprocal(x[i]))
OF_TWO(_mm512_scalef_ps, __m512, float, emulated::scaled(x[i], y[i]))
OF_ONE(_mm512_getexp_ps, __m512, float, emulated::exponent(x[i]))
OF_TWO(_mm512_max_epu16, __m512i, uint16_t, x[i] > y[i] ? x[i] : y[i])
OF_TWO(_mm512_madd_epi16, __m512i, uint32_t, emulated::dot_of_shorts(x[i], y[i]))
OF_THREE(_mm512_dpwssd_epi32, __m512i, uint32_t, x[i] + emulated::dot_of_shorts(y[i], z[i]))
OF_THREE(_mm512_dpbusd_epi32, __m512i, uint32_t, emulated::dot_of_bytes<uint8_t>(x[i], y[i], z[i]))
#undef OF_ONE
#undef OF_TWO
#undef OF_THREE

OUT_OF_LINE __m512 _mm512_roundscale_ps(__m512 a, int immediate) {
  emulated::demand(immediate >> 4 == 0);
  const auto x = emulated::lanes<float>(a);
  return emulated::each<__m512, float>([&](int i) { return emulated::rounded(x[i], immediate); });
}
OUT_OF_LINE __m512d _mm512_roundscale_pd(__m512d a, int immediate) {
  emulated::demand(immediate >> 4 == 0);
  const auto x = emulated::lanes<double>(a);
  return emulated::each<__m512d, double>([&](int i) { return emulated::rounded(x[i], immediate); });
}
OUT_OF_LINE __m512 _mm512_reduce_ps(__m512 a, int immediate) {
  emulated::demand(immediate >> 4 == 0);
  const auto x = emulated::lanes<float>(a);
  return emulated::each<__m512, float>(
      [&](int i) { return std::isinf(x[i]) ? 0.0f : x[i] - emulated::rounded(x[i], immediate); });
}
// NaN becomes the processor's own: quiet, negative, without a payload.
OUT_OF_LINE __m512 _mm512_fixupimm_ps(__m512 a, __m512 b, __m512i table, int immediate) {
  const auto x = emulated::lanes<float>(a), y = emulated::lanes<float>(b);
  const auto rows = emulated::lanes<int>(table);
  return emulated::each<__m512, float>([&](int i) {
    emulated::demand(rows[i] == 0x33 && immediate == 0);
    return std::isnan(y[i]) ? -std::numeric_limits<float>::quiet_NaN() : x[i];
  });
}
// The one of larger magnitude, without its sign. A number beside NaN.
OUT_OF_LINE __m512 _mm512_range_ps(__m512 a, __m512 b, int immediate) {
  emulated::demand(immediate == 0b1011);
  const auto x = emulated::lanes<float>(a), y = emulated::lanes<float>(b);
  return emulated::each<__m512, float>([&](int i) { return std::fmax(std::fabs(x[i]), std::fabs(y[i])); });
}
OUT_OF_LINE float _mm512_reduce_add_ps(__m512 a) {
  auto x = emulated::lanes<float>(a);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  }
  return x[0];
}
OUT_OF_LINE float _mm512_reduce_max_ps(__m512 a) {
  auto x = emulated::lanes<float>(a);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  }
  return x[0];
}

// -- masks ------------------------------------------------------------------------------------------------------------
inline __mmask16 _mm512_kunpackb(__mmask16 high, __mmask16 low) { return static_cast<__mmask16>(high << 8 | (low & 0xff)); }
inline unsigned char _kortestz_mask16_u8(__mmask16 a, __mmask16 b) { return (a | b) == 0; }

OUT_OF_LINE __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int how) { return emulated::compare<float>(a, b, how); }
OUT_OF_LINE __mmask8 _mm512_cmp_pd_mask(__m512d a, __m512d b, int how) { return emulated::compare<double>(a, b, how); }
OUT_OF_LINE __mmask16 _mm512_cmp_epi32_mask(__m512i a, __m512i b, int how) {
  return emulated::compare_integers<int32_t>(a, b, how);
}
OUT_OF_LINE __mmask8 _mm512_cmp_epi64_mask(__m512i a, __m512i b, int how) {
  return emulated::compare_integers<int64_t>(a, b, how);
}
inline __mmask16 _mm512_cmplt_epi32_mask(__m512i a, __m512i b) { return _mm512_cmp_epi32_mask(a, b, 1); }
OUT_OF_LINE __mmask32 _mm512_cmpgt_epi16_mask(__m512i a, __m512i b) {
  return emulated::compare_integers<int16_t>(a, b, 6);
}
OUT_OF_LINE __mmask32 _mm512_cmpeq_epi16_mask(__m512i a, __m512i b) {
  return emulated::compare_integers<int16_t>(a, b, 0);
}
inline __mmask16 _mm512_movepi32_mask(__m512i a) { return _mm512_cmplt_epi32_mask(a, __m512i{}); }
OUT_OF_LINE __mmask32 _mm512_movepi16_mask(__m512i a) { return emulated::compare<int16_t>(a, __m512i{}, 1); }
inline __mmask16 _mm512_test_epi32_mask(__m512i a, __m512i b) { return _mm512_cmp_epi32_mask(a & b, __m512i{}, 4); }
OUT_OF_LINE __mmask16 _mm_test_epi8_mask(__m128i a, __m128i b) {
  return emulated::compare_integers<int8_t>(a & b, __m128i{}, 4);
}
OUT_OF_LINE __mmask32 _mm256_test_epi8_mask(__m256i a, __m256i b) {
  return emulated::compare_integers<int8_t>(a & b, __m256i{}, 4);
}
OUT_OF_LINE __mmask16 _mm512_fpclass_ps_mask(__m512 a, int classes) {
  emulated::demand(classes < 0x80);
  const auto x = emulated::lanes<float>(a);
  return emulated::mask<16>([&](int i) { return emulated::is_of_class(x[i], classes); });
}

#define BLEND(name, V, T, M) \
  OUT_OF_LINE V name(M m, V no, V yes) { return emulated::select<T>(m, yes, no); }
BLEND(_mm512_mask_blend_ps, __m512, float, __mmask16)
BLEND(_mm512_mask_blend_pd, __m512d, double, __mmask8)
BLEND(_mm512_mask_blend_epi32, __m512i, int32_t, __mmask16)
BLEND(_mm512_mask_blend_epi64, __m512i, int64_t, __mmask8)
#undef BLEND
OUT_OF_LINE __m512i _mm512_maskz_mov_epi16(__mmask32 m, __m512i a) { return emulated::select<int16_t>(m, a, __m512i{}); }
inline __m512i _mm512_mask_mov_epi32(__m512i no, __mmask16 m, __m512i yes) { return _mm512_mask_blend_epi32(m, no, yes); }
inline __m512i _mm512_maskz_set1_epi32(__mmask16 m, int x) {
  return _mm512_mask_blend_epi32(m, __m512i{}, _mm512_set1_epi32(x));
}

#define MASKED(name, V, M, blend, of)                                                            \
  template <class... Arguments>                                                                  \
  inline V _mm512_mask_##name(V no, M m, Arguments... arguments) {                               \
    return _mm512_mask_##blend(m, no, of(arguments...));                                         \
  }
MASKED(add_ps, __m512, __mmask16, blend_ps, _mm512_add_ps)
MASKED(min_ps, __m512, __mmask16, blend_ps, _mm512_min_ps)
MASKED(max_ps, __m512, __mmask16, blend_ps, _mm512_max_ps)
MASKED(min_pd, __m512d, __mmask8, blend_pd, _mm512_min_pd)
MASKED(max_pd, __m512d, __mmask8, blend_pd, _mm512_max_pd)
MASKED(add_epi32, __m512i, __mmask16, blend_epi32, _mm512_add_epi32)
inline __m512 _mm512_maskz_scalef_ps(__mmask16 m, __m512 a, __m512 b) {
  return _mm512_mask_blend_ps(m, __m512{}, _mm512_scalef_ps(a, b));
}
inline __m512 _mm512_maskz_fmadd_ps(__mmask16 m, __m512 a, __m512 b, __m512 c) {
  return _mm512_mask_blend_ps(m, __m512{}, _mm512_fmadd_ps(a, b, c));
}

// -- orders of lanes --------------------------------------------------------------------------------------------------
OUT_OF_LINE __m512 _mm512_unpacklo_ps(__m512 a, __m512 b) { return emulated::unpack<float>(a, b, false); }
OUT_OF_LINE __m512 _mm512_unpackhi_ps(__m512 a, __m512 b) { return emulated::unpack<float>(a, b, true); }
OUT_OF_LINE __m512d _mm512_unpacklo_pd(__m512d a, __m512d b) { return emulated::unpack<double>(a, b, false); }
OUT_OF_LINE __m512d _mm512_unpackhi_pd(__m512d a, __m512d b) { return emulated::unpack<double>(a, b, true); }
OUT_OF_LINE __m512i _mm512_unpacklo_epi16(__m512i a, __m512i b) { return emulated::unpack<int16_t>(a, b, false); }
OUT_OF_LINE __m512i _mm512_unpackhi_epi16(__m512i a, __m512i b) { return emulated::unpack<int16_t>(a, b, true); }
OUT_OF_LINE __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int how) { return emulated::shuffle_parts(a, b, how); }
OUT_OF_LINE __m512d _mm512_shuffle_f64x2(__m512d a, __m512d b, int how) { return emulated::shuffle_parts(a, b, how); }
OUT_OF_LINE __m512 _mm512_permute_ps(__m512 a, int how) { return emulated::shuffle_in_fours<float>(a, how); }

OUT_OF_LINE __m512 _mm512_permutex2var_ps(__m512 a, __m512i at, __m512 b) {
  return emulated::permute<float, uint32_t>(a, at, b);
}
OUT_OF_LINE __m512d _mm512_permutex2var_pd(__m512d a, __m512i at, __m512d b) {
  return emulated::permute<double, uint64_t>(a, at, b);
}
OUT_OF_LINE __m512i _mm512_permutex2var_epi16(__m512i a, __m512i at, __m512i b) {
  return emulated::permute<uint16_t, uint16_t>(a, at, b);
}
OUT_OF_LINE __m512i _mm512_permutex2var_epi32(__m512i a, __m512i at, __m512i b) {
  return emulated::permute<uint32_t, uint32_t>(a, at, b);
}
OUT_OF_LINE __m512i _mm512_permutex2var_epi64(__m512i a, __m512i at, __m512i b) {
  return emulated::permute<uint64_t, uint64_t>(a, at, b);
}
OUT_OF_LINE __m512 _mm512_permutexvar_ps(__m512i at, __m512 a) { return emulated::permute<float, uint32_t>(a, at); }
OUT_OF_LINE __m512i _mm512_permutexvar_epi32(__m512i at, __m512i a) { return emulated::permute<uint32_t, uint32_t>(a, at); }
OUT_OF_LINE __m512i _mm512_permutexvar_epi16(__m512i at, __m512i a) { return emulated::permute<uint16_t, uint16_t>(a, at); }
inline __m512i _mm512_maskz_permutexvar_epi32(__mmask16 m, __m512i at, __m512i a) {
  return _mm512_mask_blend_epi32(m, __m512i{}, _mm512_permutexvar_epi32(at, a));
}
inline __m512i _mm512_maskz_permutexvar_epi16(__mmask32 m, __m512i at, __m512i a) {
  return _mm512_maskz_mov_epi16(m, _mm512_permutexvar_epi16(at, a));
}
inline __m512i _mm512_maskz_permutex2var_epi16(__mmask32 m, __m512i a, __m512i at, __m512i b) {
  return _mm512_maskz_mov_epi16(m, _mm512_permutex2var_epi16(a, at, b));
}
MASKED(permutexvar_ps, __m512, __mmask16, blend_ps, _mm512_permutexvar_ps)
MASKED(permutexvar_epi32, __m512i, __mmask16, blend_epi32, _mm512_permutexvar_epi32)
#undef MASKED

// -- conversions ------------------------------------------------------------------------------------------------------
#define CONVERSION(name, V, To, Source, From) \
  OUT_OF_LINE V name(Source a) { return emulated::convert<V, To, From>(a); }
CONVERSION(_mm512_cvtepi32_ps, __m512, float, __m512i, int32_t)
CONVERSION(_mm512_cvtepi64_pd, __m512d, double, __m512i, int64_t)
CONVERSION(_mm512_cvtepi64_ps, __m256, float, __m512i, int64_t)
CONVERSION(_mm512_cvtepi32_pd, __m512d, double, __m256i, int32_t)
CONVERSION(_mm512_cvtps_pd, __m512d, double, __m256, float)
CONVERSION(_mm512_cvtpd_ps, __m256, float, __m512d, double)
CONVERSION(_mm512_cvtepi8_epi32, __m512i, int32_t, __m128i, int8_t)
CONVERSION(_mm512_cvtepu8_epi32, __m512i, int32_t, __m128i, uint8_t)
CONVERSION(_mm512_cvtepi8_epi16, __m512i, int16_t, __m256i, int8_t)
CONVERSION(_mm512_cvtepu8_epi16, __m512i, int16_t, __m256i, uint8_t)
CONVERSION(_mm512_cvtepi16_epi32, __m512i, int32_t, __m256i, int16_t)
CONVERSION(_mm512_cvtepu16_epi32, __m512i, int32_t, __m256i, uint16_t)
CONVERSION(_mm512_cvtepi32_epi64, __m512i, int64_t, __m256i, int32_t)
CONVERSION(_mm512_cvtepi32_epi16, __m256i, uint16_t, __m512i, uint32_t)
CONVERSION(_mm512_cvtepi32_epi8, __m128i, uint8_t, __m512i, uint32_t)
CONVERSION(_mm512_cvtepi64_epi32, __m256i, uint32_t, __m512i, uint64_t)
#undef CONVERSION

// The scalar instructions give the same for NaN and what is out of range.
#define TO_INTEGER(name, V, To, Source, From, instruction, set)                                       \
  OUT_OF_LINE V name(Source a) {                                                                      \
    const auto x = emulated::lanes<From>(a);                                                          \
    return emulated::each<V, To>([&](int i) -> To { return instruction(set(x[i])); });                \
  }
TO_INTEGER(_mm512_cvtps_epi32, __m512i, int32_t, __m512, float, _mm_cvtss_si32, _mm_set_ss)
TO_INTEGER(_mm512_cvttps_epi32, __m512i, int32_t, __m512, float, _mm_cvttss_si32, _mm_set_ss)
TO_INTEGER(_mm512_cvttps_epi64, __m512i, int64_t, __m256, float, _mm_cvttss_si64, _mm_set_ss)
TO_INTEGER(_mm512_cvttpd_epi32, __m256i, int32_t, __m512d, double, _mm_cvttsd_si32, _mm_set_sd)
TO_INTEGER(_mm512_cvttpd_epi64, __m512i, int64_t, __m512d, double, _mm_cvttsd_si64, _mm_set_sd)
#undef TO_INTEGER

inline __m512 _mm512_cvtph_ps(__m256i a) {
  using emulated::part;
  const __m256 low = _mm256_cvtph_ps(part<__m128i>(a, 0)), high = _mm256_cvtph_ps(part<__m128i>(a, 1));
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
inline __m256i _mm512_cvtps_ph(__m512 a, int immediate) {
  emulated::demand((immediate & 7) == _MM_FROUND_TO_NEAREST_INT);
  using emulated::part;
  const __m128i low = _mm256_cvtps_ph(part<__m256>(a, 0), 0), high = _mm256_cvtps_ph(part<__m256>(a, 1), 0);
  return _mm256_set_m128i(high, low);
}

// -- those with arguments of global types, for which the compiler would look outside of this namespace, too ------------
namespace emulated {
OUT_OF_LINE __m512 getmant(__m512 a, int interval, int sign) {
  demand(interval == _MM_MANT_NORM_p75_1p5 && sign == _MM_MANT_SIGN_nan);
  const auto x = lanes<float>(a);
  return each<__m512, float>([&](int i) { return significand(x[i]); });
}
OUT_OF_LINE __m512i mask_shuffle(__m512i no, __mmask16 m, __m512i a, int how) {
  return select<int32_t>(m, shuffle_in_fours<int32_t>(a, how), no);
}
}  // namespace emulated
#define _mm512_getmant_ps(a, interval, sign) icpu::emulated::getmant(a, interval, sign)
#define _mm512_mask_shuffle_epi32(no, m, a, how) icpu::emulated::mask_shuffle(no, m, a, how)

#undef OUT_OF_LINE

}  // namespace icpu
