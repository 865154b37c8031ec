// Arithmetic, comparisons and logic of vectors, exact or correctly rounded as the scalar operators are.
//
// Preconditions: both arguments have one type. Integers wrap at the width of the lanes (32 or 64 bits); narrower
// integers need `wrap` after an op that can leave their range.
#pragma once

#include "vec.h"

namespace icpu {

template <class T>
struct ArithmeticOf { using type = T; };
template <> struct ArithmeticOf<int32_t> { using type = uint32_t; };
template <> struct ArithmeticOf<int64_t> { using type = uint64_t; };

// Integer lanes are added as unsigned ones: their overflow is defined.
#define ICPU_ARITHMETIC(op)                                                                                   \
  template <class T, int U>                                                                                   \
  inline Vec<T, U> operator op(const Vec<T, U>& a, const Vec<T, U>& b) {                                      \
    using R = Reg<typename ArithmeticOf<T>::type>;                                                            \
    return map([](Reg<T> x, Reg<T> y) { return (Reg<T>)((R)x op (R)y); }, a, b);                              \
  }
ICPU_ARITHMETIC(+)
ICPU_ARITHMETIC(-)
ICPU_ARITHMETIC(*)
#undef ICPU_ARITHMETIC

template <Float T, int U>
inline Vec<T, U> operator/(const Vec<T, U>& a, const Vec<T, U>& b) {
  return map([](Reg<T> x, Reg<T> y) { return x / y; }, a, b);
}

template <class T, int U>
inline Vec<T, U> operator-(const Vec<T, U>& a) {
  if constexpr (Float<T>) {
    return map([](Reg<T> x) { return -x; }, a);
  } else {
    return splat<U>(T(0)) - a;
  }
}

#define ICPU_BITWISE(op)                                                                                      \
  template <Integer T, int U>                                                                                 \
  inline Vec<T, U> operator op(const Vec<T, U>& a, const Vec<T, U>& b) {                                      \
    return map([](Reg<T> x, Reg<T> y) { return x op y; }, a, b);                                              \
  }                                                                                                           \
  template <int U>                                                                                            \
  inline Mask<U> operator op(const Mask<U>& a, const Mask<U>& b) {                                            \
    return map([](MaskReg x, MaskReg y) { return static_cast<MaskReg>(x op y); }, a, b);                      \
  }
ICPU_BITWISE(&)
ICPU_BITWISE(|)
ICPU_BITWISE(^)
#undef ICPU_BITWISE

template <Integer T, int U>
inline Vec<T, U> operator~(const Vec<T, U>& a) {
  return map([](Reg<T> x) { return ~x; }, a);
}

template <int U>
inline Mask<U> operator!(const Mask<U>& a) {
  return a ^ splat<U>(true);
}

// -- comparison -------------------------------------------------------------------------------------------------------
#if defined(CPU_CAPABILITY_AVX512)
#define ICPU_COMPARE(op, of_float, of_int)                                                                    \
  inline __mmask16 compare_##of_int(Reg<float> a, Reg<float> b) { return _mm512_cmp_ps_mask(a, b, of_float); } \
  inline __mmask8 compare_##of_int(Reg<double> a, Reg<double> b) { return _mm512_cmp_pd_mask(a, b, of_float); } \
  inline __mmask16 compare_##of_int(Reg<int32_t> a, Reg<int32_t> b) {                                         \
    return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, of_int);                                             \
  }                                                                                                           \
  inline __mmask8 compare_##of_int(Reg<int64_t> a, Reg<int64_t> b) {                                          \
    return _mm512_cmp_epi64_mask((__m512i)a, (__m512i)b, of_int);                                             \
  }
#define ICPU_COMPARE_REG(op, of_int, x, y) compare_##of_int(x, y)
#else
#define ICPU_COMPARE(op, of_float, of_int)
#define ICPU_COMPARE_REG(op, of_int, x, y) ((x)op(y))
#endif

#define ICPU_COMPARISON(op, of_float, of_int)                                                                 \
  ICPU_COMPARE(op, of_float, of_int)                                                                          \
  template <class T, int U>                                                                                   \
  inline Mask<U> operator op(const Vec<T, U>& a, const Vec<T, U>& b) {                                        \
    Mask<U> result;                                                                                           \
    _Pragma("GCC unroll 8") for (int j = 0; j < U; ++j) {                                                     \
      if constexpr (sizeof(T) == 4) {                                                                         \
        result.m[j] = (MaskReg)ICPU_COMPARE_REG(op, of_int, a.r[j], b.r[j]);                                  \
      } else {                                                                                                \
        result.m[j] = mask_join(                                                                              \
            ICPU_COMPARE_REG(op, of_int, a.r[2 * j], b.r[2 * j]),                                             \
            ICPU_COMPARE_REG(op, of_int, a.r[2 * j + 1], b.r[2 * j + 1]));                                    \
      }                                                                                                       \
    }                                                                                                         \
    return result;                                                                                            \
  }
ICPU_COMPARISON(==, _CMP_EQ_OQ, _MM_CMPINT_EQ)
ICPU_COMPARISON(!=, _CMP_NEQ_UQ, _MM_CMPINT_NE)
ICPU_COMPARISON(<, _CMP_LT_OQ, _MM_CMPINT_LT)
ICPU_COMPARISON(<=, _CMP_LE_OQ, _MM_CMPINT_LE)
#undef ICPU_COMPARISON
#undef ICPU_COMPARE
#undef ICPU_COMPARE_REG

template <class T, int U>
inline Mask<U> operator>(const Vec<T, U>& a, const Vec<T, U>& b) { return b < a; }
template <class T, int U>
inline Mask<U> operator>=(const Vec<T, U>& a, const Vec<T, U>& b) { return b <= a; }

template <int U> inline Mask<U> operator!=(const Mask<U>& a, const Mask<U>& b) { return a ^ b; }
template <int U> inline Mask<U> operator==(const Mask<U>& a, const Mask<U>& b) { return !(a ^ b); }
template <int U> inline Mask<U> operator<(const Mask<U>& a, const Mask<U>& b) { return b & !a; }
template <int U> inline Mask<U> operator<=(const Mask<U>& a, const Mask<U>& b) { return b | !a; }
template <int U> inline Mask<U> operator>(const Mask<U>& a, const Mask<U>& b) { return a & !b; }
template <int U> inline Mask<U> operator>=(const Mask<U>& a, const Mask<U>& b) { return a | !b; }

template <Float T, int U> inline Mask<U> isnan(const Vec<T, U>& a) { return a != a; }

// -- bits of floats ---------------------------------------------------------------------------------------------------
template <class T>
using IntOf = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

template <class To, class T, int U>
inline Vec<To, U> bits_as_vec(const Vec<T, U>& a) {
  static_assert(sizeof(To) == sizeof(T));
  Vec<To, U> result;
#pragma GCC unroll 8
  for (int j = 0; j < Vec<T, U>::regs; ++j) result.r[j] = (Reg<To>)a.r[j];
  return result;
}

template <Float T>
inline constexpr IntOf<T> kSignBit = std::numeric_limits<IntOf<T>>::min();

template <Float T, int U>
inline Vec<T, U> abs(const Vec<T, U>& a) {
  return map([](Reg<T> x) { return (Reg<T>)((Reg<IntOf<T>>)x & ~kSignBit<T>); }, a);
}
template <Integer T, int U>
inline Vec<T, U> abs(const Vec<T, U>& a) {
  return select(a < splat<U>(T(0)), -a, a);
}

template <Float T, int U>
inline Vec<T, U> copysign(const Vec<T, U>& a, const Vec<T, U>& sign) {
  using R = Reg<IntOf<T>>;
  return map([](Reg<T> x, Reg<T> s) { return (Reg<T>)(((R)x & ~kSignBit<T>) | ((R)s & kSignBit<T>)); }, a, sign);
}

template <Float T, int U>
inline Mask<U> signbit(const Vec<T, U>& a) {
  return bits_as_vec<IntOf<T>>(a) < splat<U>(IntOf<T>(0));
}

template <Float T, int U>
inline Mask<U> isinf(const Vec<T, U>& a) {
  return abs(a) == splat<U>(kInf<T>);
}

// -- minimum and maximum ----------------------------------------------------------------------------------------------
#if defined(CPU_CAPABILITY_AVX512)
inline Reg<float> raw_min(Reg<float> a, Reg<float> b) { return _mm512_min_ps(a, b); }
inline Reg<float> raw_max(Reg<float> a, Reg<float> b) { return _mm512_max_ps(a, b); }
inline Reg<double> raw_min(Reg<double> a, Reg<double> b) { return _mm512_min_pd(a, b); }
inline Reg<double> raw_max(Reg<double> a, Reg<double> b) { return _mm512_max_pd(a, b); }
inline __mmask16 numbers(Reg<float> a) { return _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q); }
inline __mmask8 numbers(Reg<double> a) { return _mm512_cmp_pd_mask(a, a, _CMP_ORD_Q); }
inline Reg<float> min_or_nan(Reg<float> a, Reg<float> b) { return _mm512_mask_min_ps(a, numbers(a), a, b); }
inline Reg<float> max_or_nan(Reg<float> a, Reg<float> b) { return _mm512_mask_max_ps(a, numbers(a), a, b); }
inline Reg<double> min_or_nan(Reg<double> a, Reg<double> b) { return _mm512_mask_min_pd(a, numbers(a), a, b); }
inline Reg<double> max_or_nan(Reg<double> a, Reg<double> b) { return _mm512_mask_max_pd(a, numbers(a), a, b); }
#else
inline Reg<float> raw_min(Reg<float> a, Reg<float> b) { return _mm256_min_ps(a, b); }
inline Reg<float> raw_max(Reg<float> a, Reg<float> b) { return _mm256_max_ps(a, b); }
inline Reg<double> raw_min(Reg<double> a, Reg<double> b) { return _mm256_min_pd(a, b); }
inline Reg<double> raw_max(Reg<double> a, Reg<double> b) { return _mm256_max_pd(a, b); }
template <class R> inline R min_or_nan(R a, R b) { return a == a ? raw_min(a, b) : a; }
template <class R> inline R max_or_nan(R a, R b) { return a == a ? raw_max(a, b) : a; }
#endif

// The x86 instructions return their second argument when either is NaN: that keeps b's NaN. They leave alone lanes whose a is
// NaN.
template <Float T, int U>
inline Vec<T, U> minimum(const Vec<T, U>& a, const Vec<T, U>& b) {
  return map([](Reg<T> x, Reg<T> y) { return min_or_nan(x, y); }, a, b);
}
template <Float T, int U>
inline Vec<T, U> maximum(const Vec<T, U>& a, const Vec<T, U>& b) {
  return map([](Reg<T> x, Reg<T> y) { return max_or_nan(x, y); }, a, b);
}
// The same for a bound that is no NaN.
template <Float T, int U>
inline Vec<T, U> at_most(const Vec<T, U>& a, const Vec<T, U>& bound) {
  return map([](Reg<T> x, Reg<T> y) { return raw_min(y, x); }, a, bound);
}
template <Float T, int U>
inline Vec<T, U> at_least(const Vec<T, U>& a, const Vec<T, U>& bound) {
  return map([](Reg<T> x, Reg<T> y) { return raw_max(y, x); }, a, bound);
}
// Of zeros of both signs the first, as the C library's functions: they too give their second argument when equal.
template <Float T, int U>
inline Vec<T, U> fmin(const Vec<T, U>& a, const Vec<T, U>& b) {
  return select(isnan(a), b, map([](Reg<T> x, Reg<T> y) { return raw_min(y, x); }, a, b));
}
template <Float T, int U>
inline Vec<T, U> fmax(const Vec<T, U>& a, const Vec<T, U>& b) {
  return select(isnan(a), b, map([](Reg<T> x, Reg<T> y) { return raw_max(y, x); }, a, b));
}
template <Integer T, int U>
inline Vec<T, U> minimum(const Vec<T, U>& a, const Vec<T, U>& b) {
  return map([](Reg<T> x, Reg<T> y) { return x < y ? x : y; }, a, b);
}
template <Integer T, int U>
inline Vec<T, U> maximum(const Vec<T, U>& a, const Vec<T, U>& b) {
  return map([](Reg<T> x, Reg<T> y) { return x > y ? x : y; }, a, b);
}
template <int U> inline Mask<U> minimum(const Mask<U>& a, const Mask<U>& b) { return a & b; }
template <int U> inline Mask<U> maximum(const Mask<U>& a, const Mask<U>& b) { return a | b; }

template <class T, int U>
inline Vec<T, U> relu(const Vec<T, U>& a) {
  if constexpr (Float<T>) {
    return map([](Reg<T> x) { return raw_max(Reg<T>{}, x); }, a);  // NaN and -0.0 stay what they are
  } else {
    return maximum(a, splat<U>(T(0)));
  }
}

template <class T, int U>
inline Vec<T, U> sign(const Vec<T, U>& a) {
  const auto zero = splat<U>(T(0));
  return select(a > zero, splat<U>(T(1)), select(a < zero, splat<U>(T(-1)), zero));
}

// -- shifts -----------------------------------------------------------------------------------------------------------
// For values of element type T, held in lanes that may be wider.
template <Integer T, class H, int U>
inline Vec<H, U> lshift(const Vec<H, U>& a, const Vec<H, U>& b) {
  const auto zero = splat<U>(H(0));
  const auto outside = (b < zero) | (b >= splat<U>(H(8 * sizeof(T))));
  using R = Reg<typename ArithmeticOf<H>::type>;
  const auto count = select(outside, zero, b);
  return select(outside, zero, map([](Reg<H> x, Reg<H> n) { return (Reg<H>)((R)x << (R)n); }, a, count));
}
template <Integer T, class H, int U>
inline Vec<H, U> rshift(const Vec<H, U>& a, const Vec<H, U>& b) {
  const auto last = splat<U>(H(8 * sizeof(T) - std::is_signed_v<T>));
  const auto outside = (b < splat<U>(H(0))) | (b > last);
  return map([](Reg<H> x, Reg<H> n) { return x >> n; }, a, select(outside, last, b));
}

// The value of the low bits, as element type T.
template <Integer T, int U>
inline Vec<int32_t, U> wrap(const Vec<int32_t, U>& a) {
  if constexpr (std::is_signed_v<T>) {
    constexpr int shift = 32 - 8 * sizeof(T);
    return map([](Reg<int32_t> x) { return (Reg<int32_t>)((Reg<uint32_t>)x << shift) >> shift; }, a);
  } else {
    return a & splat<U>(int32_t(std::numeric_limits<T>::max()));
  }
}

// -- across lanes -----------------------------------------------------------------------------------------------------
// The lanes of one unit with lane i and lane i ^ distance exchanged.
template <int words>
inline Reg<float> swap_words(Reg<float> a) {
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (words == 8) return _mm512_shuffle_f32x4(a, a, 0x4e);
  else if constexpr (words == 4) return _mm512_shuffle_f32x4(a, a, 0xb1);
  else if constexpr (words == 2) return _mm512_permute_ps(a, 0x4e);
  else return _mm512_permute_ps(a, 0xb1);
#else
  if constexpr (words == 4) return _mm256_permute2f128_ps(a, a, 1);
  else if constexpr (words == 2) return _mm256_permute_ps(a, 0x4e);
  else return _mm256_permute_ps(a, 0xb1);
#endif
}

template <int distance, class T>
inline Vec<T> swap_lanes(const Vec<T>& a) {
  constexpr int n = Vec<T>::per_unit;
  if constexpr (n == 2 && distance == kLanes / 2) {
    return {{a.r[1], a.r[0]}};
  } else {
    return map([](Reg<T> x) { return (Reg<T>)swap_words<distance * n>((Reg<float>)x); }, a);
  }
}

template <class T>
inline T first_lane(const Vec<T>& a) {
  return a.r[0][0];
}

}  // namespace icpu
