// The functions of SLEEF that templates call, for registers of AVX-512, by those for AVX2. A macro gives each another
// name, for torch's library exports it: there it is made of AVX-512's instructions.
//
// Preconditions: torch's library, with SLEEF.
#pragma once

#include <immintrin.h>

#include <cstring>

namespace icpu::emulated {

template <class Half, class V, class F>
inline V by_halves(const F& function, const V& a) {
  Half half[2];
  std::memcpy(half, &a, sizeof(V));
  const Half result[2] = {function(half[0]), function(half[1])};
  V whole;
  std::memcpy(&whole, result, sizeof(V));
  return whole;
}

template <class Half, class V, class F>
inline V by_halves(const F& function, const V& a, const V& b) {
  Half x[2], y[2];
  std::memcpy(x, &a, sizeof(V));
  std::memcpy(y, &b, sizeof(V));
  const Half result[2] = {function(x[0], y[0]), function(x[1], y[1])};
  V whole;
  std::memcpy(&whole, result, sizeof(V));
  return whole;
}

}  // namespace icpu::emulated

#define EMULATED_UNARY(name, half, V, Half) \
  extern "C" Half half(Half);               \
  extern "C" __attribute__((const, weak)) V name(V a) { return icpu::emulated::by_halves<Half>(half, a); }
#define EMULATED_BINARY(name, half, V, Half) \
  extern "C" Half half(Half, Half);          \
  extern "C" __attribute__((const, weak)) V name(V a, V b) { return icpu::emulated::by_halves<Half>(half, a, b); }
#define Sleef_exp2f16_u10 Emulated_exp2f16_u10
EMULATED_UNARY(Sleef_exp2f16_u10, Sleef_exp2f8_u10, __m512, __m256)
#define Sleef_exp2d8_u10 Emulated_exp2d8_u10
EMULATED_UNARY(Sleef_exp2d8_u10, Sleef_exp2d4_u10, __m512d, __m256d)
#define Sleef_expf16_u10 Emulated_expf16_u10
EMULATED_UNARY(Sleef_expf16_u10, Sleef_expf8_u10, __m512, __m256)
#define Sleef_expd8_u10 Emulated_expd8_u10
EMULATED_UNARY(Sleef_expd8_u10, Sleef_expd4_u10, __m512d, __m256d)
#define Sleef_expm1f16_u10 Emulated_expm1f16_u10
EMULATED_UNARY(Sleef_expm1f16_u10, Sleef_expm1f8_u10, __m512, __m256)
#define Sleef_expm1d8_u10 Emulated_expm1d8_u10
EMULATED_UNARY(Sleef_expm1d8_u10, Sleef_expm1d4_u10, __m512d, __m256d)
#define Sleef_logf16_u10 Emulated_logf16_u10
EMULATED_UNARY(Sleef_logf16_u10, Sleef_logf8_u10, __m512, __m256)
#define Sleef_logd8_u10 Emulated_logd8_u10
EMULATED_UNARY(Sleef_logd8_u10, Sleef_logd4_u10, __m512d, __m256d)
#define Sleef_log2f16_u10 Emulated_log2f16_u10
EMULATED_UNARY(Sleef_log2f16_u10, Sleef_log2f8_u10, __m512, __m256)
#define Sleef_log2d8_u10 Emulated_log2d8_u10
EMULATED_UNARY(Sleef_log2d8_u10, Sleef_log2d4_u10, __m512d, __m256d)
#define Sleef_log10f16_u10 Emulated_log10f16_u10
EMULATED_UNARY(Sleef_log10f16_u10, Sleef_log10f8_u10, __m512, __m256)
#define Sleef_log10d8_u10 Emulated_log10d8_u10
EMULATED_UNARY(Sleef_log10d8_u10, Sleef_log10d4_u10, __m512d, __m256d)
#define Sleef_log1pf16_u10 Emulated_log1pf16_u10
EMULATED_UNARY(Sleef_log1pf16_u10, Sleef_log1pf8_u10, __m512, __m256)
#define Sleef_log1pd8_u10 Emulated_log1pd8_u10
EMULATED_UNARY(Sleef_log1pd8_u10, Sleef_log1pd4_u10, __m512d, __m256d)
#define Sleef_sinf16_u10 Emulated_sinf16_u10
EMULATED_UNARY(Sleef_sinf16_u10, Sleef_sinf8_u10, __m512, __m256)
#define Sleef_sind8_u10 Emulated_sind8_u10
EMULATED_UNARY(Sleef_sind8_u10, Sleef_sind4_u10, __m512d, __m256d)
#define Sleef_cosf16_u10 Emulated_cosf16_u10
EMULATED_UNARY(Sleef_cosf16_u10, Sleef_cosf8_u10, __m512, __m256)
#define Sleef_cosd8_u10 Emulated_cosd8_u10
EMULATED_UNARY(Sleef_cosd8_u10, Sleef_cosd4_u10, __m512d, __m256d)
#define Sleef_tanf16_u10 Emulated_tanf16_u10
EMULATED_UNARY(Sleef_tanf16_u10, Sleef_tanf8_u10, __m512, __m256)
#define Sleef_tand8_u10 Emulated_tand8_u10
EMULATED_UNARY(Sleef_tand8_u10, Sleef_tand4_u10, __m512d, __m256d)
#define Sleef_asinf16_u10 Emulated_asinf16_u10
EMULATED_UNARY(Sleef_asinf16_u10, Sleef_asinf8_u10, __m512, __m256)
#define Sleef_asind8_u10 Emulated_asind8_u10
EMULATED_UNARY(Sleef_asind8_u10, Sleef_asind4_u10, __m512d, __m256d)
#define Sleef_acosf16_u10 Emulated_acosf16_u10
EMULATED_UNARY(Sleef_acosf16_u10, Sleef_acosf8_u10, __m512, __m256)
#define Sleef_acosd8_u10 Emulated_acosd8_u10
EMULATED_UNARY(Sleef_acosd8_u10, Sleef_acosd4_u10, __m512d, __m256d)
#define Sleef_atanf16_u10 Emulated_atanf16_u10
EMULATED_UNARY(Sleef_atanf16_u10, Sleef_atanf8_u10, __m512, __m256)
#define Sleef_atand8_u10 Emulated_atand8_u10
EMULATED_UNARY(Sleef_atand8_u10, Sleef_atand4_u10, __m512d, __m256d)
#define Sleef_sinhf16_u10 Emulated_sinhf16_u10
EMULATED_UNARY(Sleef_sinhf16_u10, Sleef_sinhf8_u10, __m512, __m256)
#define Sleef_sinhd8_u10 Emulated_sinhd8_u10
EMULATED_UNARY(Sleef_sinhd8_u10, Sleef_sinhd4_u10, __m512d, __m256d)
#define Sleef_coshf16_u10 Emulated_coshf16_u10
EMULATED_UNARY(Sleef_coshf16_u10, Sleef_coshf8_u10, __m512, __m256)
#define Sleef_coshd8_u10 Emulated_coshd8_u10
EMULATED_UNARY(Sleef_coshd8_u10, Sleef_coshd4_u10, __m512d, __m256d)
#define Sleef_tanhf16_u10 Emulated_tanhf16_u10
EMULATED_UNARY(Sleef_tanhf16_u10, Sleef_tanhf8_u10, __m512, __m256)
#define Sleef_tanhd8_u10 Emulated_tanhd8_u10
EMULATED_UNARY(Sleef_tanhd8_u10, Sleef_tanhd4_u10, __m512d, __m256d)
#define Sleef_atanhf16_u10 Emulated_atanhf16_u10
EMULATED_UNARY(Sleef_atanhf16_u10, Sleef_atanhf8_u10, __m512, __m256)
#define Sleef_atanhd8_u10 Emulated_atanhd8_u10
EMULATED_UNARY(Sleef_atanhd8_u10, Sleef_atanhd4_u10, __m512d, __m256d)
#define Sleef_erff16_u10 Emulated_erff16_u10
EMULATED_UNARY(Sleef_erff16_u10, Sleef_erff8_u10, __m512, __m256)
#define Sleef_erfd8_u10 Emulated_erfd8_u10
EMULATED_UNARY(Sleef_erfd8_u10, Sleef_erfd4_u10, __m512d, __m256d)
#define Sleef_erfcf16_u15 Emulated_erfcf16_u15
EMULATED_UNARY(Sleef_erfcf16_u15, Sleef_erfcf8_u15, __m512, __m256)
#define Sleef_erfcd8_u15 Emulated_erfcd8_u15
EMULATED_UNARY(Sleef_erfcd8_u15, Sleef_erfcd4_u15, __m512d, __m256d)
#define Sleef_lgammaf16_u10 Emulated_lgammaf16_u10
EMULATED_UNARY(Sleef_lgammaf16_u10, Sleef_lgammaf8_u10, __m512, __m256)
#define Sleef_lgammad8_u10 Emulated_lgammad8_u10
EMULATED_UNARY(Sleef_lgammad8_u10, Sleef_lgammad4_u10, __m512d, __m256d)
#define Sleef_asinhf16_u10 Emulated_asinhf16_u10
EMULATED_UNARY(Sleef_asinhf16_u10, Sleef_asinhf8_u10, __m512, __m256)
#define Sleef_asinhd8_u10 Emulated_asinhd8_u10
EMULATED_UNARY(Sleef_asinhd8_u10, Sleef_asinhd4_u10, __m512d, __m256d)
#define Sleef_acoshf16_u10 Emulated_acoshf16_u10
EMULATED_UNARY(Sleef_acoshf16_u10, Sleef_acoshf8_u10, __m512, __m256)
#define Sleef_acoshd8_u10 Emulated_acoshd8_u10
EMULATED_UNARY(Sleef_acoshd8_u10, Sleef_acoshd4_u10, __m512d, __m256d)
#define Sleef_powf16_u10 Emulated_powf16_u10
EMULATED_BINARY(Sleef_powf16_u10, Sleef_powf8_u10, __m512, __m256)
#define Sleef_powd8_u10 Emulated_powd8_u10
EMULATED_BINARY(Sleef_powd8_u10, Sleef_powd4_u10, __m512d, __m256d)
#define Sleef_atan2f16_u10 Emulated_atan2f16_u10
EMULATED_BINARY(Sleef_atan2f16_u10, Sleef_atan2f8_u10, __m512, __m256)
#define Sleef_atan2d8_u10 Emulated_atan2d8_u10
EMULATED_BINARY(Sleef_atan2d8_u10, Sleef_atan2d4_u10, __m512d, __m256d)
#define Sleef_hypotf16_u05 Emulated_hypotf16_u05
EMULATED_BINARY(Sleef_hypotf16_u05, Sleef_hypotf8_u05, __m512, __m256)
#define Sleef_hypotd8_u05 Emulated_hypotd8_u05
EMULATED_BINARY(Sleef_hypotd8_u05, Sleef_hypotd4_u05, __m512d, __m256d)
#define Sleef_fmodf16 Emulated_fmodf16
EMULATED_BINARY(Sleef_fmodf16, Sleef_fmodf8, __m512, __m256)
#define Sleef_fmodd8 Emulated_fmodd8
EMULATED_BINARY(Sleef_fmodd8, Sleef_fmodd4, __m512d, __m256d)
#define Sleef_nextafterf16 Emulated_nextafterf16
EMULATED_BINARY(Sleef_nextafterf16, Sleef_nextafterf8, __m512, __m256)
#define Sleef_nextafterd8 Emulated_nextafterd8
EMULATED_BINARY(Sleef_nextafterd8, Sleef_nextafterd4, __m512d, __m256d)
#undef EMULATED_UNARY
#undef EMULATED_BINARY
