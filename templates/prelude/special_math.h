// Special functions. Not part of the prelude: ATen's header takes longer to read than all of it, and few kernels need it.
//
// Preconditions: the prelude comes first.
#pragma once

#include "scalar_math.h"

#include <ATen/native/Math.h>

namespace icpu {

template <Float T> inline T digamma(T a) { return calc_digamma(a); }
template <Float T> inline T i0(T a) { return calc_i0(a); }

// More steps of Newton's method, on erfc: near 1 the difference 1 - a is exact, but erf(x) - a is not. The first value has
// 7 digits there, and each step doubles them.
inline double erfinv(double a) {
  const double x = calc_erfinv(a), tail = 1 - std::abs(a);
  if (!(tail > 0 && tail < 0.5)) return x;
  double size = std::abs(x);
  for (int step = 0; step < 3; ++step) size += (std::erfc(size) - tail) * (std::sqrt(M_PI) / 2) * std::exp(size * size);
  return std::copysign(size, a);
}
inline float erfinv(float a) { return static_cast<float>(erfinv(static_cast<double>(a))); }

}  // namespace icpu
