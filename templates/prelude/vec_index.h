// Vectors of indices: checks, and quotients and remainders of neighbouring positions.
//
// Preconditions: int64_t lanes, where nothing else is said. For quotients and remainders base >= 0, step > 0 and divisor > 0.
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

template <class Lanes, int U>
inline Mask<U> check_true(const Mask<U>& holds, const Lanes& lanes, Status& status) {
  if (any(!holds & lanes.mask())) status.raise(kBadElement);
  return holds;
}

// (base + step * lane) / divisor. T: int32_t where it holds base + step * lane of all lanes that take part, and divisor.
template <class T = int64_t, class Lanes, int U = Lanes::units>
inline Vec<T, U> quotients(int64_t base, int64_t step, int64_t divisor, const Lanes&) {
  const int64_t first = base / divisor;
  const auto rest = iota<U, T>(base % divisor, step);
  if (divisor >= step * kLanes * U) {  // at most one step to the next quotient
    return select(rest >= splat<U>(T(divisor)), splat<U>(T(first + 1)), splat<U>(T(first)));
  }
  if ((divisor & (divisor - 1)) == 0) {
    const int shift = __builtin_ctzll(static_cast<uint64_t>(divisor));
    return map([shift](auto x) { return x >> shift; }, rest) + splat<U>(T(first));
  }
  // Small numbers: a double holds them exactly, and half a unit keeps the product away from whole numbers.
  const auto scaled = (convert<double>(rest) + splat<U>(0.5)) * splat<U>(1.0 / static_cast<double>(divisor));
  return convert<T>(scaled) + splat<U>(T(first));
}

// (base + step * lane) % divisor, with the same T.
template <class T = int64_t, class Lanes, int U = Lanes::units>
inline Vec<T, U> remainders(int64_t base, int64_t step, int64_t divisor, const Lanes& lanes) {
  const auto rest = iota<U, T>(base % divisor, step);
  if (divisor >= step * kLanes * U) {
    return select(rest >= splat<U>(T(divisor)), rest - splat<U>(T(divisor)), rest);
  }
  return rest - quotients<T>(base % divisor, step, divisor, lanes) * splat<U>(T(divisor));
}

}  // namespace icpu
