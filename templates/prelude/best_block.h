// argmax and argmin of a long row: first which block of it has the result, then where in that block.
//
// Of most blocks only the extreme value is folded, without its position, which takes half as many instructions.
//
// Preconditions: step(first, lanes, part, accumulators...) adds vectors to accumulators[part] of each reduction, in the
// order of `accumulators`; whatever else it does may be done twice.
#pragma once

#include "loops.h"
#include "reduce.h"

#include <tuple>

namespace icpu {

// What takes the place of a reduction's accumulators while blocks are compared. Other reductions than argmax and argmin
// use their own.
template <class A>
struct BestBlock {
  A& own;
  BestBlock(A& accumulators, int64_t) : own(accumulators) {}
  auto& operator[](int part) { return own[part]; }
  void close(int64_t) {}
};

template <class V, bool Largest, class At, int N>
struct BestBlock<ArgAccumulator<V, Largest, At>[N]> {
  using Own = ArgAccumulator<V, Largest, At>;
  struct Extreme : Accumulator<V, typename Own::Extreme> {
    template <class Lanes>
    void add(const V& x, const typename Own::Position&, const Lanes& lanes) {
      Accumulator<V, typename Own::Extreme>::add(x, lanes);
    }
  };
  Extreme extremes[N];  // of all blocks so far
  Own best;             // all lanes hold the extreme of all blocks but the last
  int64_t block;        // where it comes first
  BestBlock(Own (&)[N], int64_t begin) : block(begin) {}

  Extreme& operator[](int part) { return extremes[part]; }
  void close(int64_t begin) {
    Extreme all = extremes[0];
    for (int i = 1; i < N; ++i) all.merge(extremes[i]);
    if (any(best.better(all.value))) {
      best.value = filled<V>(all.across());
      block = begin;
    }
  }
};

struct NoAccumulators {
  template <class... Arguments>
  void add(const Arguments&...) const {}
  const NoAccumulators& operator[](int) const { return *this; }
};

template <bool wanted, class A>
inline auto& if_wanted(A& accumulators) {
  static constexpr NoAccumulators none;
  if constexpr (wanted) return accumulators;
  else return none;
}

// [begin, end) by vectors, Unroll steps per round.
template <int Unroll, Ends ends = Ends::kTail, class Step, class... A>
inline ICPU_INLINE void for_best_block(int64_t begin, int64_t end, const Step& step, A&... accumulators) {
  constexpr int64_t kBlock = 16 * Unroll * kLanes;
  const auto run = [&](int64_t block, auto&... targets) ICPU_INLINE {
    for_vectors<Unroll, ends>(
        block, std::min(block + kBlock, end), [&](const int64_t first, const auto lanes, const int part) ICPU_INLINE {
          step(first, lanes, part, targets...);
        });
  };
  std::tuple<BestBlock<A>...> best(BestBlock<A>(accumulators, begin)...);
  const auto search = [&]<size_t wanted, size_t... all>(std::index_sequence<all...>) ICPU_INLINE {
    if constexpr (requires { std::get<wanted>(best).block; })
      run(std::get<wanted>(best).block, if_wanted<wanted == all>(accumulators)...);
  };
  [&]<size_t... all>(std::index_sequence<all...> sequence) ICPU_INLINE {
    for (int64_t block = begin; block < end; block += kBlock) {
      run(block, std::get<all>(best)...);
      (std::get<all>(best).close(block), ...);
    }
    (search.template operator()<all>(sequence), ...);
  }(std::index_sequence_for<A...>{});
}

}  // namespace icpu
