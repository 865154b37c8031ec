// Scalar meanings of the ops that C++ has no operator for, or whose operator has undefined cases.
//
// Preconditions: arguments have one type: float, double, or an integer of 8 to 64 bits. Integers wrap.
#pragma once

#include "base.h"

namespace icpu {

// -- integers ---------------------------------------------------------------------------------------------------------
template <class T>
concept Integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
concept Float = std::is_floating_point_v<T>;

template <Integer T> inline T add(T a, T b) { return T(uint64_t(a) + uint64_t(b)); }
template <Integer T> inline T sub(T a, T b) { return T(uint64_t(a) - uint64_t(b)); }
template <Integer T> inline T mul(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
template <Integer T> inline T neg(T a) { return T(uint64_t(0) - uint64_t(a)); }
template <Integer T> inline T abs(T a) { return a < 0 ? neg(a) : a; }
template <Integer T> inline T sign(T a) { return T((a > 0) - (a < 0)); }
template <Integer T> inline T relu(T a) { return a > 0 ? a : T(0); }
template <Integer T> inline T minimum(T a, T b) { return a < b ? a : b; }
template <Integer T> inline T maximum(T a, T b) { return a > b ? a : b; }
template <Integer T> inline T bitwise_not(T a) { return T(~a); }

// Division by zero gives 0 and raises the status; the smallest integer divided by -1 wraps to itself.
template <Integer T, class S = NoStatus>
inline T truncdiv(T a, T b, S&& status = {}) {
  if (b == 0) {
    status.raise(kZeroDivision);
    return 0;
  }
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return neg(a);
  }
  return T(a / b);
}

template <Integer T, class S = NoStatus>
inline T fmod(T a, T b, S&& status = {}) {
  const T q = truncdiv(a, b, status);
  return b == 0 ? T(0) : sub(a, mul(q, b));
}

template <Integer T, class S = NoStatus>
inline T floordiv(T a, T b, S&& status = {}) {
  const T q = truncdiv(a, b, status);
  const T r = sub(a, mul(q, b));
  return b != 0 && r != 0 && ((r < 0) != (b < 0)) ? T(q - 1) : q;
}

template <Integer T, class S = NoStatus>
inline T remainder(T a, T b, S&& status = {}) {
  const T r = fmod(a, b, status);
  return r != 0 && ((r < 0) != (b < 0)) ? add(r, b) : r;
}

// Shifts by a negative count or by the width or more: left gives 0, right gives the sign.
template <Integer T>
inline T lshift(T a, T b) {
  return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T(uint64_t(a) << b);
}

template <Integer T>
inline T rshift(T a, T b) {
  constexpr T last = T(8 * sizeof(T) - std::is_signed_v<T>);
  return T(a >> (b < 0 || b > last ? last : b));
}

template <Integer T>
inline T ipow(T base, T exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == T(-1) ? (exponent % 2 ? T(-1) : T(1)) : T(0);
  }
  T result = 1;
  for (; exponent; exponent = T(exponent >> 1)) {
    if (exponent & 1) result = mul(result, base);
    base = mul(base, base);
  }
  return result;
}

inline int64_t check_index(int64_t index, int64_t size, Status& status) {
  if (index < 0) index += size;
  if (index >= 0 && index < size) return index;
  status.raise(kBadIndex);
  return 0;
}

inline int64_t check_element(int64_t index, int64_t size, Status& status) {
  if (index >= 0 && index < size) return index;
  status.raise(kBadElement);
  return 0;
}

// Whether what must hold does.
inline bool check_true(bool holds, Status& status) {
  if (!holds) status.raise(kBadElement);
  return holds;
}

// -- bool -------------------------------------------------------------------------------------------------------------
inline bool minimum(bool a, bool b) { return a && b; }
inline bool maximum(bool a, bool b) { return a || b; }

// -- floats -----------------------------------------------------------------------------------------------------------
// By the bits: gcc 12 cannot vectorize std::signbit for baseline x86-64 (it stops with an internal error).
inline bool signbit(float a) { return std::bit_cast<int32_t>(a) < 0; }
inline bool signbit(double a) { return std::bit_cast<int64_t>(a) < 0; }
template <Float T> inline T sign(T a) { return T((a > 0) - (a < 0)); }
template <Float T> inline T relu(T a) { return a < 0 ? T(0) : a; }
template <Float T> inline T minimum(T a, T b) { return a != a || a < b ? a : b; }
template <Float T> inline T maximum(T a, T b) { return a != a || a > b ? a : b; }
template <Float T> inline T rsqrt(T a) { return T(1) / std::sqrt(a); }
template <Float T> inline T sigmoid(T a) { return T(1) / (T(1) + std::exp(-a)); }

template <Float T>
inline T remainder(T a, T b) {
  const T r = std::fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

// The next value of element type T, which a and b are values of.
template <class T>
inline scalar_t<T> nextafter(scalar_t<T> a, scalar_t<T> b) {
  if constexpr (!is_low_precision<T>) {
    return std::nextafter(a, b);
  } else {
    if (a != a || b != b) return kNan<float>;
    if (a == b) return b;
    const bool up = b > a;
    if (a == 0) return float(std::bit_cast<T>(up ? uint16_t(1) : uint16_t(0x8001)));
    const auto bits = std::bit_cast<uint16_t>(T(a));
    return float(std::bit_cast<T>(uint16_t((a > 0) == up ? bits + 1 : bits - 1)));
  }
}

// -- conversion -------------------------------------------------------------------------------------------------------
inline float round_bf16(float a) { return float(bf16(a)); }
inline float round_f16(float a) { return float(f16(a)); }

// The integer part of a float as the instruction of x86 gives it: the smallest integer for NaN and for what does not fit.
// (C++ leaves the cast open there, and compilers fold constants to something else.)
template <class To, Float From>
inline To integer_part(From a) {
  using Wide = std::conditional_t<sizeof(To) == 8, int64_t, int32_t>;
  constexpr From limit = From(uint64_t(1) << (8 * sizeof(Wide) - 1));
  return To(a >= -limit && a < limit ? static_cast<Wide>(a) : std::numeric_limits<Wide>::min());
}

// As a C++ cast; an integer narrower than 32 bits takes the low bits of the 32-bit result, as x86 does.
template <class To, class From>
inline To convert(From a) {
  if constexpr (std::is_same_v<To, bool>) {
    return a != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return integer_part<To>(a);
  } else {
    return static_cast<To>(a);
  }
}

// -- memory -----------------------------------------------------------------------------------------------------------
template <class T>
inline scalar_t<T> load(const T* p) {
  return static_cast<scalar_t<T>>(*p);
}

template <class T>
inline void store(T* p, scalar_t<T> a) {
  *p = static_cast<T>(a);
}

template <class T>
inline scalar_t<T> plus(scalar_t<T> a, scalar_t<T> b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (Integer<T>) {
    return add(a, b);
  } else {
    return a + b;
  }
}

template <class T>
inline void store_add(T* p, scalar_t<T> a) {
  store(p, plus<T>(load(p), a));
}

}  // namespace icpu
