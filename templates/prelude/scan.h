// Running folds: the value at a point is the fold of all points up to it.
//
// `Running...<V>::next(x)` folds in x and gives the fold so far, V being a scalar, or a vector whose lanes are separate
// results. Where the lanes are consecutive points of one result, `InOrder<Running...<T>>` takes them one after another,
// and `PrefixSum<T>` adds them up within registers.
//
// Preconditions: as those of reduce.h. Lanes that do not take part come last, hold anything, and give anything.
#pragma once

#include "reduce.h"

#include <utility>

namespace icpu {

template <class V, class Fold>
struct Running {
  V value = filled<V>(Fold::template identity<element_t<V>>());
  V next(const V& x) { return value = Fold::fold(value, x); }
};
template <class V> using RunningSum = Running<V, SumFold>;
template <class V> using RunningProd = Running<V, ProdFold>;

// log(exp(a) + exp(b)); equal infinities stay what they are.
struct LogAddExpFold {
  template <class T> static constexpr T identity() { return -kInf<T>; }
  template <class V> static V fold(const V& a, const V& b) {
    const V low = minimum(a, b);
    const V high = maximum(a, b);
    if constexpr (is_vector<V>) {
      const V sum = log1p(exp(low - high)) + high;
      return select((low != high) | (low - low == filled<V>(0)), sum, b);
    } else {
      return low != high || low - low == 0 ? std::log1p(std::exp(low - high)) + high : b;
    }
  }
};
template <class V> using RunningLogAddExp = Running<V, LogAddExpFold>;

// The largest (smallest) value so far, or its position: of equal ones the latest. A NaN stays.
template <class V, bool Largest>
struct RunningExtreme {
  using Element = element_t<V>;
  using Position = typename PositionOf<V>::type;
  V value = filled<V>(Largest ? lowest<Element>() : highest<Element>());
  Position position = filled<Position>(0);

  V next(const V& x) {
    if constexpr (is_vector<V>) value = select(follows(x), x, value);
    else if (follows(x)) value = x;
    return value;
  }
  Position next(const V& x, const Position& at) {
    const auto taken = follows(x);
    if constexpr (is_vector<V>) {
      value = select(taken, x, value);
      position = select(taken, at, position);
    } else if (taken) {
      value = x;
      position = at;
    }
    return position;
  }

 private:
  auto follows(const V& x) const {
    const auto ahead = [&] {
      if constexpr (Largest) return x >= value;
      else return x <= value;
    }();
    if constexpr (std::is_floating_point_v<Element>) return ahead | (x != x);
    else return ahead;
  }
};
template <class V> using RunningMax = RunningExtreme<V, true>;
template <class V> using RunningMin = RunningExtreme<V, false>;

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <class V, class Lanes>
inline constexpr int points_of(const Lanes& lanes) {
  if constexpr (Lanes::full) return V::size;
  else return lanes.count;
}

template <class A>
struct InOrder {
  A state;

  template <class V, class Lanes>
  V next(const V& x, const Lanes& lanes) {
    auto points = spill(x);
    for (int i = 0; i < points_of<V>(lanes); ++i) points.lane[i] = state.next(points.lane[i]);
    return unspill(points);
  }
  // The position of lane 0 is `first`.
  template <class V, class Lanes>
  Vec<int64_t, V::units> next(const V& x, int64_t first, const Lanes& lanes) {
    const auto points = spill(x);
    Spilled<int64_t, V::units> found{};
    for (int i = 0; i < points_of<V>(lanes); ++i) found.lane[i] = state.next(points.lane[i], first + i);
    return unspill(found);
  }
};

// Lanes moved up by `distance`, with zeros before them.
template <int distance, class R, int... i>
inline R moved_up(const R& a, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(R{}, a, (i < distance ? i : static_cast<int>(sizeof...(i)) + i - distance)...);
}
template <class R, int... i>
inline R last_everywhere(const R& a, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, a, (i * 0 + static_cast<int>(sizeof...(i)) - 1)...);
}
template <int distance, class R, class Places>
inline R sums_within(const R& a, Places places) {
  constexpr int lanes = static_cast<int>(Places::size());
  if constexpr (distance < lanes) return sums_within<2 * distance>(a + moved_up<distance>(a, places), places);
  else return a;
}

template <class T>
struct PrefixSum {
  using Places = std::make_integer_sequence<int, static_cast<int>(sizeof(Reg<T>) / sizeof(T))>;
  Reg<T> before{};  // the sum so far, in every lane

  template <class V, class Lanes>
  V next(V x, const Lanes& lanes) {
    if constexpr (!Lanes::full) x = select(lanes.mask(), x, filled<V>(0));  // the points of the next loop follow
    for (int j = 0; j < V::regs; ++j) {
      x.r[j] = sums_within<1>(x.r[j], Places{}) + before;
      before = last_everywhere(x.r[j], Places{});
    }
    return x;
  }
};
#endif

}  // namespace icpu
