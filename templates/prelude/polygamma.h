// digamma, the derivative of log(gamma(x)), and trigamma, that of digamma.
//
// Of p >= 2, with w = 1 / p and z = w^2, they are log(p) - w / 2 - z g(z) and w + z / 2 + z w h(z), the asymptotic series
// with polynomials of 8 z - 1 in place of their ends. Of 1 <= p < 2 digamma is (p - root) d(p - 1.5) with the root in two
// parts, trigamma t(p - 1.5); of p < 1 they are those of p + 1 less 1 / p, and plus 1 / p^2. Of x < 0, with r = x less the
// nearest whole number, digamma is that of 1 - x less pi cot(pi r), trigamma pi^2 / sin(pi r)^2 less that of 1 - x, with
// sin(pi r) = pi r s(r^2) and cos(pi r) = (1 - 2 r) (1 + 2 r) c(r^2).
//
// All are minimax fits: relative errors of the functions are below 3e-10 for floats, 2e-17 for doubles. Floats are within
// 0.51 ulp, doubles within 2.5 of digamma and 3.5 of trigamma; next to the negative roots of digamma errors are those of its
// two terms.
//
// Preconditions: the prelude comes first. digamma of 0 and -0 is -infinity and infinity, of negative integers NaN, as in
// eager mode; trigamma of all these is infinite.
#pragma once

#include "special.h"

namespace icpu {

namespace special {

// Coefficients of results that are right for T.
template <class T>
struct DigammaFits;
template <>
struct DigammaFits<float> {
  static constexpr double near[] = {
      0.9510558760434841, -0.42362741857507563, 0.24054247908064375, -0.14840522319928856, 0.09498908124296167,
      -0.0619126661309019, 0.040751847253100736, -0.027102798466589605, 0.018012557499930974, -0.011092360578195617,
      0.0073097360430672735, -0.007702433811264763, 0.0052308242797577875};
  static constexpr double far[] = {
      0.08234693712391607, -0.0009367684041116772, 4.483869188932532e-5, -4.11489869814899e-6, 5.717154685071118e-7,
      -8.245352996314296e-8};
};
template <>
struct DigammaFits<double> {
  static constexpr double near[] = {
      0.951055876031833, -0.4236274212814606, 0.24054248424077396, -0.14840492305389016, 0.094988724454977,
      -0.061922133274687374, 0.040760833810580356, -0.02697579669154171, 0.017907252487483153, -0.011908219414044841,
      0.007926943926776403, -0.005279946317219085, 0.003519012962169746, -0.0023454203608541634,
      0.0015565947428507272, -0.0010368439525116964, 0.0007234527196388126, -0.00048472563282296095,
      0.00022699535426403466, -0.00014698428707794997, 0.00025987540245073714, -0.00017655919811019883};
  static constexpr double far[] = {
      0.08234693724440542, -0.0009367704342560716, 4.483905294091942e-5, -4.099379360797174e-6, 5.576417769623277e-7,
      -9.975993190479534e-8, 2.1827906848582427e-8, -5.574327928605112e-9, 1.6160717456459534e-9,
      -5.215206291294012e-10, 1.7036528856664842e-10, -5.316449606171719e-11, 2.979649873140758e-11,
      -2.1123816529939873e-11, 6.334658709715221e-12};
};
template <class T>
struct TrigammaFits;
template <>
struct TrigammaFits<float> {
  static constexpr double near[] = {
      0.934802200805221, -0.8287966437726993, 0.704545414081343, -0.5790416377777838, 0.463071113638511,
      -0.3621516868661393, 0.27792390259211, -0.21023099957592004, 0.15881342591097372, -0.11707212663463683,
      0.07502492855506059, -0.05538391597466583, 0.07116859963820475, -0.050003380320369856};
  static constexpr double far[] = {
      0.16282033408362395, -0.003567727912608629, 0.0002444260089415055, -2.8302810868021123e-5,
      4.616927564562107e-6, -1.0244883879037012e-6, 2.1326129904459548e-7};
};
template <>
struct TrigammaFits<double> {
  static constexpr double near[] = {
      0.9348022005446793, -0.8287966442343201, 0.7045455170012297, -0.5790416377778622, 0.4630645250993568,
      -0.36214936502542616, 0.2780808134891703, -0.21030987305185653, 0.1570531957201936, -0.11604072429559774,
      0.08496893186061352, -0.06174041993912089, 0.04456458272702744, -0.0319853566032822, 0.02286153001309365,
      -0.016252309428700266, 0.011389606288621016, -0.008052536061613146, 0.006176045577369418,
      -0.004297036062666529, 0.0016545534495973771, -0.0012148142661289275, 0.002911157353347188,
      -0.0019838557834382688};
  static constexpr double far[] = {
      0.16282033362029813, -0.003567725525213238, 0.00024443804151782296, -2.833390267961746e-5,
      4.578818457051688e-6, -9.351602313394927e-7, 2.2754352746382764e-7, -6.345616686003622e-8,
      1.975408426329001e-8, -6.704864771337883e-9, 2.4099704458080193e-9, -9.755575465494917e-10,
      4.928489171702334e-10, -1.746035717025389e-10, -1.6717869501587924e-11, -1.6004551549165448e-11,
      6.22462069265168e-11, -2.5099486799217594e-11};
};
template <class T>
struct CircleFits;
template <>
struct CircleFits<float> {
  static constexpr double sine[] = {
      0.9999999999788958, -1.6449340611375025, 0.8117421707241619, -0.19074762244285934, 0.02611620554325652,
      -0.0022352259767522836};
  static constexpr double cosine[] = {
      0.9999999999966558, -0.9348021996129251, 0.3195032817615875, -0.05724875903380173, 0.006327305970411309,
      -0.00045669145162628895};
};
template <>
struct CircleFits<double> {
  static constexpr double sine[] = {
      1.0, -1.6449340668482262, 0.8117424252833373, -0.19075182412143035, 0.026147847804528068,
      -0.0023460808868148784, 0.00014842780084980387, -6.972000464706829e-6, 2.4493081394794437e-7};
  static constexpr double cosine[] = {
      1.0, -0.9348022005446706, 0.31950332423733163, -0.05724947187973151, 0.006332742397870903,
      -0.0004759174232053277, 2.5878803135804605e-5, -1.0329574997519952e-6};
};
// digamma(1 + 0.4616...) = 0
inline constexpr double kDigammaRoot = 0.46163214496836236, kDigammaRootRest = -1.5522348162858677e-17;

// What is near 1 is 1 plus this number, which has not the rounding error of the sum.
template <class V>
inline V rest_above_one(const V& x) {
  return select(x < 1, abs(x), x - 1);
}

// digamma of p = |x| or, of x < 0, 1 + |x|
template <class T, class V>
inline V digamma_of_size(const V& p, const V& x) {
  using Fits = DigammaFits<T>;
  const V w = 1 / p;
  const auto is_near = p < 2;
  V near = p, far = p;
  if (any(is_near)) {
    const V rest = rest_above_one(x);
    near = (rest - kDigammaRoot - kDigammaRootRest) * sum_of_powers<V>(rest - 0.5, Fits::near) - select(p < 1, w, 0);
  }
  if (any(!is_near)) {
    const V z = w * w;
    far = log_for<T>(p) - fma(z, sum_of_powers<V>(8 * z - 1, Fits::far), w * 0.5);
  }
  return select(is_near, near, far);
}

template <class T, class V>
inline V trigamma_of_size(const V& p, const V& x) {
  using Fits = TrigammaFits<T>;
  const V w = 1 / p;
  const auto is_near = p < 2;
  V near = p, far = p;
  if (any(is_near)) {
    near = sum_of_powers<V>(rest_above_one(x) - 0.5, Fits::near) + select(p < 1, w * w, 0);
  }
  if (any(!is_near)) {
    const V z = w * w;
    far = fma(z, fma(w, sum_of_powers<V>(8 * z - 1, Fits::far), Constant<V>::of(0.5)), w);
  }
  return select(is_near, near, far);
}

template <Float T, class V>
inline V digamma(const V& x) {
  const auto reflects = x < 0;
  const V result = digamma_of_size<T>(select(reflects, 1 - x, x), x);
  if (!any(reflects)) return result;
  const V r = x - rint(x), square = r * r;
  const V sine = r * sum_of_powers(square, CircleFits<T>::sine);
  const V cosine = (1 - 2 * r) * (1 + 2 * r) * sum_of_powers(square, CircleFits<T>::cosine);
  const V reflected = select(r == 0, kNan<double>, result - cosine / sine);
  return select(reflects, reflected, result);
}

template <Float T, class V>
inline V trigamma(const V& x) {
  const auto reflects = x < 0;
  const V result = trigamma_of_size<T>(select(reflects, 1 - x, x), x);
  if (!any(reflects)) return result;
  const V r = x - rint(x), ratio = 1 / (r * sum_of_powers<V>(r * r, CircleFits<T>::sine));
  return select(reflects, ratio * ratio - result, result);
}

}  // namespace special

ICPU_SPECIAL(digamma)
ICPU_SPECIAL(trigamma)

}  // namespace icpu
