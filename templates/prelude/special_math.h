// Special functions. Not part of the prelude: ATen's header takes longer to read than all of it, and few kernels need it.
//
// Preconditions: the prelude comes first.
#pragma once

#include "scalar_math.h"

#include <ATen/native/Math.h>

namespace icpu {

template <Float T> inline T digamma(T a) { return calc_digamma(a); }

}  // namespace icpu
