// Vectors of indices: checks, and quotients and remainders of neighbouring positions.
//
// Preconditions: int64_t lanes. For quotients and remainders base >= 0, step > 0 and divisor > 0.
#pragma once

#include "vec_convert.h"

namespace icpu {

template <class Lanes, int U>
inline Vec<int64_t, U> check_index(
    const Vec<int64_t, U>& index, const Vec<int64_t, U>& size, const Lanes& lanes, Status& status) {
  const auto zero = splat<U>(int64_t(0));
  const auto wrapped = select(index < zero, index + size, index);
  const auto bad = (wrapped < zero) | (wrapped >= size);
  if (any(bad & lanes.mask())) status.raise(kBadIndex);
  return select(bad, zero, wrapped);
}

template <class Lanes, int U>
inline Vec<int64_t, U> check_element(
    const Vec<int64_t, U>& index, const Vec<int64_t, U>& size, const Lanes& lanes, Status& status) {
  const auto zero = splat<U>(int64_t(0));
  const auto bad = (index < zero) | (index >= size);
  if (any(bad & lanes.mask())) status.raise(kBadElement);
  return select(bad, zero, index);
}

// (base + step * lane) / divisor.
template <class Lanes, int U = Lanes::units>
inline Vec<int64_t, U> quotients(int64_t base, int64_t step, int64_t divisor, const Lanes& lanes) {
  const int64_t first = base / divisor;
  const auto rest = lanes.iota(base % divisor, step);
  if (divisor >= step * kLanes * U) {  // at most one step to the next quotient
    return select(rest >= splat<U>(divisor), splat<U>(first + 1), splat<U>(first));
  }
  // Small numbers: a double holds them exactly, and half a unit keeps the product away from whole numbers.
  const auto scaled = (convert<double>(rest) + splat<U>(0.5)) * splat<U>(1.0 / static_cast<double>(divisor));
  return convert<int64_t>(scaled) + splat<U>(first);
}

// (base + step * lane) % divisor.
template <class Lanes, int U = Lanes::units>
inline Vec<int64_t, U> remainders(int64_t base, int64_t step, int64_t divisor, const Lanes& lanes) {
  const auto rest = lanes.iota(base % divisor, step);
  if (divisor >= step * kLanes * U) {
    return select(rest >= splat<U>(divisor), rest - splat<U>(divisor), rest);
  }
  return rest - quotients(base % divisor, step, divisor, lanes) * splat<U>(divisor);
}

}  // namespace icpu
