// The first elements of long rows: topk where few of many are wanted.
//
// Preconditions: those of rank.h, for rows of any length of which at most a 64th is wanted. For so few eager's algorithm
// is a partial sort: a heap of the first elements so far, the last of them on top, which an element that is before it
// replaces. Nearly none is, and vectors pass by the others. The heap takes the library's steps, so that of equal elements
// eager's are chosen, in its order.
#pragma once

#include "rank.h"

namespace icpu::ranking {

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
inline constexpr int kUnitsAtOnce = 4;

// Which elements of some vectors may be before this one.
template <bool largest, class T>
inline Mask<kUnitsAtOnce> maybe_before(const T* row, scalar_t<T> last) {
  const Full<kUnitsAtOnce> lanes;
  const auto x = load(row, lanes), bound = lanes.vec(last);
  if constexpr (largest) {
    return !(x <= bound);  // NaN is
  } else {
    return last != last ? x == x : x < bound;
  }
}

// Offers what may be before the last element, from number `i` on; returns the number from which on no vectors are left.
template <bool largest, class T, class Offer>
inline int64_t offer_of_vectors(const T* row, int64_t i, int64_t columns, const Element<T>& last, const Offer& offer) {
  constexpr int64_t at_once = kUnitsAtOnce * kLanes;
  for (; i + at_once <= columns; i += at_once) {
    const Mask<kUnitsAtOnce> found = maybe_before<largest>(row + i, last.value);
    if (!any(found)) continue;
    for (int unit = 0; unit < kUnitsAtOnce; ++unit) {
      for (uint32_t bits = bits_of_mask(found.m[unit]); bits != 0; bits &= bits - 1) {
        offer(i + unit * kLanes + __builtin_ctz(bits));
      }
    }
  }
  return i;
}
#else
template <bool largest, class T, class Offer>
inline int64_t offer_of_vectors(const T*, int64_t i, int64_t, const Element<T>&, const Offer&) {
  return i;
}
#endif

// The first `count` elements of a row, in order, in memory for one more.
template <bool largest, class T>
inline void first_of_row(const T* row, int64_t columns, int64_t count, Element<T>* heap) {
  const auto compare = [](const Element<T>& x, const Element<T>& y) { return before<largest>(x.value, y.value); };
  for (int64_t i = 0; i < count; ++i) heap[i] = {load(row + i), i};
  std::make_heap(heap, heap + count, compare);
  const auto offer = [&](int64_t i) {
    const Element<T> x{load(row + i), i};
    if (!compare(x, heap[0])) return;
    heap[count] = x;
    std::pop_heap(heap, heap + count + 1, compare);  // which compares the last element with none before it has moved it
  };
  for (int64_t i = offer_of_vectors<largest>(row, count, columns, heap[0], offer); i < columns; ++i) offer(i);
  std::sort_heap(heap, heap + count, compare);
}

// As rank_rows.
template <bool largest, class T>
inline void select_of_rows(
    const T* x, T* values, int64_t* indices, int64_t rows, int64_t columns, int64_t count, int64_t work, int64_t grain,
    int most_threads) {
  parallel_for(rows, 1, threads_for(rows * work, grain, most_threads), [&](int64_t begin, int64_t end) {
    auto* const heap = scratch<Element<T>, 30>(count + 1);
    for (int64_t r = begin; r < end; ++r) {
      first_of_row<largest>(x + r * columns, columns, count, heap);
      for (int64_t k = 0; values && k < count; ++k) values[r * count + k] = x[r * columns + heap[k].position];
      for (int64_t k = 0; indices && k < count; ++k) indices[r * count + k] = heap[k].position;
    }
  });
}

}  // namespace icpu::ranking
