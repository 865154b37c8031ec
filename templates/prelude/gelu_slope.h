// The slope of gelu, by which its gradients are multiplied: Phi(x) + x phi(x), the distribution and the density of normal
// numbers. It takes one exponential, where the formula has another one within erf.
//
// Preconditions: float lanes. With f(t) = Phi(-t) - t phi(t) the slope is f(-x) for x below 0, and 1 - f(x) elsewhere.
// f(t) is phi(t) by (root - t) by a polynomial of t (minimax fits, Lawson; coefficients rounded one after the other), so that
// its error is small beside it around its root, too. NaN for infinities, as by the formula.
//
// gelu_slope: off by 1.5e-7 at most, half of what the formula is in floats, and for x below -1 by 3e-6 of the slope, from -4
// on by 4e-4, from -5.5 on by 6e-2 of numbers under 1e-6.
// low_gelu_slope, for results that are rounded to bf16 or f16: relative errors below 4e-5 for x above -3 (1.1e-4 at the
// number of f16 next to the root, which is a float), 8e-5 above -4, 2e-3 above -5, and then 6e-2 of numbers under 1e-5.
#pragma once

#include "low_math.h"

namespace icpu {

inline float gelu_slope(float x) {
  const float density = std::exp(-0.5f * (x * x)) * float(0.5 * M_2_SQRTPI * M_SQRT1_2);
  return 0.5f * (1 + std::erf(x * float(M_SQRT1_2))) + x * density;
}
inline float low_gelu_slope(float x) { return gelu_slope(x); }

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
// power: exp(-x^2 / 2). shape: the coefficients of the polynomial, up to t = `end`.
template <int N>
inline Reg<float> gelu_slope_by(Reg<float> x, Reg<float> power, float end, const float (&shape)[N]) {
  const Reg<float> size = size_reg(x), root = splat_reg(0.75179154f);
  const Reg<float> below = power * ((root - size) * short_polynomial(raw_min(splat_reg(end), size), shape));
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)x), 1.0f - below, below);
#else
  return _mm256_blendv_ps(1.0f - below, below, x);
#endif
}

template <int U>
inline Vec<float, U> gelu_slope(const Vec<float, U>& a) {
  return map(
      [](Reg<float> x) {
        return gelu_slope_by(x, exp_of_nonpositive_reg(x * x * splat_reg(-0.5f)), 5.5f,
                             {0.665078f, -0.17665164f, 0.09753369f, -0.04695212f, 0.020033052f, -0.0074663055f, 0.0023257644f,
                              -0.00056951394f, 0.000102396705f, -1.2470044e-05f, 9.08371e-07f, -2.967397e-08f});
      },
      a);
}

template <int U>
inline Vec<float, U> low_gelu_slope(const Vec<float, U>& a) {
  return map(
      [](Reg<float> x) {
#if defined(CPU_CAPABILITY_AVX512)
        const Reg<float> power = low_exp2_reg(x * x * splat_reg(-kHalfLog2e));
#else
        const Reg<float> power = low_power_of_four(x * x, -0.5f * kHalfLog2e);
#endif
        return gelu_slope_by(x, power, 5.0f,
                             {0.66505843f, -0.1760353f, 0.09424624f, -0.040015046f, 0.012439915f, -0.0025521184f, 0.0003009925f,
                              -1.52461325e-05f});
      },
      a);
}
#endif

}  // namespace icpu
