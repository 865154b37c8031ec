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
