// Functions for results that are rounded to bf16 or f16, whose last 13 bits as a float nobody would see: fewer instructions
// than in vec_elementary.h and vec_piecewise.h. gelu has a header of its own.
//
// Preconditions: float lanes. Relative errors: exp below 8e-6 (exp - 1 near 0 below 6e-5), tanh below 5e-6, sigmoid and silu
// below 1e-5, or below 8e-5 for bf16 with AVX-512; a half of the last place of f16 is 2.4e-4, of bf16 2e-3. NaN, infinities,
// signed zeros and denormals of float give what the exact functions give.
//
// The polynomials are minimax fits (Lawson) for the relative error, coefficients rounded one after the other.
#pragma once

#include "icpu.h"

namespace icpu {

inline float silu(float x) { return x / (1 + std::exp(-x)); }
inline float low_exp(float x) { return std::exp(x); }

// A number of bf16 that divides many: products with its reciprocal, rounded, are the quotients, rounded. A quotient of numbers
// with 8 bits is one itself, or further from the middle of two than 2^-17 of its size; the products are off by 2^-23.
// Both sides are scaled where the reciprocal would be infinite, or a denormal.
struct Divisor {
  float scale, inverse;
  explicit Divisor(float a)
      : scale(std::abs(a) < 0x1p-120f ? 0x1p64f : std::abs(a) > 0x1p120f ? 0x1p-64f : 1.0f), inverse(1.0f / (a * scale)) {}
};

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <int U>
inline Vec<float, U> quotient(const Vec<float, U>& a, const Divisor& b) {
  return a * splat<U>(b.scale) * splat<U>(b.inverse);
}

inline constexpr float kHalfLog2e = 0.72134752f;

// 2^x for -1/2 <= x <= 1/2, with 1 for 0.
inline Reg<float> low_power_of_fraction(Reg<float> x) {
  return short_polynomial(x, {1.0f, 0.6931242f, 0.24024095f, 0.055906534f, 0.009583084f});
}
#endif

#if defined(CPU_CAPABILITY_AVX512)
// 2^x. The fraction of infinity is 0.
inline Reg<float> low_exp2_reg(Reg<float> x) {
  const Reg<float> fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return scale_reg(low_power_of_fraction(fraction), x - fraction);
}
inline Reg<float> low_exp_reg(Reg<float> x) { return low_exp2_reg(x * splat_reg(1.44269504f)); }

// 1 / (1 + exp(-x)); for bf16 the instruction's 14 bits do.
template <class T>
inline Reg<float> low_sigmoid_reg(Reg<float> x) {
  const Reg<float> divisor = low_exp2_reg(x * splat_reg(-1.44269504f)) + 1.0f;
  const Reg<float> near = _mm512_rcp14_ps(divisor);
  if constexpr (std::is_same_v<T, bf16>) return near;
  // One step of Newton's method. Infinity times 0 is NaN, of which the minimum makes 1: the result stays 0.
  const Reg<float> error = raw_min(fma_reg(-divisor, near, splat_reg(1.0f)), splat_reg(1.0f));
  return fma_reg(error, near, near);
}
template <class T>
inline Reg<float> low_silu_reg(Reg<float> x) {
  return x * low_sigmoid_reg<T>(x);
}

// Row k has the coefficients of |x|^k in tanh(x) / x, for 16 pieces of |x|, around the multiples of 0.3.
alignas(64) inline constexpr float kLowTanhPieces[4][16] = {
    {0.99999946f, 0.99946094f, 0.99867845f, 1.0233046f, 1.0928354f, 1.1812819f, 1.2498751f, 1.2794371f, 1.2708437f,
     1.2341082f, 1.1802934f, 1.1182269f, 1.0539205f, 0.9910411f, 0.93158954f, 0.87725526f},
    {0.00011356705f, 0.008678366f, 0.017065575f, -0.078065656f, -0.2764806f, -0.47450846f, -0.6007142f, -0.64713913f,
     -0.6361469f, -0.59310275f, -0.5364834f, -0.4773378f, -0.4213646f, -0.37100545f, -0.3269179f, -0.28939047f},
    {-0.33709037f, -0.38418368f, -0.41045794f, -0.2873588f, -0.097997375f, 0.05009217f, 0.12759385f, 0.15191187f,
     0.14723067f, 0.1304095f, 0.110543735f, 0.091749296f, 0.07550423f, 0.062056687f, 0.05115619f, 0.042514764f},
    {0.039883185f, 0.13146734f, 0.15708831f, 0.10371078f, 0.043271013f, 0.0062835184f, -0.009600439f, -0.0138490675f,
     -0.013185431f, -0.010993056f, -0.008668594f, -0.006677104f, -0.005105013f, -0.0039077178f, -0.003009144f,
     -0.002345731f},
};

// From 4.64 on tanh is nearer to 1 than f16 has numbers.
inline Reg<float> low_tanh_reg(Reg<float> x) {
  const Reg<float> inside = raw_max(splat_reg(-4.64f), raw_min(splat_reg(4.64f), x));
  const Reg<float> size = size_reg(inside);
  const Reg<float> place = place_of(size, 1 / 0.3f);
  Reg<float> share = look_up(kLowTanhPieces[3], place);
#pragma GCC unroll 3
  for (int k = 2; k >= 0; --k) share = fma_reg(share, size, look_up(kLowTanhPieces[k], place));
  return inside * share;
}
#elif defined(CPU_CAPABILITY_AVX2)
// factor x as its fraction, between -1/2 and 1/2, and 2 to the power of the rest, for -126 <= factor x <= 127.
struct LowParts {
  Reg<float> fraction, power;
};
inline LowParts low_parts(Reg<float> x, float factor) {
  const Reg<float> place = fma_reg(x, splat_reg(factor), splat_reg(kRounder));
  return {fma_reg(x, splat_reg(factor), kRounder - place), (Reg<float>)((Reg<int32_t>)place << 23)};
}

// 4^(factor x), rounded once also where it is infinite, denormal or zero: 2^(factor x) is a normal number there.
inline Reg<float> low_power_of_four(Reg<float> x, float factor) {
  const float bound = 75.5f / std::abs(factor);
  const LowParts parts = low_parts(raw_max(splat_reg(-bound), raw_min(splat_reg(bound), x)), factor);
  const Reg<float> power_of_fraction =
      short_polynomial(parts.fraction, {1.0f, 1.3862692f, 0.9606558f, 0.44443703f, 0.15726386f, 0.04180881f});
  return power_of_fraction * parts.power * parts.power;
}
inline Reg<float> low_exp_reg(Reg<float> x) { return low_power_of_four(x, kHalfLog2e); }

template <class T>
inline Reg<float> low_sigmoid_reg(Reg<float> x) {
  return 1.0f / (1.0f + low_power_of_four(x, -kHalfLog2e));
}
template <class T>
inline Reg<float> low_silu_reg(Reg<float> x) {
  return x / (1.0f + low_power_of_four(x, -kHalfLog2e));
}

// A quotient of polynomials. From 4.64 on tanh is nearer to 1 than f16 has numbers.
inline Reg<float> low_tanh_reg(Reg<float> x) {
  const Reg<float> inside = raw_max(splat_reg(-4.64f), raw_min(splat_reg(4.64f), x));
  const Reg<float> square = inside * inside;
  const Reg<float> top = short_polynomial(square, {0.9999988f, 0.117207475f, 0.0016804499f});
  const Reg<float> bottom = short_polynomial(square, {1.0f, 0.45053092f, 0.018538209f, 6.754219e-05f});
  return inside * top / bottom;
}
#endif

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <int U>
inline Vec<float, U> low_exp(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return low_exp_reg(x); }, a);
}
template <int U>
inline Vec<float, U> low_tanh(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return low_tanh_reg(x); }, a);
}
template <class T, int U>
inline Vec<float, U> low_sigmoid(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return low_sigmoid_reg<T>(x); }, a);
}
template <class T, int U>
inline Vec<float, U> low_silu(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return low_silu_reg<T>(x); }, a);
}
#endif

}  // namespace icpu
