// Loops over vectors.
//
// Preconditions: a step is a generic lambda step(first, lanes, part): `first` is the index of lane 0, `lanes` says
// which lanes take part, `part` numbers the copies of an unrolled step, so that each can have its own accumulator.
#pragma once

#include "vec.h"

#include <utility>

namespace icpu {

enum class Ends { kWhole, kTail };  // whether the range may end inside a vector

// [begin, end) by vectors; Unroll steps per round.
template <int Unroll = 1, Ends ends = Ends::kTail, class Step>
inline ICPU_INLINE void for_vectors(int64_t begin, int64_t end, const Step& step) {
  int64_t i = begin;
  if constexpr (Unroll > 1) {
    for (; i + Unroll * kLanes <= end; i += Unroll * kLanes) {
      [&]<int... part>(std::integer_sequence<int, part...>) ICPU_INLINE {
        (step(i + part * kLanes, Full<1>{}, part), ...);
      }(std::make_integer_sequence<int, Unroll>{});
    }
  }
  for (; i + kLanes <= end; i += kLanes) step(i, Full<1>{}, 0);
  if constexpr (ends == Ends::kTail) {
    if (i < end) step(i, Tail(end - i), 0);
  }
}

// The same until done() holds, which is asked now and then.
template <int Unroll = 1, Ends ends = Ends::kTail, class Done, class Step>
inline ICPU_INLINE void for_vectors_until(const Done& done, int64_t begin, int64_t end, const Step& step) {
  constexpr int64_t kStretch = 64 * Unroll * kLanes;
  for (int64_t i = begin; i < end && !done(); i += kStretch) {
    for_vectors<Unroll, ends>(i, i + kStretch < end ? i + kStretch : end, step);
  }
}

// [begin, end) in stretches of 32 rounds of Unroll vectors, by run(from, to), after each of which sums carry.
template <int Unroll, class Run, class... Sums>
inline ICPU_INLINE void in_stretches(int64_t begin, int64_t end, const Run& run, Sums&... sums) {
  constexpr int64_t kStretch = 32 * Unroll * kLanes;
  for (int64_t i = begin; i < end; i += kStretch) {
    run(i, i + kStretch < end ? i + kStretch : end);
    (carry(sums), ...);
  }
}

// [begin, end) by vectors of U units, then by half as many units, and so on.
template <int U, Ends ends = Ends::kTail, class Step>
inline ICPU_INLINE void for_blocks(int64_t begin, int64_t end, const Step& step) {
  int64_t i = begin;
  for (; i + U * kLanes <= end; i += U * kLanes) step(i, Full<U>{}, 0);
  if constexpr (U > 1) {
    for_blocks<U / 2, ends>(i, end, step);
  } else if constexpr (ends == Ends::kTail) {
    if (i < end) step(i, Tail(end - i), 0);
  }
}

#if !defined(CPU_CAPABILITY_AVX512)
// The same for loads and stores of bf16 alone, by blocks of two vectors: their even and their odd elements. A block has the
// numbers `part` and part + 1.
template <int Unroll, Ends ends = Ends::kTail, class Step>
inline ICPU_INLINE void for_alternating(int64_t begin, int64_t end, const Step& step) {
  static_assert(Unroll % 2 == 0);
  int64_t i = begin;
  if constexpr (Unroll > 2) {
    for (; i + Unroll * kLanes <= end; i += Unroll * kLanes) {
      [&]<int... block>(std::integer_sequence<int, block...>) ICPU_INLINE {
        (step(i + 2 * block * kLanes, Alternating<2>{}, 2 * block), ...);
      }(std::make_integer_sequence<int, Unroll / 2>{});
    }
  }
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) step(i, Alternating<2>{}, 0);
  for_vectors<1, ends>(i, end, step);
}

// The same by blocks of U vectors, then of half as many, and so on, as for_blocks.
template <int U, Ends ends = Ends::kTail, class Step>
inline ICPU_INLINE void for_alternating_blocks(int64_t begin, int64_t end, const Step& step) {
  int64_t i = begin;
  for (; i + U * kLanes <= end; i += U * kLanes) step(i, Alternating<U>{}, 0);
  if constexpr (U % 4 == 0) {
    for_alternating_blocks<U / 2, ends>(i, end, step);
  } else {
    for_blocks<U / 2, ends>(i, end, step);
  }
}
#endif

// One vector from `begin`, which may reach beyond `end`.
template <class Step>
inline ICPU_INLINE void with_lanes(int64_t begin, int64_t end, const Step& step) {
  if (begin + kLanes <= end) {
    step(Full<1>{});
  } else {
    step(Tail(end - begin));
  }
}

}  // namespace icpu
