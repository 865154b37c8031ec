// The order of the elements of short rows: topk and sort.
//
// Preconditions: rows of at most kMost elements, of any type but float8. Operands and results are rows without gaps.
// Order is eager's: NaN is the largest, -0 equals 0. Elements become keys, integers of 32 or 64 bits in the same order.
// Any key may be an element's: what fills the last vector of a row cannot be told by its key.
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
inline constexpr int kMost = 256;

// No wider than they must be: a vector of 32-bit keys has twice the lanes.
template <class T>
using key_type = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
template <class Key>
struct Vector {
  typedef Key type __attribute__((vector_size(kBytes)));
};
template <class Key>
using Keys = typename Vector<Key>::type;
template <class Key>
inline constexpr int kWidth = kBytes / sizeof(Key);
template <class Key>
inline constexpr Key kLeast = std::numeric_limits<Key>::min();
template <class Key>
inline constexpr Key kLargest = std::numeric_limits<Key>::max();

template <class Key>
inline Keys<Key> all(Key a) {
  return a - Keys<Key>{};
}

template <class Key>
inline Keys<Key> keys_at(const Key* keys) {
  Keys<Key> result;
  std::memcpy(&result, keys, sizeof(result));
  return result;
}

// first, first + 1, ...
template <class Key>
inline Keys<Key> count_from(Key first) {
  Keys<Key> result;
  for (int k = 0; k < kWidth<Key>; ++k) result[k] = first + k;
  return result;
}

template <class T>
inline key_type<T> key_of(scalar_t<T> a) {
  using Key = key_type<T>;
  if constexpr (std::is_floating_point_v<scalar_t<T>>) {
    const auto bits = std::bit_cast<Key>(a);
    const Key ordered = a == 0 ? 0 : bits ^ ((bits >> (8 * sizeof(Key) - 1)) & kLargest<Key>);
    return a != a ? kLargest<Key> : ordered;
  } else {
    return static_cast<Key>(a);
  }
}

// The keys of a row, in reverse order if wanted, and `filler` up to whole vectors.
template <bool reverse, class T>
inline void keys_of_row(const T* row, int64_t columns, key_type<T> filler, key_type<T>* keys) {
  for (int64_t i = 0; i < columns; ++i) {
    const key_type<T> key = key_of<T>(load(row + i));
    keys[i] = reverse ? ~key : key;
  }
  for (int64_t i = columns; i % kWidth<key_type<T>> != 0; ++i) keys[i] = filler;
}

// x is before y in eager's order.
template <bool largest, class T>
inline bool before(T x, T y) {
  if constexpr (largest) {
    return (x != x && y == y) || x > y;
  } else {
    return (x == x && y != y) || x < y;
  }
}

// The largest key up to a bound, and a position of it; kLeast, which fillers are, also if there is none.
template <class Key>
inline std::pair<Key, Key> largest_up_to(Key bound, const Key* keys, int64_t columns) {
  const Keys<Key> bounds = all(bound), least = all(kLeast<Key>);
  Keys<Key> best = least, place = {}, here = count_from<Key>(0);
  for (int64_t i = 0; i < columns; i += kWidth<Key>) {
    const Keys<Key> key = keys_at(keys + i);
    const Keys<Key> left = key <= bounds ? key : least;
    place = left > best ? here : place;
    best = best > left ? best : left;
    here += all<Key>(kWidth<Key>);
  }
  std::pair<Key, Key> result{best[0], place[0]};
  for (int k = 1; k < kWidth<Key>; ++k) {
    if (best[k] > result.first) result = {best[k], place[k]};
  }
  return result;
}

template <class Key>
inline int64_t count_above(Key bound, const Key* keys, int64_t columns) {
  Keys<Key> counts = {};
  for (int64_t i = 0; i < columns; i += kWidth<Key>) counts -= keys_at(keys + i) > all(bound);
  int64_t result = 0;
  for (int k = 0; k < kWidth<Key>; ++k) result += counts[k];
  return result;
}

// The positions of the `count` largest keys, each by a pass over the row. False if one of them is not unique, and where
// one is kLeast, which may be a filler.
template <class Key>
inline bool largest_by_passes(const Key* keys, int64_t columns, int64_t count, int64_t* positions) {
  Key bound = kLargest<Key>;
  for (int64_t k = 0; k < count; ++k) {
    const auto [key, position] = largest_up_to(bound, keys, columns);
    if (key == kLeast<Key>) return false;
    positions[k] = position;
    bound = key - 1;
  }
  return count_above(bound, keys, columns) == count;
}

template <class T>
struct Element {
  scalar_t<T> value;
  int64_t position;
};

// What eager's algorithm makes of equal elements: the same functions of the library on the same pairs.
template <bool largest, class T>
inline void positions_as_eager(const T* row, int64_t columns, int64_t count, int64_t* positions) {
  Element<T> queue[kMost];
  for (int64_t i = 0; i < columns; ++i) queue[i] = {load(row + i), i};
  const auto compare = [](const Element<T>& x, const Element<T>& y) { return before<largest>(x.value, y.value); };
  if (count * 64 <= columns) {
    std::partial_sort(queue, queue + count, queue + columns, compare);
  } else {
    std::nth_element(queue, queue + count - 1, queue + columns, compare);
    std::sort(queue, queue + count - 1, compare);
  }
  for (int64_t k = 0; k < count; ++k) positions[k] = queue[k].position;
}

// All elements in order, equal ones by position: the place of each is the number of smaller keys and of equal ones that
// are before it.
template <bool descending, class T>
struct Sorted {
  using Key = key_type<T>;
  static constexpr int kLanes = kWidth<Key>;

  static void positions(const T* row, int64_t columns, int64_t, Key* keys, int64_t* positions) {
    keys_of_row<descending>(row, columns, kLargest<Key>, keys);
    for (int64_t i = 0; i < columns; i += kLanes) {
      const Keys<Key> places = places_of(keys, i, columns);
      for (int64_t k = 0; k < std::min<int64_t>(kLanes, columns - i); ++k) positions[places[k]] = i + k;
    }
  }

  // The places of one vector of elements. Fillers are the largest and behind all elements: they count for none.
  static Keys<Key> places_of(const Key* keys, int64_t first, int64_t columns) {
    const Keys<Key> own = keys_at(keys + first), lanes = count_from<Key>(0);
    Keys<Key> places = all(static_cast<Key>(first));
#pragma GCC unroll 8
    for (int64_t j = 0; j < first; ++j) places += all(keys[j]) > own;
#pragma GCC unroll 8
    for (int64_t k = 0; k < std::min<int64_t>(kLanes, columns - first); ++k) {
      const Keys<Key> other = all(keys[first + k]);
      places -= (other < own) | ((other == own) & (all(static_cast<Key>(k)) < lanes));
    }
#pragma GCC unroll 8
    for (int64_t j = first + kLanes; j < columns; ++j) places -= all(keys[j]) < own;
    return places;
  }
};

// The first elements; where one of them equals another element, eager's algorithm decides which comes first.
template <bool largest, class T>
struct Top {
  using Key = key_type<T>;

  static void positions(const T* row, int64_t columns, int64_t count, Key* keys, int64_t* positions) {
    const bool unique = count * 4 >= columns ? by_places(row, columns, count, keys, positions)
                                             : by_passes(row, columns, count, keys, positions);
    if (!unique) positions_as_eager<largest>(row, columns, count, positions);
  }

  // Many of few elements.
  static bool by_places(const T* row, int64_t columns, int64_t count, Key* keys, int64_t* positions) {
    Sorted<largest, T>::positions(row, columns, columns, keys, positions);
    bool unique = true;
    for (int64_t k = 1; k < std::min(count + 1, columns); ++k) unique &= keys[positions[k]] != keys[positions[k - 1]];
    return unique;
  }

  // Few of many; eager's algorithm is faster than many passes of short vectors.
  static bool by_passes(const T* row, int64_t columns, int64_t count, Key* keys, int64_t* positions) {
    if (count > 4 * kWidth<Key>) return false;
    keys_of_row<!largest>(row, columns, kLeast<Key>, keys);
    return largest_by_passes(keys, columns, count, positions);
  }
};

// values, indices: null if nobody reads them. Each row costs about `work` additions.
template <class Order, class T>
inline void rank_rows(
    const T* x, T* values, int64_t* indices, int64_t rows, int64_t columns, int64_t count, int64_t work,
    int64_t grain, int most_threads) {
  parallel_for(rows, 1, threads_for(rows * work, grain, most_threads), [&](int64_t begin, int64_t end) {
    alignas(64) key_type<T> keys[kMost];
    int64_t positions[kMost];
    for (int64_t r = begin; r < end; ++r) {
      Order::positions(x + r * columns, columns, count, keys, positions);
      for (int64_t k = 0; values && k < count; ++k) values[r * count + k] = x[r * columns + positions[k]];
      for (int64_t k = 0; indices && k < count; ++k) indices[r * count + k] = positions[k];
    }
  });
}

}  // namespace icpu::ranking
