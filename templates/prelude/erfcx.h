// erfcx(x) = exp(x^2) erfc(x), erfc of floats, and log_ndtr, the logarithm of the normal distribution function.
//
// Of x >= 0 erfcx is q(t) / (x + 1/2) with t = (x - 3.25) / (x + 3.25), which goes from -1 to 1 (the variables of M. Shepherd
// and J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", Mathematics of Computation, 1981; the
// polynomials are minimax fits of ours, with relative errors below 3e-11 for floats and 2e-17 for doubles). Of negative x
// it is 2 exp(x^2) - erfcx(-x), where doubles need the rounding error of x^2. erfc is erfcx exp(-x^2), or 2 less that of -x.
// log_ndtr(x) is log(erfcx(-x / sqrt(2)) / 2) - x^2 / 2 of negative x, else log1p(-erfcx(x / sqrt(2)) exp(-x^2 / 2) / 2); of
// doubles between -1/2 and 1/2, log1p(erf(x / sqrt(2))) - log(2). Floats are within 0.51 ulp, doubles within 3.5.
//
// Preconditions: the prelude comes first. Infinities and NaN give what eager mode gives.
#pragma once

#include "special.h"

namespace icpu {

namespace special {

// Coefficients of results that are right for T.
template <class T>
struct ErfcxFits;
template <>
struct ErfcxFits<float> {
  static constexpr double q[] = {
      0.6237575566141469, -0.0693056667457658, -0.013728392303147112, 0.056753744502313165, -0.05948941014123312,
      0.04007451966811707, -0.01848057098483375, 0.0050741894395483446, -9.267816463976761e-5,
      -0.0005372114051181385, 0.00015015964148861743, 3.701917583441392e-5, -2.4169373778862982e-5,
      -1.8028730567920544e-6, 2.2964851510998194e-6};
};
template <>
struct ErfcxFits<double> {
  static constexpr double q[] = {
      0.6237575566005821, -0.06930566680418553, -0.013728390595445061, 0.056753746818106694, -0.05948944544688925,
      0.040074493163304685, -0.01848029163640377, 0.005074323503524513, -9.377275600767426e-5,
      -0.0005375620910039478, 0.00015252389824278205, 3.752045512706636e-5, -2.7083295223067013e-5,
      -2.1909571597660888e-6, 4.303912122630829e-6, 1.5533187372427897e-7, -7.149492796665813e-7,
      -3.819956107081595e-8, 1.2431225799460352e-7, 1.3335968420812567e-8, -2.0936550092831293e-8,
      -3.1421652475548655e-9, 2.8978420962070086e-9, 3.6004860403381065e-10, -2.3137081401632515e-10};
};

template <class T, class V>
inline V erfcx_of_positive(const V& x) {
  const V finite = select(x < 1e30, x, 1e30);
  return sum_of_powers<V>((finite - 3.25) / (finite + 3.25), ErfcxFits<T>::q) / (x + 0.5);
}

// What x * x lacks of the square of x.
template <class T, class V>
inline V rest_of_square(const V& x, const V& square) {
  if constexpr (sizeof(T) == 4) return Constant<V>::of(0);  // x is a float
  return fma(x, x, -square);
}

template <Float T, class V>
inline V erfcx(const V& x) {
  const V result = erfcx_of_positive<T>(abs(x));
  const auto negative = x < 0;
  if (!any(negative)) return result;
  const V finite = select(x < -27, -27.0, x);  // the result is infinite before
  const V square = finite * finite;
  const V power = exp_for<T>(square) * (1 + rest_of_square<T>(finite, square));
  return select(negative, 2 * power - result, result);
}

// log(1 - u): the logarithm of the rounded 1 - u by what that lacks of 1, times u (W. Kahan's way to compute log1p).
template <class T, class V>
inline V log_of_rest(const V& u) {
  if constexpr (sizeof(T) == 8) return log1p(-u);
  const V rest = 1 - u;
  return select(rest == 1, -u, log_for<T>(rest) * (u / (1 - rest)));
}

template <Float T, class V>
inline V log_ndtr(const V& x) {
  const V half = 0.5 * erfcx_of_positive<T>(abs(x) * M_SQRT1_2);
  const auto negative = x < 0;
  V low = x, high = x;
  if (any(negative)) low = log_for<T>(half) - x * (0.5 * x);
  if (any(!negative)) {
    const V finite = select(x > 40, 40.0, x);  // the distribution function is 1 before
    const V square = finite * finite;
    const V density = exp_for<T>(-0.5 * square) * (1 - 0.5 * rest_of_square<T>(finite, square));
    high = log_of_rest<T>(half * density);
  }
  const V result = select(negative, low, high);
  if constexpr (sizeof(T) == 4) return result;
  const auto middle = abs(x) < 0.5;
  return any(middle) ? select(middle, log1p(erf(x * M_SQRT1_2)) - M_LN2, result) : result;
}

}  // namespace special

inline double erfc(double a) { return std::erfc(a); }
inline float erfc(float a) { return static_cast<float>(std::erfc(static_cast<double>(a))); }
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <int U>
inline Vec<float, U> erfc(const Vec<float, U>& a) {
  using namespace special;  // numbers beside vectors
  const auto x = convert<double>(a);
  const auto result = erfcx_of_positive<float>(abs(x)) * short_exp(-(x * x));
  return convert<float>(select(x < 0, 2 - result, result));
}
#endif

ICPU_SPECIAL(erfcx)
ICPU_SPECIAL(log_ndtr)

}  // namespace icpu
