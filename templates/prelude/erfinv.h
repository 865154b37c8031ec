// The inverse of the error function, in doubles: erfinv(a) is a by a polynomial of w = -log(1 - a^2) for w below 6.25, of
// its square root beyond (the variables of M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011; the
// coefficients are minimax fits of ours). Results for floats are rounded once; those for doubles get one step of Newton's
// method, which takes a relative error of 1e-9 to 1e-17.
//
// Preconditions: the prelude comes first. Relative errors of the polynomials are below 6.2e-10. Infinities for 1 and -1, NaN
// outside of them and for NaN.
#pragma once

#include "special.h"

namespace icpu {

namespace special {

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

// Doubles may be nearer to 1 than floats are. Few vectors of common data have a number above 0.999.
template <class T, class V>
inline V near_erfinv(const V& a) {
  const V w = -log_for<T>((1 - a) * (1 + a));
  const V near = a * sum_of_powers<V>(w - 3.125, kErfinvNear);
  const auto is_near = w < kErfinvNearEnd;
  if (!any(!is_near)) return near;
  const V root = sqrt(w);
  V far = sum_of_powers<V>(root - 3.25, kErfinvFar);
  if constexpr (sizeof(T) == 8) {
    far = select(root < kErfinvFarEnd, far, sum_of_powers<V>(root - 5, kErfinvFarther));
  }
  return select(abs(a) == 1, copysign(Constant<V>::of(kInf<double>), a), select(is_near, near, a * far));
}

// From 1/2 on 1 - a is exact, and erf(x) - a would not be.
template <Float T, class V>
inline V erfinv(const V& a) {
  if constexpr (sizeof(T) == 4) {
    return near_erfinv<T>(a);
  } else {
    const V near = near_erfinv<T>(a), x = abs(near), size = abs(a);
    const V excess = select(size < 0.5, erf(x) - size, 1 - size - erfc(x));
    return select(size < 1, copysign(x - excess * (1 / M_2_SQRTPI) * exp(x * x), a), near);
  }
}

}  // namespace special

ICPU_SPECIAL(erfinv)

}  // namespace icpu
