// The integer arithmetic of plans, as Python computes.
#pragma once

#include "plan.h"

#include <algorithm>

namespace icpu {

inline int64_t floor_div(int64_t a, int64_t b) {
  TORCH_CHECK_WITH(ValueError, b != 0, "integer division or modulo by zero in a size expression");
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

inline int64_t compute(Arithmetic op, int64_t a, int64_t b) {
  switch (op) {
    case Arithmetic::add: return a + b;
    case Arithmetic::sub: return a - b;
    case Arithmetic::mul: return a * b;
    case Arithmetic::floordiv: return floor_div(a, b);
    case Arithmetic::mod: return a - floor_div(a, b) * b;
    case Arithmetic::min: return std::min(a, b);
    case Arithmetic::max: return std::max(a, b);
    case Arithmetic::eq: return a == b;
    case Arithmetic::ne: return a != b;
    case Arithmetic::lt: return a < b;
    case Arithmetic::le: return a <= b;
  }
  TORCH_INTERNAL_ASSERT(false);
}

} // namespace icpu
