// What the formulas of special functions are written with. A formula is one template over V, which is double or a vector
// of doubles, so that scalar and vector code compute the same; results for floats are computed in doubles and rounded once.
//
// Preconditions: the prelude comes first. Not part of it: few kernels need special functions.
#pragma once

#include "scalar_math.h"

namespace icpu::special {

using std::abs;
using std::copysign;
using std::erf;
using std::erfc;
using std::exp;
using std::fma;
using std::log;
using std::log1p;
using std::rint;
using std::sqrt;

inline double select(bool m, double yes, double no) { return m ? yes : no; }
inline bool any(bool m) { return m; }

template <class V>
struct Constant {
  static V of(double c) { return c; }
};

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <int U>
struct Constant<Vec<double, U>> {
  static Vec<double, U> of(double c) { return splat<U>(c); }
};

// Numbers beside vectors, as a formula has them.
#define ICPU_BESIDE_NUMBERS(Result, op)                                                             \
  template <int U>                                                                                  \
  inline Result operator op(const Vec<double, U>& a, double b) { return a op splat<U>(b); }         \
  template <int U>                                                                                  \
  inline Result operator op(double a, const Vec<double, U>& b) { return splat<U>(a) op b; }
#define ICPU_COMMA ,
ICPU_BESIDE_NUMBERS(Vec<double ICPU_COMMA U>, +)
ICPU_BESIDE_NUMBERS(Vec<double ICPU_COMMA U>, -)
ICPU_BESIDE_NUMBERS(Vec<double ICPU_COMMA U>, *)
ICPU_BESIDE_NUMBERS(Vec<double ICPU_COMMA U>, /)
ICPU_BESIDE_NUMBERS(Mask<U>, ==)
ICPU_BESIDE_NUMBERS(Mask<U>, <)
ICPU_BESIDE_NUMBERS(Mask<U>, <=)
ICPU_BESIDE_NUMBERS(Mask<U>, >)
#undef ICPU_BESIDE_NUMBERS
#undef ICPU_COMMA

template <int U>
inline Vec<double, U> select(const Mask<U>& m, const Vec<double, U>& yes, double no) {
  return icpu::select(m, yes, splat<U>(no));
}
template <int U>
inline Vec<double, U> select(const Mask<U>& m, double yes, const Vec<double, U>& no) {
  return icpu::select(m, splat<U>(yes), no);
}
#endif

// c[0] + c[1] x + c[2] x^2 + ..., term after term: the last sum alone rounds where the first term is the largest.
template <class V, int N>
inline V sum_of_powers(const V& x, const double (&c)[N]) {
  V sum = Constant<V>::of(c[N - 1]);
#pragma GCC unroll 32
  for (int i = N - 2; i >= 0; --i) sum = fma(sum, x, Constant<V>::of(c[i]));
  return sum;
}

// exp and log for results of floats, by vectors of doubles inline: calls of a library take longer than the rest of most
// formulas. The polynomials are minimax fits; relative errors are below 1e-12 and 1e-15. For results of doubles, and for one
// number, they are the library's.
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
inline constexpr double kExp[] = {
    0.9999999999997621,  0.9999999999806078,    0.5000000000618263,     0.1666666688547593,   0.04166666422035199,
    0.00833326703393281, 0.0013889178622550438, 0.00019915419569801275, 2.4727215700455495e-5};
inline constexpr double kLog[] = {
    2.0000000000000004, 0.6666666666655222,  0.4000000006201619, 0.2857141598125817,
    0.2222343716090798, 0.18121855452690908, 0.16838554883566903};

// x = n log(2) + r, and the power 2^n from the bits of n + 1.5 2^52 + 1023, of which the low ones move to the exponent.
// Beyond 700 results are infinite, or 0 as floats; what is divided by another infinity has to be one.
template <int U>
inline Vec<double, U> short_exp(const Vec<double, U>& x) {
  constexpr double rounder = 0x1.8p52 + 1023;
  const auto kept = select(x < -700, -700.0, x);
  const auto place = fma(kept, splat<U>(M_LOG2E), splat<U>(rounder));
  const auto power = map([](Reg<double> p) { return (Reg<double>)((Reg<int64_t>)p << 52); }, place);
  const auto r = fma(place - rounder, splat<U>(-M_LN2), kept);
  return select(x > 700, kInf<double>, power * sum_of_powers(r, kExp));
}

// x = 2^e m with m between the roots of 1/2 and 2; log(m) = s p(s^2) with s = (m - 1) / (m + 1). Preconditions: x is no
// denormal. e comes from bits of a double, too: those of 2^52 + e + 1024.
template <int U>
inline Vec<double, U> short_log(const Vec<double, U>& x) {
  using Bits = Reg<uint64_t>;
  constexpr uint64_t root = 0x3fe6a09e667f3bcd, bias = uint64_t(1024) << 52, whole = 0x4330000000000000;
  Vec<double, U> e, m;
#pragma GCC unroll 8
  for (int j = 0; j < Vec<double, U>::regs; ++j) {
    const Bits bits = (Bits)x.r[j], exponent = (bits - root + bias) >> 52;
    e.r[j] = (Reg<double>)(exponent | whole);
    m.r[j] = (Reg<double>)(bits + bias - (exponent << 52));
  }
  const auto s = (m - 1) / (m + 1);
  const auto result = fma(e - (0x1p52 + 1024), splat<U>(M_LN2), s * sum_of_powers<Vec<double, U>>(s * s, kLog));
  const auto other = select(x == 0, -kInf<double>, select(x > 0, x, kNan<double>));
  return select((x > 0) & (x < kInf<double>), result, other);
}
#endif

template <class T, class V>
inline V exp_for(const V& x) {
  if constexpr (sizeof(T) == 8 || std::is_same_v<V, double>) {
    return exp(x);
  } else {
    return short_exp(x);
  }
}

template <class T, class V>
inline V log_for(const V& x) {
  if constexpr (sizeof(T) == 8 || std::is_same_v<V, double>) {
    return log(x);
  } else {
    return short_log(x);
  }
}

}  // namespace icpu::special

// The functions of kernels, from special::name<T>, the formula whose results are right for T.
#define ICPU_SPECIAL_SCALAR(name)                                                                    \
  template <Float T>                                                                                \
  inline T name(T a) { return static_cast<T>(special::name<T>(static_cast<double>(a))); }
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#define ICPU_SPECIAL(name)                                                                          \
  ICPU_SPECIAL_SCALAR(name)                                                                         \
  template <Float T, int U>                                                                         \
  inline Vec<T, U> name(const Vec<T, U>& a) { return convert<T>(special::name<T>(convert<double>(a))); }
#else
#define ICPU_SPECIAL(name) ICPU_SPECIAL_SCALAR(name)
#endif
