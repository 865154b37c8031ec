// Quotients and remainders of vectors of integers, which have no instruction of their own: by those of doubles.
//
// Preconditions: lanes of int32_t or int64_t; narrower integers need `wrap` after a quotient. Division by zero gives 0 and
// raises the status if the lane takes part; the smallest integer divided by -1 wraps to itself.
//
// Doubles hold 32 bits exactly, and no rounded quotient of two such numbers reaches the next whole one. Of numbers below 2^53
// a rounded quotient may: its whole part is then one too far from zero, which the remainder tells. The quotient of larger ones
// is off by more, and that of what is left of them makes up for it, again to one, in either direction.
#pragma once

#include "vec_convert.h"

namespace icpu {

template <class T, int U>
struct Divided {
  Vec<T, U> quotient, rest;  // a = quotient * b + rest
};

// Less or more by 1 where a mask holds.
template <Integer T, int U>
inline Divided<T, U> with_less(const Divided<T, U>& d, const Vec<T, U>& b, const Mask<U>& less) {
  return {select(less, d.quotient - splat<U>(T(1)), d.quotient), select(less, d.rest + b, d.rest)};
}
template <Integer T, int U>
inline Divided<T, U> with_more(const Divided<T, U>& d, const Vec<T, U>& b, const Mask<U>& more) {
  return {select(more, d.quotient + splat<U>(T(1)), d.quotient), select(more, d.rest - b, d.rest)};
}

// Where the signs of two numbers differ, of which none is 0.
template <Integer T, int U>
inline Mask<U> differ_in_sign(const Vec<T, U>& a, const Vec<T, U>& b) {
  return (a ^ b) < splat<U>(T(0));
}

// Rounded down, of a quotient that is at most 1 more.
template <Integer T, int U>
inline Divided<T, U> down(const Divided<T, U>& d, const Vec<T, U>& b) {
  return with_less(d, b, (d.rest != splat<U>(T(0))) & differ_in_sign(d.rest, b));
}

// Rounded down, of one that is at most 1 less.
template <Integer T, int U>
inline Divided<T, U> up(const Divided<T, U>& d, const Vec<T, U>& b) {
  return with_more(d, b, select(b < splat<U>(T(0)), d.rest <= b, d.rest >= b));
}

// b other than 0. floor: quotients are rounded down, else to zero.
template <bool floor, int U>
inline Divided<int32_t, U> divide(const Vec<int32_t, U>& a, const Vec<int32_t, U>& b) {
  const auto quotient = convert<int32_t>(convert<double>(a) / convert<double>(b));
  const Divided<int32_t, U> d{quotient, a - quotient * b};
  return floor ? down(d, b) : d;
}

template <bool floor, int U>
inline Divided<int64_t, U> divide(const Vec<int64_t, U>& a, const Vec<int64_t, U>& b) {
  const auto x = convert<double>(a), y = convert<double>(b), exact = splat<U>(0x1p53);
  auto quotient = convert<int64_t>(x / y);
  auto rest = a - quotient * b;
  const bool large = any((abs(x) >= exact) | (abs(y) >= exact));
  if (large) {
    quotient = quotient + convert<int64_t>(convert<double>(rest) / y);
    rest = a - quotient * b;
  }
  Divided<int64_t, U> d = down({quotient, rest}, b);
  if (large) d = up(d, b);
  return floor ? d : with_more(d, b, (d.rest != splat<U>(int64_t(0))) & differ_in_sign(a, b));
}

template <bool floor, Integer T, int U, class Lanes, class S>
inline Divided<T, U> checked_divide(const Vec<T, U>& a, const Vec<T, U>& b, const Lanes& lanes, S&& status) {
  const auto zero = splat<U>(T(0));
  const auto bad = b == zero;
  if (any(bad & lanes.mask())) status.raise(kZeroDivision);
  const auto d = divide<floor>(a, select(bad, splat<U>(T(1)), b));
  return {select(bad, zero, d.quotient), d.rest};
}

template <Integer T, int U, class Lanes, class S>
inline Vec<T, U> floordiv(const Vec<T, U>& a, const Vec<T, U>& b, const Lanes& lanes, S&& status) {
  return checked_divide<true>(a, b, lanes, status).quotient;
}
template <Integer T, int U, class Lanes, class S>
inline Vec<T, U> truncdiv(const Vec<T, U>& a, const Vec<T, U>& b, const Lanes& lanes, S&& status) {
  return checked_divide<false>(a, b, lanes, status).quotient;
}
template <Integer T, int U, class Lanes, class S>
inline Vec<T, U> remainder(const Vec<T, U>& a, const Vec<T, U>& b, const Lanes& lanes, S&& status) {
  return checked_divide<true>(a, b, lanes, status).rest;
}
template <Integer T, int U, class Lanes, class S>
inline Vec<T, U> fmod(const Vec<T, U>& a, const Vec<T, U>& b, const Lanes& lanes, S&& status) {
  return checked_divide<false>(a, b, lanes, status).rest;
}

}  // namespace icpu
