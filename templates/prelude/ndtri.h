// ndtri, the inverse of the normal distribution function.
//
// With w = -log(4 p (1 - p)): (2 p - 1) by a polynomial of w for w below 6.25, of its square root beyond (after M. Giles,
// "Approximating the erfinv function", GPU Computing Gems, 2011; the coefficients are minimax fits of ours, with relative
// errors below 7e-10). Results for floats are rounded once: within 0.51 ulp. Those for doubles get one step of Halley's
// method and are within 2.5 ulp.
//
// Preconditions: the prelude comes first. -infinity of 0, infinity of 1, NaN outside of them and of NaN.
#pragma once

#include "erfcx.h"

namespace icpu {

namespace special {

// Of w - 3.125 for w below 6.25, of sqrt(w) - 4 for sqrt(w) below 5.5, and of sqrt(w) - 16 down to the smallest double.
inline constexpr double kNdtriNear[] = {
    2.3386207097076808, 0.3396349536062152, -0.00853289707270926, -0.0010474963865994282, 0.0002640799163520058,
    -1.9645835496056934e-5, -1.930355572364124e-6, 6.037035670690138e-7, -4.1192246631400886e-8,
    -6.7066105480940196e-9, 1.487312867180998e-9, 7.494345788039396e-12, -1.851552053783677e-11};
inline constexpr double kNdtriFar[] = {
    5.4302740179203575, 1.4276414168210745, 0.001772842810168214, -0.0012078375384408954, 0.00041770716872520185,
    -0.00011914155178223673, 2.9909516715234996e-5, -6.657533227843506e-6, 1.1158271813197784e-6,
    3.306533208735592e-7, -3.959468694940256e-7, 1.0040821096345875e-7};
inline constexpr double kNdtriFarther[] = {
    22.510061289591217, 1.4187974152701486, -0.0002008464620756435, 8.996347591751748e-6, -3.9471325644634896e-7,
    1.620246318071805e-8, -6.868439417353364e-10, 2.7661219672475566e-11, 4.0207793659313695e-12,
    -4.945102856119628e-13, -7.343931842210089e-14, 6.553230901136891e-15, 1.1187792151752872e-15,
    -8.514289688988088e-17, -6.994321755130344e-18, 4.824255159361641e-19, 2.4104762375346677e-20,
    -1.5706258658994598e-21};
inline constexpr double kNdtriNearEnd = 6.25, kNdtriFarEnd = 5.5;

// What to add to z >= 0, near to where a normal variable is larger with probability q: with e, the error of the probability
// by the density, e / (1 - e z / 2). Where q is not small, 1/2 - q is compared with half of erf; where it is, erfcx, which
// is the probability by the density, with q by the density.
template <class T, class V>
inline V ndtri_step(const V& z, const V& q) {
  const double root = 2 / M_2_SQRTPI * M_SQRT2;  // of 2 pi
  const V t = z * M_SQRT1_2, power = exp(0.25 * z * z), power_of_q = q * power * power * root;
  const V tail = root * 0.5 * erfcx_of_positive<T>(t) - power_of_q;
  const V middle = (0.5 - q - 0.5 * erf(t)) * power * power * root;
  const V error = select(q > 0.135, middle, tail);
  return error / (1 - 0.5 * error * z);
}

template <Float T, class V>
inline V ndtri(const V& p) {
  const auto upper = p > 0.5;
  const V q = select(upper, 1 - p, p);  // exact
  const V w = -log_for<T>(4 * q * (1 - q));
  const auto is_near = w < kNdtriNearEnd;
  V size = (1 - 2 * q) * sum_of_powers<V>(w - 3.125, kNdtriNear);
  if (any(!is_near)) {
    const V root = sqrt(w);
    V far = sum_of_powers<V>(root - 4, kNdtriFar);
    const auto is_far = root < kNdtriFarEnd;
    if (any(!is_far)) far = select(is_far, far, sum_of_powers<V>(root - 16, kNdtriFarther));
    size = select(is_near, size, far);
  }
  if constexpr (sizeof(T) == 8) size = size + ndtri_step<T>(size, q);
  size = select(q == 0, kInf<double>, size);
  return select(upper, size, 0 - size);  // 0 of 1/2, not -0
}

}  // namespace special

ICPU_SPECIAL(ndtri)

}  // namespace icpu
