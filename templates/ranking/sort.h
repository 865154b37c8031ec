// All elements of long rows in order, equal ones by position.
//
// Preconditions: those of rank.h, for rows of any length below 2^32.
//
// A radix sort from the lowest digit of eight bits on: a pass over the row moves its elements, in their order, to the places
// of their digits. Where all have the same digit, as integers have that are close to the least one, from which they count,
// there is nothing to move. (Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.5R, with places that are counted
// in advance.)
#pragma once

#include "rank.h"

#include <memory>

namespace icpu::ranking {

template <int bytes>
using unsigned_of = std::conditional_t<
    bytes == 8, uint64_t, std::conditional_t<bytes == 4, uint32_t, std::conditional_t<bytes == 2, uint16_t, uint8_t>>>;

// The bits of a type's elements as a number in their order, no wider than the type, unlike the keys of rank.h: each digit is
// a pass.
template <class T>
using digits_type = unsigned_of<sizeof(T)>;

template <bool descending, class T>
inline digits_type<T> digits_of(const T* element) {
  using Digits = digits_type<T>;
  constexpr Digits sign = Digits(1) << (8 * sizeof(T) - 1);
  const scalar_t<T> a = load(element);
  const auto bits = std::bit_cast<Digits>(*element);
  Digits result;
  if constexpr (std::is_floating_point_v<scalar_t<T>>) {
    const Digits ordered = a == 0 ? sign : bits & sign ? Digits(~bits) : Digits(bits | sign);
    result = a != a ? Digits(-1) : ordered;
  } else {
    result = std::is_signed_v<T> ? Digits(bits ^ sign) : bits;
  }
  return descending ? Digits(~result) : result;
}

template <class Digits>
struct Placed {
  Digits digits;
  uint32_t position;

  int digit(int number) const { return int(digits >> (8 * number) & 255); }
};

// The elements in order, in one of two places in memory.
template <class Digits>
inline const Placed<Digits>* sort_by_digits(Placed<Digits>* from, Placed<Digits>* to, int64_t count) {
  constexpr int kDigits = sizeof(Digits);
  uint32_t places[kDigits][256] = {};
  for (int64_t i = 0; i < count; ++i) {
    for (int number = 0; number < kDigits; ++number) ++places[number][from[i].digit(number)];
  }
  for (int number = 0; number < kDigits; ++number) {
    uint32_t* const place = places[number];
    if (count == 0 || place[from[0].digit(number)] == count) continue;
    uint32_t before = 0;
    for (int digit = 0; digit < 256; ++digit) before += std::exchange(place[digit], before);
    for (int64_t i = 0; i < count; ++i) to[place[from[i].digit(number)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

// The elements of a row before they move. Integers count from the least one.
template <bool descending, class T>
inline void place_row(const T* row, int64_t count, Placed<digits_type<T>>* placed) {
  auto least = static_cast<digits_type<T>>(-1);
  for (int64_t i = 0; i < count; ++i) {
    placed[i] = {digits_of<descending>(row + i), static_cast<uint32_t>(i)};
    least = std::min(least, placed[i].digits);
  }
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < count; ++i) placed[i].digits -= least;
  }
}

// A thread keeps its memory for rows that are no longer than this.
inline constexpr int64_t kKeptColumns = 1 << 18;

// As rank_rows.
template <bool descending, class T>
inline void sort_rows(
    const T* x, T* values, int64_t* indices, int64_t rows, int64_t columns, int64_t work, int64_t grain,
    int most_threads) {
  parallel_for(rows, 1, threads_for(rows * work, grain, most_threads), [&](int64_t begin, int64_t end) {
    using Place = Placed<digits_type<T>>;
    const bool keeps = columns <= kKeptColumns;
    const std::unique_ptr<Place[]> once(keeps ? nullptr : new Place[2 * columns]);
    Place* const memory = keeps ? scratch<Place, 31>(2 * columns) : once.get();
    for (int64_t r = begin; r < end; ++r) {
      const T* const row = x + r * columns;
      place_row<descending>(row, columns, memory);
      const auto* const sorted = sort_by_digits(memory, memory + columns, columns);
      for (int64_t k = 0; values && k < columns; ++k) values[r * columns + k] = row[sorted[k].position];
      for (int64_t k = 0; indices && k < columns; ++k) indices[r * columns + k] = sorted[k].position;
    }
  });
}

}  // namespace icpu::ranking
