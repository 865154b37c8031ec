// The order of the elements of short rows: topk and sort.
//
// Preconditions: element types of at most 32 bits, rows of at most kMost elements. Operands and results are rows without
// gaps. Order is eager's: NaN is the largest, -0 equals 0. Elements and their positions become one 64-bit key each, all of
// them different, so that the order of keys is the order of the row with equal elements by position.
#pragma once

#include "../prelude/icpu.h"

#include <algorithm>

namespace icpu::ranking {

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kBytes = 64;
#elif defined(CPU_CAPABILITY_AVX2)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif
typedef int64_t Keys __attribute__((vector_size(kBytes)));
inline constexpr int kWidth = kBytes / 8;
inline constexpr int kMost = 256;
inline constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kLargest = std::numeric_limits<int64_t>::max();

inline Keys all(int64_t a) { return a - Keys{}; }
inline int64_t padded(int64_t columns) { return (columns + kWidth - 1) / kWidth * kWidth; }

// A number that is ordered as the element is.
template <class T>
inline int32_t order_of(scalar_t<T> a) {
  if constexpr (std::is_floating_point_v<scalar_t<T>>) {
    const auto bits = std::bit_cast<int32_t>(a);
    const int32_t ordered = a == 0 ? 0 : bits ^ ((bits >> 31) & 0x7fffffff);
    return a != a ? std::numeric_limits<int32_t>::max() : ordered;
  } else {
    return static_cast<int32_t>(a);
  }
}

// first[i] is before second[i] in eager's order.
template <bool largest, class T>
inline bool before(T x, T y) {
  if constexpr (largest) {
    return (x != x && y == y) || x > y;
  } else {
    return (x == x && y != y) || x < y;
  }
}

// Keys of a row; the largest key is the first of the largest (smallest) elements.
template <bool largest, class T>
inline void keys_of_top(const T* row, int64_t columns, int64_t* keys) {
  for (int64_t i = 0; i < columns; ++i) {
    const int32_t order = order_of<T>(load(row + i));
    keys[i] = static_cast<int64_t>(static_cast<uint64_t>(largest ? order : ~order) << 32) | (kMost - i);
  }
  for (int64_t i = columns; i < padded(columns); ++i) keys[i] = kLeast;
}

// The largest key below a bound.
inline int64_t largest_below(const int64_t* keys, int64_t padded_columns, int64_t bound) {
  Keys best = all(kLeast);
  const Keys bounds = all(bound), least = all(kLeast);
  for (int64_t i = 0; i < padded_columns; i += kWidth) {
    Keys key;
    std::memcpy(&key, keys + i, sizeof(key));
    const Keys left = key < bounds ? key : least;
    best = best > left ? best : left;
  }
  int64_t result = best[0];
  for (int k = 1; k < kWidth; ++k) result = std::max<int64_t>(result, best[k]);
  return result;
}

// The positions of the first `count` elements. False if two of them are equal, or the last one and one of the others:
// then eager's algorithm decides which comes first.
inline bool top_positions(const int64_t* keys, int64_t columns, int64_t count, int64_t* positions) {
  int64_t bound = kLargest;
  bool distinct = true;
  for (int64_t k = 0; k < count + (count < columns); ++k) {
    const int64_t next = largest_below(keys, padded(columns), bound);
    distinct &= k == 0 || (next >> 32) != (bound >> 32);
    if (k < count) positions[k] = kMost - (next & 0xffffffff);
    bound = next;
  }
  return distinct;
}

// What eager's algorithm makes of equal elements: the same functions of the library on the same pairs.
template <bool largest, class T>
inline void positions_as_eager(const T* row, int64_t columns, int64_t count, int64_t* positions) {
  struct Element {
    scalar_t<T> value;
    int64_t position;
  };
  Element queue[kMost];
  for (int64_t i = 0; i < columns; ++i) queue[i] = {load(row + i), i};
  const auto compare = [](const Element& x, const Element& y) { return before<largest>(x.value, y.value); };
  if (count * 64 <= columns) {
    std::partial_sort(queue, queue + count, queue + columns, compare);
  } else {
    std::nth_element(queue, queue + count - 1, queue + columns, compare);
    std::sort(queue, queue + count - 1, compare);
  }
  for (int64_t k = 0; k < count; ++k) positions[k] = queue[k].position;
}

template <bool largest, class T>
struct Top {
  static void positions(const T* row, int64_t columns, int64_t count, int64_t* keys, int64_t* positions) {
    keys_of_top<largest>(row, columns, keys);
    if (!top_positions(keys, columns, count, positions)) positions_as_eager<largest>(row, columns, count, positions);
  }
};

// All elements in order, equal ones by position: the place of each is the number of smaller keys.
template <bool descending, class T>
struct Sorted {
  static constexpr int kUnits = 4;  // vectors of counts that are in registers
  static void positions(const T* row, int64_t columns, int64_t, int64_t* keys, int64_t* positions) {
    for (int64_t i = 0; i < columns; ++i) {
      const int32_t order = order_of<T>(load(row + i));
      keys[i] = static_cast<int64_t>(static_cast<uint64_t>(descending ? ~order : order) << 32) | i;
    }
    for (int64_t i = columns; i < padded(columns); ++i) keys[i] = kLargest;
    int64_t i = 0;
    for (; i + kUnits * kWidth <= padded(columns); i += kUnits * kWidth) count<kUnits>(keys, i, columns, positions);
    for (; i < padded(columns); i += kWidth) count<1>(keys, i, columns, positions);
  }

  template <int units>
  static void count(const int64_t* keys, int64_t first, int64_t columns, int64_t* positions) {
    Keys own[units], smaller[units] = {};
    std::memcpy(own, keys + first, sizeof(own));
    for (int64_t j = 0; j < columns; ++j) {
      const Keys other = all(keys[j]);
#pragma GCC unroll 8
      for (int u = 0; u < units; ++u) smaller[u] -= other < own[u];
    }
    for (int64_t i = first; i < std::min<int64_t>(first + units * kWidth, columns); ++i) {
      positions[smaller[(i - first) / kWidth][(i - first) % kWidth]] = i;
    }
  }
};

// values, indices: null if nobody reads them. Each row costs about `work` additions.
template <class Order, class T>
inline void rank_rows(
    const T* x, T* values, int64_t* indices, int64_t rows, int64_t columns, int64_t count, int64_t work,
    int64_t grain, int most_threads) {
  parallel_for(rows, 1, threads_for(rows * work, grain, most_threads), [&](int64_t begin, int64_t end) {
    alignas(64) int64_t keys[kMost], positions[kMost];
    for (int64_t r = begin; r < end; ++r) {
      Order::positions(x + r * columns, columns, count, keys, positions);
      for (int64_t k = 0; values && k < count; ++k) values[r * count + k] = x[r * columns + positions[k]];
      for (int64_t k = 0; indices && k < count; ++k) indices[r * count + k] = positions[k];
    }
  });
}

}  // namespace icpu::ranking
