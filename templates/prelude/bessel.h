// The modified Bessel functions of the first kind of orders 0 and 1, and these times exp(-|x|).
//
// Up to |x| = 8, with a = x^2 / 4: I0(x) = 1 + a p(a), I1(x) = x / 2 (1 + a p(a)). From there on they are
// exp(|x|) / sqrt(|x|) p(16 / |x| - 1). The polynomials are minimax fits of relative errors: below 3e-10 for floats, which
// are then within 0.51 ulp, below 2e-17 for doubles, within 3.5 ulp.
//
// Preconditions: the prelude comes first. Of infinities i0 and i1 are NaN and the others 0, as in eager mode; the sign of
// a zero is lost, too. i0 and i1 are infinite where exp(|x|) is one of doubles: of floats, where the exact result is.
#pragma once

#include "special.h"

namespace icpu {

namespace special {

// Coefficients of results that are right for T.
template <class T, int order>
struct BesselFits;
template <>
struct BesselFits<float, 0> {
  static constexpr double near[] = {
      0.9999999944562425, 0.2500000286067095, 0.027777731267442683, 0.0017361458766515067, 6.943037517624507e-5,
      1.932365362824314e-6, 3.887791602032889e-8, 6.591502799114149e-10, 5.245409283424105e-12,
      1.419056965377289e-13};
  static constexpr double far[] = {
      0.40217650941901356, 0.003360552216590623, 0.00013621716857632271, 1.1140010882624973e-5,
      1.4761021952692078e-6, 3.0695171386962967e-7, 1.0869017259951845e-7, 3.1832259584867915e-8};
};
template <>
struct BesselFits<double, 0> {
  static constexpr double near[] = {
      1.0, 0.2499999999999997, 0.027777777777778744, 0.0017361111111096027, 6.944444444579426e-5,
      1.9290123449172193e-6, 3.9367599179123043e-8, 6.151186571472081e-10, 7.594072535024792e-12,
      7.593868788968395e-14, 6.277917575810461e-16, 4.3457316741310916e-18, 2.639282051718897e-20,
      1.1281690294753577e-22, 9.190253730639863e-25};
  static constexpr double far[] = {
      0.4021765094450081, 0.0033605519836678453, 0.00013621607439017676, 1.1143033792378912e-5, 1.483847651945507e-6,
      2.9735982082124026e-7, 8.872054945931923e-8, 3.932630448802714e-8, 2.156460649108709e-8, 7.551588848349112e-9,
      -6.841662161579417e-9, -1.3396173725347149e-8, -5.060435817591329e-9, 7.519002527832151e-9,
      6.601852402446329e-9, -3.4480110979771744e-9, -4.625610614267226e-9, 1.4549134212570544e-9,
      2.2341910264365125e-9, -5.255999517771755e-10, -6.790343064053294e-10, 1.343059373815947e-10,
      9.650660137055569e-11, -1.7030892417012856e-11};
};
template <>
struct BesselFits<float, 1> {
  static constexpr double near[] = {
      0.4999999990417199, 0.08333333754757431, 0.006944438405959009, 0.00034722630041966816, 1.1572554656339569e-5,
      2.759114106886814e-7, 4.874287450721819e-9, 7.234696255644125e-11, 5.543443847640533e-13,
      1.2482981598516158e-14};
  static constexpr double far[] = {
      0.38939845905768333, -0.009749577438479309, -0.00021923708140484836, -1.5035390272529714e-5,
      -1.8258338551782863e-6, -3.5824192857407284e-7, -1.2261962130756552e-7, -3.5850610936263967e-8};
};
template <>
struct BesselFits<double, 1> {
  static constexpr double near[] = {
      0.4999999999999997, 0.08333333333333526, 0.006944444444439506, 0.00034722222222843645, 1.1574074069560157e-5,
      2.755731943141185e-7, 4.920949223950092e-9, 6.834666140671892e-11, 7.593855251917937e-13,
      6.905847834527959e-15, 5.213951654375704e-17, 3.4349808273576073e-19, 1.5699464387219385e-21,
      1.388605161644745e-23};
  static constexpr double far[] = {
      0.38939845902587233, -0.009749577193235746, -0.00021923576383385323, -1.5038547199748879e-5,
      -1.8349101348193228e-6, -3.4838559841344883e-7, -1.0001283633002135e-7, -4.312889782387876e-8,
      -2.337444136693219e-8, -8.42970314489765e-9, 6.737725170374374e-9, 1.4042411615391328e-8, 5.961519496345599e-9,
      -7.664469104776858e-9, -7.855082887540799e-9, 3.465209635681116e-9, 6.1861593418888955e-9,
      -1.4834824092916231e-9, -3.73162733520596e-9, 5.61765751300075e-10, 1.640652833587507e-9,
      -1.5329861346646464e-10, -4.581439755666984e-10, 2.0857363553963156e-11, 5.996343558114187e-11};
};
inline constexpr double kBesselFar = 8;

template <class T, int order, bool scaled, class V>
inline V bessel(const V& x) {
  using Fits = BesselFits<T, order>;
  const V size = abs(x);
  const auto is_near = size <= kBesselFar;
  V near = size, far = size;
  if (any(is_near)) {
    const V a = size * size * 0.25;
    near = fma(a, sum_of_powers(a, Fits::near), Constant<V>::of(1));
    if constexpr (order == 1) near = near * (size * 0.5);
    if constexpr (scaled) near = near * exp_for<T>(-size);
  }
  if (any(!is_near)) {
    far = sum_of_powers<V>(2 * kBesselFar / size - 1, Fits::far);
    if constexpr (!scaled) far = far * exp_for<T>(size);
    far = far / sqrt(size);
  }
  const V result = select(is_near, near, far);
  if constexpr (order == 0) return result;
  return select(x < 0, -result, result);
}

template <Float T, class V> inline V i0(const V& x) { return bessel<T, 0, false>(x); }
template <Float T, class V> inline V i0e(const V& x) { return bessel<T, 0, true>(x); }
template <Float T, class V> inline V i1(const V& x) { return bessel<T, 1, false>(x); }
template <Float T, class V> inline V i1e(const V& x) { return bessel<T, 1, true>(x); }

}  // namespace special

ICPU_SPECIAL(i0)
ICPU_SPECIAL(i0e)
ICPU_SPECIAL(i1)
ICPU_SPECIAL(i1e)

}  // namespace icpu
