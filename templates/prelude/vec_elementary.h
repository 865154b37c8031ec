// exp, expm1, log and log1p of float registers, and tanh for AVX2, inline: a call of a library function would spill every
// register of a loop. erf, and tanh for AVX-512, are in vec_piecewise.h.
//
// Preconditions: float lanes. Errors: exp and log below 1 ulp, expm1, log1p and tanh below 1.5, for every argument;
// NaN, infinities, signed zeros and denormal results are those of the exact functions.
//
// The polynomials are minimax fits (Remez) of the functions named beside them.
#pragma once

#include "vec_ops.h"

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
inline Reg<float> fma_reg(Reg<float> a, Reg<float> b, Reg<float> c) { return _mm512_fmadd_ps(a, b, c); }
inline Reg<double> fma_reg(Reg<double> a, Reg<double> b, Reg<double> c) { return _mm512_fmadd_pd(a, b, c); }
// a * 2^n, rounded once, for a whole number n.
inline Reg<float> scale_reg(Reg<float> a, Reg<float> n) { return _mm512_scalef_ps(a, n); }
#else
inline Reg<float> fma_reg(Reg<float> a, Reg<float> b, Reg<float> c) { return _mm256_fmadd_ps(a, b, c); }
inline Reg<double> fma_reg(Reg<double> a, Reg<double> b, Reg<double> c) { return _mm256_fmadd_pd(a, b, c); }
#endif

// c[0] + c[1] x + c[2] x^2 + ... for few terms.
template <int N>
inline Reg<float> short_polynomial(Reg<float> x, const float (&c)[N]) {
  Reg<float> sum = splat_reg(c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) sum = fma_reg(sum, x, splat_reg(c[i]));
  return sum;
}

// The same for many terms. Neighbouring terms are combined pairwise (Estrin's scheme): a chain of dependent
// instructions as long as the polynomial would leave the processor waiting.
template <int N>
inline Reg<float> polynomial(Reg<float> x, const float (&c)[N]) {
  Reg<float> part[(N + 1) / 2];
#pragma GCC unroll 16
  for (int i = 0; i < N / 2; ++i) part[i] = fma_reg(x, splat_reg(c[2 * i + 1]), splat_reg(c[2 * i]));
  if (N % 2) part[N / 2] = splat_reg(c[N - 1]);
  int count = (N + 1) / 2;
#pragma GCC unroll 8
  for (Reg<float> power = x * x; count > 1; power *= power) {
#pragma GCC unroll 16
    for (int i = 0; i < count / 2; ++i) part[i] = fma_reg(power, part[2 * i + 1], part[2 * i]);
    if (count % 2) part[count / 2] = part[count - 1];
    count = (count + 1) / 2;
  }
  return part[0];
}

inline Reg<float> with_sign_of(Reg<float> size, Reg<float> sign) {
  using R = Reg<int32_t>;
  return (Reg<float>)((R)size | ((R)sign & kSignBit<float>));
}
inline Reg<float> size_reg(Reg<float> a) { return (Reg<float>)((Reg<int32_t>)a & ~kSignBit<float>); }

// e log(2) + log(1 + r) for a whole number e and -0.25 <= r <= 0.5; log(1 + r) = r - r^2 / 2 + r^3 p(r).
inline Reg<float> log_sum_reg(Reg<float> e, Reg<float> r) {
  const Reg<float> square = r * r;
  const Reg<float> p = polynomial(
      r, {0.3333334f, -0.25000164f, 0.19999605f, -0.16655296f, 0.14276239f, -0.1272778f, 0.11700659f, -0.09116174f,
          0.037672766f});
  Reg<float> rest = fma_reg(e, splat_reg(1.42860677e-6f), square * r * p);  // log(2) = 0.69314575 + 1.42860677e-6
  rest = fma_reg(square, splat_reg(-0.5f), rest) + r;
  return fma_reg(e, splat_reg(0.693145751953125f), rest);  // the product is exact: few bits times a small integer
}

// x = 2^e m with 0.75 <= m < 1.5; m is NaN for a negative x, e is infinite where x is 0 or infinite.
struct Magnitude {
  Reg<float> e, m;
};

#if defined(CPU_CAPABILITY_AVX512)
// x = n log(2) + r with |r| <= log(2) / 2, for x of a moderate size. NaN and infinities are so in n.
struct Reduced {
  Reg<float> n, r;
};
inline Reduced reduce_reg(Reg<float> x) {
  const Reg<float> rounder = splat_reg(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const Reg<float> n = fma_reg(x, splat_reg(1.44269504f), rounder) - rounder;
  const Reg<float> high = fma_reg(n, splat_reg(-0.693359375f), x);        // exact: few bits times a small integer
  return {n, fma_reg(n, splat_reg(2.12194440e-4f), high)};                // log(2) = 0.693359375 - 2.12194440e-4
}

// 2^n (1 + r + r^2 / 2 + ...). A register of NaN and one of n = infinity, which infinity leads to, give infinity; large
// x give a positive polynomial, which scaling makes infinite; so there is no upper bound to check.
inline Reg<float> exp_reg(Reg<float> x) {
  const Reduced in = reduce_reg(raw_max(splat_reg(-104.0f), x));  // the result is 0 from there on
  const Reg<float> power = short_polynomial(
      in.r, {1.0f, 1.0f, 0.49999994f, 0.16666521f, 0.041668274f, 0.008368686f, 0.0013820137f});
  return scale_reg(power, in.n);
}

// Scaling takes one instruction whatever the sign.
inline Reg<float> exp_of_nonpositive_reg(Reg<float> x) { return exp_reg(x); }

// 1 / (1 + exp(-x)) with one step of Newton's method: the instruction of division takes as long as all the rest.
inline Reg<float> sigmoid_reg(Reg<float> x) {
  const Reg<float> divisor = exp_reg(-x) + 1.0f;
  const Reg<float> near = _mm512_rcp14_ps(divisor);
  // Infinity times 0 is NaN, of which the minimum makes 1: the result stays 0.
  const Reg<float> error = raw_min(fma_reg(-divisor, near, splat_reg(1.0f)), splat_reg(1.0f));
  return fma_reg(error, near, near);
}

// 2^n ((1 - 2^-n) + (exp(r) - 1)), which does not cancel for small x.
inline Reg<float> expm1_reg(Reg<float> x) {
  const Reduced in = reduce_reg(raw_max(splat_reg(-18.0f), x));  // the result is -1 from there on
  const Reg<float> q = short_polynomial(
      in.r, {0.49999994f, 0.16666521f, 0.041668274f, 0.008368686f, 0.0013820137f});
  const Reg<float> rest = 1.0f - scale_reg(splat_reg(1.0f), -in.n);
  return with_sign_of(scale_reg(rest + fma_reg(in.r * in.r, q, in.r), in.n), x);
}

inline Magnitude magnitude_reg(Reg<float> x) {
  const Reg<float> m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
  const __mmask16 below = _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.0f), _CMP_LT_OQ);
  const Reg<float> e = _mm512_getexp_ps(x);
  return {_mm512_mask_add_ps(e, below, e, _mm512_set1_ps(1.0f)), m};
}

inline Reg<float> log_reg(Reg<float> x) {
  const Magnitude in = magnitude_reg(size_reg(x) == 0.0f ? size_reg(x) : x);
  return log_sum_reg(in.e, in.m - 1.0f);
}

// log(u + d) with the rounded sum u = 1 + x and its rounding error d.
inline Reg<float> log1p_reg(Reg<float> x) {
  const Reg<float> u = x + 1.0f;
  const Reg<float> added = u - 1.0f;
  const Reg<float> error = (1.0f - (u - added)) + (x - added);
  const Magnitude in = magnitude_reg(u);
  // Where u is 0 or infinite, so is the result, and there is no error to scale.
  const __mmask16 plain = _mm512_cmp_ps_mask(size_reg(in.e), _mm512_set1_ps(300.0f), _CMP_LT_OQ);
  const Reg<float> r = _mm512_mask_add_ps(in.m - 1.0f, plain, in.m - 1.0f, _mm512_scalef_ps(error, -in.e));
  return with_sign_of(log_sum_reg(in.e, r), x);
}
#else
// x = n log(2) + r with |r| <= log(2) / 2, and 2^(n + scale) for a scale of the caller's choice: adding the rounder, 1.5 *
// 2^23 + 127 + scale, rounds to a whole number and leaves n + scale in the last bits as a float has exponents, so that one
// shift of the bits makes the power. It has to be a normal number.
struct Reduced {
  Reg<float> power, r;
};
inline Reduced reduce_reg(Reg<float> x, Reg<float> rounder) {
  const Reg<float> place = fma_reg(x, splat_reg(1.44269504f), rounder);
  const Reg<float> minus_n = rounder - place;
  const Reg<float> high = fma_reg(minus_n, splat_reg(0.693359375f), x);     // exact: few bits times a small integer
  const Reg<float> r = fma_reg(minus_n, splat_reg(-2.12194440e-4f), high);  // log(2) = 0.693359375 - 2.12194440e-4
  return {(Reg<float>)((Reg<int32_t>)place << 23), r};
}
inline constexpr float kRounder = 12582912.0f + 127.0f;  // for a scale of 0

// 2^scale exp(x)
inline Reg<float> scaled_exp_reg(Reg<float> x, Reg<float> rounder) {
  const Reduced in = reduce_reg(x, rounder);
  const Reg<float> power = short_polynomial(
      in.r, {1.0f, 1.0f, 0.49999994f, 0.16666521f, 0.041668274f, 0.008368686f, 0.0013820137f});
  return power * in.power;
}

// Beyond these bounds the result is infinite, or zero. The last product alone rounds a denormal result: what it scales is
// 2^64 times as large. Of positive x it is 2^64 times as small, so that what is not infinite in the end is not before.
inline Reg<float> exp_reg(Reg<float> x) {
  const Reg<float> inside = raw_max(splat_reg(-104.0f), raw_min(splat_reg(89.0f), x));
  const Reg<float> rounder = _mm256_blendv_ps(splat_reg(kRounder - 64), splat_reg(kRounder + 64), x);
  const Reg<float> scale = _mm256_blendv_ps(splat_reg(0x1p64f), splat_reg(0x1p-64f), x);
  return scaled_exp_reg(inside, rounder) * scale;
}

// exp(x) of x <= 0 and of NaN; of larger x, 1.
inline Reg<float> exp_of_nonpositive_reg(Reg<float> x) {
  const Reg<float> inside = raw_max(splat_reg(-104.0f), raw_min(splat_reg(0.0f), x));
  return scaled_exp_reg(inside, splat_reg(kRounder + 64)) * splat_reg(0x1p-64f);
}

// exp(x) = 2^n (1 + e) with e = exp(r) - 1, so that exp(x) - 1 is 2 (2^(n-1) e + (2^(n-1) - 1/2)), which does not cancel for
// small x, and of which no part is infinite before the result.
inline Reg<float> expm1_reg(Reg<float> x) {
  const Reg<float> inside = raw_max(splat_reg(-18.0f), raw_min(splat_reg(89.0f), x));  // the result is -1, or infinite
  const Reduced half = reduce_reg(inside, splat_reg(kRounder - 1));
  // (exp(r) - 1 - r) / r^2
  const Reg<float> q =
      short_polynomial(half.r, {0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814464f});
  const Reg<float> e = fma_reg(half.r * half.r, q, half.r);
  const Reg<float> sum = fma_reg(half.power, e, half.power - 0.5f);
  return with_sign_of(sum + sum, x);
}

// By the bits of x > 0: counted from those of 0.75, the exponent is e, and what is left is m.
inline Magnitude magnitude_of_bits(Reg<float> x) {
  const auto bits = (Reg<int32_t>)x;
  const auto e = (bits - 0x3f400000) >> 23;
  return {(Reg<float>)_mm256_cvtepi32_ps((__m256i)e), (Reg<float>)(bits - (e << 23))};
}

inline Reg<float> log_reg(Reg<float> x) {
  const auto small = x < 1.17549435e-38f;  // denormal, zero or negative
  const Magnitude in = magnitude_of_bits(small ? x * 33554432.0f : x);
  const Reg<float> sum = log_sum_reg(small ? in.e - 25.0f : in.e, in.m - 1.0f);
  // NaN, infinity, and what is not positive.
  const Reg<float> other = x > 0.0f ? x : x == 0.0f ? splat_reg(-HUGE_VALF) : x * splat_reg(NAN);
  return (x > 0.0f) & (x < HUGE_VALF) ? sum : other;
}

// log(u + d) with the rounded sum u = 1 + x and its rounding error d.
inline Reg<float> log1p_reg(Reg<float> x) {
  const Reg<float> u = x + 1.0f;
  const Reg<float> added = u - 1.0f;
  const Reg<float> error = (1.0f - (u - added)) + (x - added);
  const Magnitude in = magnitude_of_bits(u);  // u is 0 or at least 2^-24
  // 2^-e; where that is denormal, the error is nothing.
  const __m256i e = _mm256_cvtps_epi32(raw_min(in.e, splat_reg(126.0f)));
  const auto scale = (Reg<float>)((127 - (Reg<int32_t>)e) << 23);
  const Reg<float> sum = log_sum_reg(in.e, fma_reg(error, scale, in.m - 1.0f));
  const Reg<float> other = u > 0.0f ? u : u == 0.0f ? splat_reg(-HUGE_VALF) : u * splat_reg(NAN);
  return with_sign_of((u > 0.0f) & (u < HUGE_VALF) ? sum : other, x);
}

// Below 0.3, x + x^3 p(4 x^2); then t / (t + 2) with t = exp(2 |x|) - 1, which alone would round three times what is not
// near 1; 1 from |x| = 10 on. Reduced is 2 |x| = n log(2) + r with -0.1 <= r <= 0.6, so that n is 0 below 0.3.
inline Reg<float> tanh_reg(Reg<float> x) {
  const Reg<float> size = size_reg(x), kept = raw_min(splat_reg(10.0f), size);
  const Reg<float> place = fma_reg(kept - 0.127f, splat_reg(2 * 1.44269504f), splat_reg(kRounder));
  const Reg<float> power = (Reg<float>)((Reg<int32_t>)place << 23);
  const Reg<float> r = fma_reg(splat_reg(kRounder) - place, splat_reg(0.693147182f), kept + kept), square = r * r;
  const Reg<float> q = short_polynomial(r, {0.4999995f, 0.16666599f, 0.04171267f, 0.008115098f, 0.0017604891f});
  const Reg<float> e = fma_reg(square, q, r);  // exp(r) - 1
  const Reg<float> t = fma_reg(power, e, power - 1.0f);
  const Reg<float> p = short_polynomial(square, {-0.083332725f, 8.3225156e-3f, -7.8853622e-4f});
  return with_sign_of(size < 0.3f ? fma_reg(p, square * size, size) : t / (t + 2.0f), x);
}

#endif

}  // namespace icpu
