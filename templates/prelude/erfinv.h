// The inverse of the error function, in doubles: erfinv(a) is a by a polynomial of w = -log(1 - a^2) for w below 6.25, of
// its square root beyond (the variables of M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011; the
// coefficients are minimax fits of ours). Results for floats are rounded once; those for doubles get one step of Newton's
// method, which takes a relative error of 1e-9 to 1e-17.
//
// Preconditions: the prelude comes first. Relative errors of the polynomials are below 6.2e-10. Infinities for 1 and -1, NaN
// outside of them and for NaN.
#pragma once

#include "scalar_math.h"

namespace icpu {

// Of w - 3.125 for w below 6.25, of sqrt(w) - 3.25 below 4, and of sqrt(w) - 5 up to the last double below 1.
inline constexpr double kErfinvNear[] = {
    1.6536545624578274,     0.24015817882136047,    -0.0060336693805942492, -0.00074069179687758363, 0.00018673269550447,
    -1.3891703781543078e-5, -1.364965880833106e-6,  4.2688290983187537e-7,  -2.9127578439103384e-8,  -4.7422910396749367e-9,
    1.0517070050584749e-9,  5.2993474504159656e-12, -1.3092882858057925e-11};
inline constexpr double kErfinvFar[] = {
    3.0838856104130677,      1.0052589710417154,     0.0053709247961654439,   -0.0037513357046407211,
    0.0024912314019782996,   -0.0016869057219255958, 0.00095484850247697629,  -0.00036123375857007346,
    1.892929727488735e-5,    8.1408829243639353e-5,  -4.0022876423914187e-5};
inline constexpr double kErfinvFarther[] = {
    4.8499063988503389,     1.0103004765726172,     -0.0001386385910438902, -0.00021514247809113278,
    7.5606332686740055e-5,  -1.9384212001791546e-5, 5.102018486197397e-6,   -1.2763136267089622e-6};
inline constexpr double kErfinvNearEnd = 6.25, kErfinvFarEnd = 4;

template <int N>
inline double sum_of_powers(double x, const double (&c)[N]) {
  double sum = c[N - 1];
  for (int i = N - 2; i >= 0; --i) sum = std::fma(sum, x, c[i]);
  return sum;
}

inline double near_erfinv(double a) {
  if (std::abs(a) == 1) return std::copysign(kInf<double>, a);
  const double w = -std::log((1 - a) * (1 + a)), root = std::sqrt(w);
  if (w < kErfinvNearEnd) return a * sum_of_powers(w - 3.125, kErfinvNear);
  return a * (root < kErfinvFarEnd ? sum_of_powers(root - 3.25, kErfinvFar) : sum_of_powers(root - 5, kErfinvFarther));
}
inline float erfinv(float a) { return static_cast<float>(near_erfinv(a)); }

// From 1/2 on 1 - a is exact, and erf(x) - a would not be.
inline double erfinv(double a) {
  const double near = near_erfinv(a), x = std::abs(near), size = std::abs(a);
  if (!(size < 1)) return near;
  const double excess = size < 0.5 ? std::erf(x) - size : 1 - size - std::erfc(x);
  return std::copysign(x - excess * (1 / M_2_SQRTPI) * std::exp(x * x), a);
}

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <int N, int U>
inline Vec<double, U> sum_of_powers(const Vec<double, U>& x, const double (&c)[N]) {
  Vec<double, U> sum = splat<U>(c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) sum = fma(sum, x, splat<U>(c[i]));
  return sum;
}

// farther: whether numbers may be nearer to 1 than floats are. Few vectors of common data have a number above 0.999.
template <bool farther, int U>
inline Vec<double, U> near_erfinv(const Vec<double, U>& a) {
  const auto one = splat<U>(1.0), w = -sleef_log((one - a) * (one + a));
  const auto near = a * sum_of_powers(w - splat<U>(3.125), kErfinvNear);
  const auto is_near = w < splat<U>(kErfinvNearEnd);
  if (!any(!is_near)) return near;
  const auto root = sqrt(w);
  auto far = sum_of_powers(root - splat<U>(3.25), kErfinvFar);
  if constexpr (farther) {
    far = select(root < splat<U>(kErfinvFarEnd), far, sum_of_powers(root - splat<U>(5.0), kErfinvFarther));
  }
  return select(abs(a) == one, copysign(splat<U>(kInf<double>), a), select(is_near, near, a * far));
}

template <Float T, int U>
inline Vec<T, U> erfinv(const Vec<T, U>& a) {
  if constexpr (sizeof(T) == 4) {
    return convert<float>(near_erfinv<false>(convert<double>(a)));
  } else {
    const auto near = near_erfinv<true>(a), x = abs(near), size = abs(a), one = splat<U>(1.0);
    const auto excess = select(size < splat<U>(0.5), erf(x) - size, one - size - erfc(x));
    const auto better = copysign(x - excess * splat<U>(1 / M_2_SQRTPI) * exp(x * x), a);
    return select(size < one, better, near);
  }
}
#endif

}  // namespace icpu
