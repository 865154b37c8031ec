// Accumulators of reductions, for scalars and for vectors.
//
// An accumulator starts as the identity. `add(x)` folds in a value; `add(x, lanes)` leaves lanes that do not take part
// alone. `total` combines an array of accumulators, pairwise, and then the lanes of a vector, to one scalar.
//
// Preconditions: V is a scalar, a Vec or a Mask. Integers wrap; max and min of floats propagate NaN.
#pragma once

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#include "vec_memory.h"
#endif
#include "scalar_math.h"

namespace icpu {

template <class V>
inline constexpr bool is_vector = requires { V::units; };

template <class V>
struct ElementOf { using type = V; };
template <class V>
  requires is_vector<V>
struct ElementOf<V> { using type = typename V::value_type; };
template <class V>
using element_t = typename ElementOf<V>::type;

template <class V>
inline V filled(element_t<V> a) {
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  if constexpr (is_vector<V>) return splat<V::units>(a);
  else return a;
#else
  return a;
#endif
}

template <class T>
inline constexpr T lowest() {
  if constexpr (std::is_floating_point_v<T>) return -kInf<T>;
  else return std::numeric_limits<T>::min();
}
template <class T>
inline constexpr T highest() {
  if constexpr (std::is_floating_point_v<T>) return kInf<T>;
  else return std::numeric_limits<T>::max();
}

// -- the folds --------------------------------------------------------------------------------------------------------
struct SumFold {
  template <class T> static constexpr T identity() { return T(0); }
  template <class V> static V fold(const V& a, const V& b) {
    if constexpr (Integer<V>) return add(a, b);
    else return a + b;
  }
};
struct ProdFold {
  template <class T> static constexpr T identity() { return T(1); }
  template <class V> static V fold(const V& a, const V& b) {
    if constexpr (Integer<V>) return mul(a, b);
    else return a * b;
  }
};
struct MaxFold {
  template <class T> static constexpr T identity() { return lowest<T>(); }
  template <class V> static V fold(const V& a, const V& b) { return maximum(a, b); }
};
// The largest number: the value so far is none of NaN's, and stays where x is NaN.
struct NumberMaxFold {
  template <class T> static constexpr T identity() { return lowest<T>(); }
  template <class V> static V fold(const V& value, const V& x) {
    if constexpr (is_vector<V>) return at_least(value, x);
    else return x > value ? x : value;
  }
};
struct MinFold {
  template <class T> static constexpr T identity() { return highest<T>(); }
  template <class V> static V fold(const V& a, const V& b) { return minimum(a, b); }
};
struct AnyFold {
  template <class T> static constexpr T identity() { return false; }
  template <class V> static V fold(const V& a, const V& b) { return a | b; }
};
struct AllFold {
  template <class T> static constexpr T identity() { return true; }
  template <class V> static V fold(const V& a, const V& b) { return a & b; }
};

template <class Fold, int distance, class V>
inline element_t<V> fold_halves(const V& a) {
  if constexpr (distance == 0) return first_lane(a);
  else return fold_halves<Fold, distance / 2>(Fold::fold(a, swap_lanes<distance>(a)));
}

// Folds the lanes of a vector to one value, halving them, so that the error of a sum grows with the logarithm.
template <class Fold, class V>
inline element_t<V> fold_lanes(const V& a) {
  if constexpr (!is_vector<V>) {
    return a;
  } else if constexpr (V::units > 1 || std::is_same_v<element_t<V>, bool>) {
    auto lane = spill(a);
    for (int n = V::size / 2; n > 0; n /= 2)
      for (int i = 0; i < n; ++i) lane.lane[i] = Fold::fold(lane.lane[i], lane.lane[i + n]);
    return lane.lane[0];
  } else {
    return fold_halves<Fold, V::size / 2>(a);
  }
}

template <class V, class Fold>
struct Accumulator {
  using Element = element_t<V>;
  V value = filled<V>(Fold::template identity<Element>());

  void add(const V& x) { value = Fold::fold(value, x); }
  template <class Lanes>
  void add(const V& x, const Lanes& lanes) {
    if constexpr (Lanes::full) add(x);
    else value = select(lanes.mask(), Fold::fold(value, x), value);
  }
  void merge(const Accumulator& other) { add(other.value); }
  V result() const { return value; }

  Element across() const { return fold_lanes<Fold>(value); }
};

// Whether nothing that is added can change the result of an any or an all any more.
template <class V, class Fold>
inline bool decided(const Accumulator<V, Fold>& accumulator) {
  return accumulator.across() != Fold::template identity<bool>();
}
template <class V, class Fold, int N>
inline bool decided(const Accumulator<V, Fold> (&accumulators)[N]) {
  Accumulator<V, Fold> all;
  for (const auto& one : accumulators) all.merge(one);
  return decided(all);
}

template <class V> using Sum = Accumulator<V, SumFold>;
template <class V> using Prod = Accumulator<V, ProdFold>;
template <class V> using Max = Accumulator<V, MaxFold>;
template <class V> using NumberMax = Accumulator<V, NumberMaxFold>;
template <class V> using Min = Accumulator<V, MinFold>;
template <class V> using Any = Accumulator<V, AnyFold>;
template <class V> using All = Accumulator<V, AllFold>;

// A sum of many terms: partial sums of kLow terms are summed among themselves, 32 of them, and 64 of these, so that rounding
// errors of floats stay small for up to millions of terms per lane. The first parts are short: equal terms, such as squares
// of what a relu has cut off, have errors of one sign as long as their sum has one exponent. Who adds says when a part ends:
// loops that know it without counting (`in_stretches`).
template <class V>
struct CarriedSum {
  using Element = element_t<V>;
  static constexpr uint32_t kLow = 32, kMiddle = 32, kHigh = 64 * kMiddle;  // terms; parts; parts
  Sum<V> low, middle, high, top;
  uint32_t parts = 0;

  template <class Lanes>
  void add(const V& x, const Lanes& lanes) { low.add(x, lanes); }
  void carry() {
    move(low, middle);
    ++parts;
    if (parts % kMiddle == 0) move(middle, high);
    if (parts % kHigh == 0) move(high, top);
  }
  void merge(const CarriedSum& other) {
    low.merge(other.low);
    middle.merge(other.middle);
    high.merge(other.high);
    top.merge(other.top);
  }
  V result() const { return top.value + (high.value + (middle.value + low.value)); }
  Element across() const { return Sum<V>{result()}.across(); }

 private:
  static void move(Sum<V>& from, Sum<V>& to) {
    to.add(from.value);
    from = {};
  }
};
template <class V, int N>
inline ICPU_INLINE void carry(CarriedSum<V> (&sums)[N]) {
  for (auto& sum : sums) sum.carry();
}
template <class V>
inline ICPU_INLINE void carry(CarriedSum<V>& sum) { sum.carry(); }

// The same for loops that do not: it counts its terms.
template <class V>
struct CascadeSum : CarriedSum<V> {
  uint32_t terms = 0;

  void add(const V& x) {
    this->low.add(x);
    if (++terms % this->kLow == 0) this->carry();
  }
  template <class Lanes>
  void add(const V& x, const Lanes& lanes) {
    if constexpr (Lanes::full) add(x);
    else this->low.add(x, lanes);
  }
};

// -- argmax and argmin ------------------------------------------------------------------------------------------------
// The first position of the largest (smallest) value; the first NaN wins. Positions come in increasing order.
template <class V, class At = int64_t>
struct PositionOf { using type = At; };
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <class V, class At>
  requires is_vector<V>
struct PositionOf<V, At> { using type = Vec<At, V::units>; };
#endif

// At: int64_t, or int32_t where it holds all positions, which then take half as many registers.
template <class V, bool Largest, class At>
struct ArgAccumulator {
  using Element = element_t<V>;
  using Position = typename PositionOf<V, At>::type;
  using Extreme = std::conditional_t<Largest, MaxFold, MinFold>;
  V value = filled<V>(Extreme::template identity<Element>());
  Position position = filled<Position>(0);

  void add(const V& x, const Position& at) {
    if constexpr (is_vector<V>) take(better(x), x, at);
    else if (better(x)) value = x, position = at;
  }
  template <class Lanes>
  void add(const V& x, const Position& at, const Lanes& lanes) {
    if constexpr (Lanes::full) add(x, at);
    else take(better(x) & lanes.mask(), x, at);
  }
  void merge(const ArgAccumulator& other) {
    static_assert(is_vector<V>);
    take(wins(other.value, other.position, value, position), other.value, other.position);
  }
  auto result() const {
    if constexpr (is_vector<V>) return convert<int64_t>(position);
    else return int64_t{position};
  }
  int64_t across() const {
    static_assert(is_vector<V>);
    const V best = filled<V>(extreme(*this));
    auto holders = value == best;
    if constexpr (std::is_floating_point_v<Element>) holders = holders | (value != value);  // none, or best is NaN
    return fold_lanes<MinFold>(select(holders, position, filled<Position>(highest<At>())));
  }
  // Which lanes of x beat the value held so far: NaN beats everything but NaN.
  auto better(const V& x) const {
    if constexpr (std::is_floating_point_v<Element>) return !reaches(value, x) & (value == value);
    else return ahead(x, value);
  }

 private:
  template <class A>
  static auto ahead(const A& x, const A& y) {
    if constexpr (Largest) return x > y;
    else return x < y;
  }
  static auto reaches(const V& x, const V& y) {
    if constexpr (Largest) return x >= y;
    else return x <= y;
  }
  template <class A, class P>
  static auto wins(const A& x, const P& at, const A& y, const P& held) {
    if constexpr (std::is_floating_point_v<Element>) {
      const auto tie = (x == y) | ((x != x) & (y != y));
      return ((ahead(x, y) | (x != x)) & (y == y)) | (tie & (at < held));
    } else {
      return ahead(x, y) | ((x == y) & (at < held));
    }
  }
  template <class M>
  void take(const M& taken, const V& x, const Position& at) {
    value = select(taken, x, value);
    position = select(taken, at, position);
  }
};
// The largest (smallest) value of all lanes.
template <class A>
inline auto extreme(const A& accumulator) {
  return fold_lanes<typename A::Extreme>(accumulator.value);
}
template <class A, int N>
inline auto extreme(const A (&accumulators)[N]) {
  A all = accumulators[0];
  for (int i = 1; i < N; ++i) all.value = A::Extreme::fold(all.value, accumulators[i].value);
  return extreme(all);
}
template <class V> using ArgMax = ArgAccumulator<V, true, int64_t>;
template <class V> using ArgMin = ArgAccumulator<V, false, int64_t>;
template <class V> using ArgMax32 = ArgAccumulator<V, true, int32_t>;
template <class V> using ArgMin32 = ArgAccumulator<V, false, int32_t>;

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
// An accumulator whose lanes are separate results, for values of type T.
template <template <class> class A, class T, class Lanes>
inline A<value_t<T, Lanes::units>> accumulator(const Lanes&) {
  return {};
}

// Adds the units of a vector to one accumulator, or each to its own, from number `part` on.
template <class A, class V, class Lanes>
inline ICPU_INLINE void add_units(A& accumulator, const V& v, const Lanes& lanes) {
  if constexpr (Lanes::units == 1) {
    accumulator.add(v, lanes);
  } else {
    for (int u = 0; u < Lanes::units; ++u) accumulator.add(unit_of(v, u), Full<1>{});
  }
}
template <class A, int N, class V, class Lanes>
inline ICPU_INLINE void add_units(A (&accumulators)[N], int part, const V& v, const Lanes& lanes) {
  if constexpr (Lanes::units == 1) {
    accumulators[part].add(v, lanes);
  } else {
    for (int u = 0; u < Lanes::units; ++u) accumulators[part + u].add(unit_of(v, u), Full<1>{});
  }
}
#endif

// -- the end ----------------------------------------------------------------------------------------------------------
template <class A>
inline auto total(const A& accumulator) {
  return accumulator.across();
}
template <class A, int N>
inline auto total(A (&accumulators)[N]) {
  for (int n = N / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) accumulators[i].merge(accumulators[i + n]);
  return accumulators[0].across();
}

}  // namespace icpu
