// Transcendental functions of vectors.
//
// Preconditions: float or double lanes; SLEEF as libtorch_cpu exports it. Errors are below 1 ulp (u10: 1.0 ulp, u05:
// 0.5 ulp, u15: 1.5 ulp) for the functions that SLEEF has.
#pragma once

#include "vec_piecewise.h"

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
#define ICPU_SLEEF_F(name, accuracy) Sleef_##name##f16##accuracy
#define ICPU_SLEEF_D(name, accuracy) Sleef_##name##d8##accuracy
#else
#define ICPU_SLEEF_F(name, accuracy) Sleef_##name##f8##accuracy
#define ICPU_SLEEF_D(name, accuracy) Sleef_##name##d4##accuracy
#endif

// Declared here: sleef.h with all its functions would take as long to read as all else but the intrinsics.
#define ICPU_NAMED_UNARY(function, name, accuracy)                                                            \
  extern "C" __attribute__((const)) Reg<float> ICPU_SLEEF_F(name, accuracy)(Reg<float>);                      \
  extern "C" __attribute__((const)) Reg<double> ICPU_SLEEF_D(name, accuracy)(Reg<double>);                    \
  template <Float T, int U>                                                                                   \
  inline Vec<T, U> function(const Vec<T, U>& a) {                                                             \
    return map(                                                                                               \
        [](Reg<T> x) -> Reg<T> {                                                                              \
          if constexpr (sizeof(T) == 4) {                                                                     \
            return ICPU_SLEEF_F(name, accuracy)(x);                                                           \
          } else {                                                                                            \
            return ICPU_SLEEF_D(name, accuracy)(x);                                                           \
          }                                                                                                   \
        },                                                                                                    \
        a);                                                                                                   \
  }
#define ICPU_UNARY(name, accuracy) ICPU_NAMED_UNARY(name, name, accuracy)
ICPU_NAMED_UNARY(sleef_exp, exp, _u10)
ICPU_UNARY(exp2, _u10)
ICPU_NAMED_UNARY(sleef_expm1, expm1, _u10)
ICPU_NAMED_UNARY(sleef_log, log, _u10)
ICPU_UNARY(log2, _u10)
ICPU_UNARY(log10, _u10)
ICPU_NAMED_UNARY(sleef_log1p, log1p, _u10)
ICPU_UNARY(sin, _u10)
ICPU_UNARY(cos, _u10)
ICPU_UNARY(tan, _u10)
ICPU_UNARY(asin, _u10)
ICPU_UNARY(acos, _u10)
ICPU_UNARY(atan, _u10)
ICPU_UNARY(sinh, _u10)
ICPU_UNARY(cosh, _u10)
ICPU_NAMED_UNARY(sleef_tanh, tanh, _u10)
ICPU_UNARY(atanh, _u10)
ICPU_NAMED_UNARY(sleef_erf, erf, _u10)
ICPU_NAMED_UNARY(sleef_erfc, erfc, _u15)
ICPU_UNARY(lgamma, _u10)
ICPU_NAMED_UNARY(sleef_asinh, asinh, _u10)
ICPU_NAMED_UNARY(sleef_acosh, acosh, _u10)
#undef ICPU_UNARY
#undef ICPU_NAMED_UNARY

#define ICPU_NAMED_BINARY(function, name, accuracy)                                                           \
  extern "C" __attribute__((const)) Reg<float> ICPU_SLEEF_F(name, accuracy)(Reg<float>, Reg<float>);          \
  extern "C" __attribute__((const)) Reg<double> ICPU_SLEEF_D(name, accuracy)(Reg<double>, Reg<double>);       \
  template <Float T, int U>                                                                                   \
  inline Vec<T, U> function(const Vec<T, U>& a, const Vec<T, U>& b) {                                             \
    return map(                                                                                               \
        [](Reg<T> x, Reg<T> y) -> Reg<T> {                                                                    \
          if constexpr (sizeof(T) == 4) {                                                                     \
            return ICPU_SLEEF_F(name, accuracy)(x, y);                                                        \
          } else {                                                                                            \
            return ICPU_SLEEF_D(name, accuracy)(x, y);                                                        \
          }                                                                                                   \
        },                                                                                                    \
        a, b);                                                                                                \
  }
#define ICPU_BINARY(name, accuracy) ICPU_NAMED_BINARY(name, name, accuracy)
ICPU_BINARY(pow, _u10)
ICPU_BINARY(atan2, _u10)
ICPU_BINARY(hypot, _u05)
ICPU_NAMED_BINARY(sleef_fmod, fmod, )
ICPU_BINARY(nextafter, )
#undef ICPU_BINARY
#undef ICPU_NAMED_BINARY
#undef ICPU_SLEEF_F
#undef ICPU_SLEEF_D

template <int U>
inline Vec<float, U> exp_of_nonpositive(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return exp_of_nonpositive_reg(x); }, a);
}

// exp, expm1, log, log1p, tanh and erf of floats are inline code, of doubles they are SLEEF's.
#define ICPU_INLINE_OR_SLEEF(name)                                                                            \
  template <Float T, int U>                                                                                   \
  inline Vec<T, U> name(const Vec<T, U>& a) {                                                                 \
    if constexpr (sizeof(T) == 4) {                                                                           \
      return map([](Reg<float> x) { return name##_reg(x); }, a);                                              \
    } else {                                                                                                  \
      return sleef_##name(a);                                                                                 \
    }                                                                                                         \
  }
ICPU_INLINE_OR_SLEEF(exp)
ICPU_INLINE_OR_SLEEF(tanh)
ICPU_INLINE_OR_SLEEF(erf)
ICPU_INLINE_OR_SLEEF(expm1)
ICPU_INLINE_OR_SLEEF(log)
ICPU_INLINE_OR_SLEEF(log1p)
#undef ICPU_INLINE_OR_SLEEF

// Of floats it is in erfcx.h.
template <int U>
inline Vec<double, U> erfc(const Vec<double, U>& a) {
  return sleef_erfc(a);
}

// -- rounding and square root: one instruction ------------------------------------------------------------------------
#if defined(CPU_CAPABILITY_AVX512)
#define ICPU_ROUND_F(x, mode) _mm512_roundscale_ps(x, (mode) | _MM_FROUND_NO_EXC)
#define ICPU_ROUND_D(x, mode) _mm512_roundscale_pd(x, (mode) | _MM_FROUND_NO_EXC)
inline Reg<float> raw_sqrt(Reg<float> a) { return _mm512_sqrt_ps(a); }
inline Reg<double> raw_sqrt(Reg<double> a) { return _mm512_sqrt_pd(a); }
#else
#define ICPU_ROUND_F(x, mode) _mm256_round_ps(x, (mode) | _MM_FROUND_NO_EXC)
#define ICPU_ROUND_D(x, mode) _mm256_round_pd(x, (mode) | _MM_FROUND_NO_EXC)
inline Reg<float> raw_sqrt(Reg<float> a) { return _mm256_sqrt_ps(a); }
inline Reg<double> raw_sqrt(Reg<double> a) { return _mm256_sqrt_pd(a); }
#endif
#define ICPU_ROUND(name, mode)                                                                                \
  template <Float T, int U>                                                                                   \
  inline Vec<T, U> name(const Vec<T, U>& a) {                                                                 \
    return map(                                                                                               \
        [](Reg<T> x) -> Reg<T> {                                                                              \
          if constexpr (sizeof(T) == 4) {                                                                     \
            return ICPU_ROUND_F(x, mode);                                                                     \
          } else {                                                                                            \
            return ICPU_ROUND_D(x, mode);                                                                     \
          }                                                                                                   \
        },                                                                                                    \
        a);                                                                                                   \
  }
ICPU_ROUND(floor, _MM_FROUND_TO_NEG_INF)
ICPU_ROUND(ceil, _MM_FROUND_TO_POS_INF)
ICPU_ROUND(trunc, _MM_FROUND_TO_ZERO)
ICPU_ROUND(rint, _MM_FROUND_TO_NEAREST_INT)
#undef ICPU_ROUND
#undef ICPU_ROUND_F
#undef ICPU_ROUND_D

template <Float T, int U>
inline Vec<T, U> sqrt(const Vec<T, U>& a) {
  return map([](Reg<T> x) { return raw_sqrt(x); }, a);
}

// -- compositions -----------------------------------------------------------------------------------------------------
template <Float T, int U>
inline Vec<T, U> reciprocal(const Vec<T, U>& a) {
  return splat<U>(T(1)) / a;
}

template <Float T, int U>
inline Vec<T, U> rsqrt(const Vec<T, U>& a) {
  return reciprocal(sqrt(a));
}

// a b + c, rounded once.
template <Float T, int U>
inline Vec<T, U> fma(const Vec<T, U>& a, const Vec<T, U>& b, const Vec<T, U>& c) {
  Vec<T, U> result;
  for (int j = 0; j < Vec<T, U>::regs; ++j) result.r[j] = fma_reg(a.r[j], b.r[j], c.r[j]);
  return result;
}

// a / b, given 1 / b: a product and one step that makes up for what its product with b lacks of a (Markstein, "Computation
// of elementary functions on the IBM RISC System/6000 processor", 1990). A division takes three times as long.
// Preconditions: a >= 0 and b >= 1 are finite, or NaN. Within 0.51 ulp, and 1 unit of the smallest number where a is tiny.
template <Float T, int U>
inline Vec<T, U> quotient(const Vec<T, U>& a, const Vec<T, U>& b, const Vec<T, U>& inverse) {
  Vec<T, U> result;
  for (int j = 0; j < Vec<T, U>::regs; ++j) {
    const Reg<T> near = a.r[j] * inverse.r[j];
    result.r[j] = fma_reg(fma_reg(-near, b.r[j], a.r[j]), inverse.r[j], near);
  }
  return result;
}

template <Float T, int U>
inline Vec<T, U> sigmoid(const Vec<T, U>& a) {
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (sizeof(T) == 4) return map([](Reg<float> x) { return sigmoid_reg(x); }, a);
#endif
  return reciprocal(splat<U>(T(1)) + exp(-a));
}

// SLEEF gives NaN where the quotient overflows. Those lanes are rare, and done by the C library.
template <Float T, int U>
inline Vec<T, U> fmod(const Vec<T, U>& a, const Vec<T, U>& b) {
  const auto r = sleef_fmod(a, b);
  const auto valid = (abs(a) < splat<U>(kInf<T>)) & (abs(b) > splat<U>(T(0)));
  if (!any(isnan(r) & valid)) return r;
  const auto top = spill(a), bottom = spill(b);
  auto rest = spill(r);
  for (int i = 0; i < Vec<T, U>::size; ++i) rest.lane[i] = std::fmod(top[i], bottom[i]);
  return unspill(rest);
}

template <Float T, int U>
inline Vec<T, U> remainder(const Vec<T, U>& a, const Vec<T, U>& b) {
  const auto zero = splat<U>(T(0));
  const auto r = fmod(a, b);
  return select((r != zero) & ((r < zero) ^ (b < zero)), r + b, r);
}

// SLEEF squares the argument, which overflows; there asinh(x) = acosh(x) = log(2 x) to the last bit.
template <Float T>
inline constexpr T kLargeArc = sizeof(T) == 4 ? T(1e18) : T(1e150);

template <Float T, int U>
inline Vec<T, U> log_of_double(const Vec<T, U>& a) {
  return log(a) + splat<U>(T(0.69314718055994530942));
}

template <Float T, int U>
inline Vec<T, U> asinh(const Vec<T, U>& a) {
  const auto size = abs(a);
  return select(size > splat<U>(kLargeArc<T>), copysign(log_of_double(size), a), sleef_asinh(a));
}

template <Float T, int U>
inline Vec<T, U> acosh(const Vec<T, U>& a) {
  return select(a > splat<U>(kLargeArc<T>), log_of_double(a), sleef_acosh(a));
}

}  // namespace icpu
