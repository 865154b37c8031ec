// Records: lanes of two, three or four vectors that lie side by side in memory.
//
// Preconditions: no alignment is needed. Lanes that do not take part are not written.
#pragma once

#include "vec_memory.h"

namespace icpu {

// records[k]: the k-th register of all parts' lanes side by side, those of lane 0 first.
template <class T>
inline void interleave(const Reg<T> (&parts)[2], Reg<T> (&records)[2]) {
#if defined(CPU_CAPABILITY_AVX512)
  const __m512i a = (__m512i)parts[0], b = (__m512i)parts[1];
  if constexpr (sizeof(T) == 4) {
    const __m512i places = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    records[0] = (Reg<T>)_mm512_permutex2var_epi32(a, places, b);
    records[1] = (Reg<T>)_mm512_permutex2var_epi32(a, _mm512_add_epi32(places, _mm512_set1_epi32(8)), b);
  } else {
    const __m512i places = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    records[0] = (Reg<T>)_mm512_permutex2var_epi64(a, places, b);
    records[1] = (Reg<T>)_mm512_permutex2var_epi64(a, _mm512_add_epi64(places, _mm512_set1_epi64(4)), b);
  }
#else
  const __m256i a = (__m256i)parts[0], b = (__m256i)parts[1];
  const __m256i low = sizeof(T) == 4 ? _mm256_unpacklo_epi32(a, b) : _mm256_unpacklo_epi64(a, b);
  const __m256i high = sizeof(T) == 4 ? _mm256_unpackhi_epi32(a, b) : _mm256_unpackhi_epi64(a, b);
  records[0] = (Reg<T>)_mm256_permute2x128_si256(low, high, 0x20);
  records[1] = (Reg<T>)_mm256_permute2x128_si256(low, high, 0x31);
#endif
}

// Where the words of register number K of records of three come from: which part, and which of its words.
template <class T, int K>
struct ThreeParts {
  static constexpr int kWords = kRegBytes / 4, kPerLane = sizeof(T) / 4;
  alignas(kRegBytes) int32_t word[kWords] = {};
  uint32_t of_part[3] = {};
  constexpr ThreeParts() {
    for (int i = 0; i < kWords; ++i) {
      const int element = (K * kWords + i) / kPerLane;
      word[i] = element / 3 * kPerLane + i % kPerLane;
      of_part[element % 3] |= 1u << i;
    }
  }
};

template <int K, class T>
inline Reg<T> record_of_three(const Reg<T> (&parts)[3]) {
  static constexpr ThreeParts<T, K> from;
#if defined(CPU_CAPABILITY_AVX512)
  const __m512i places = _mm512_load_si512(from.word);
  __m512i words = _mm512_permutexvar_epi32(places, (__m512i)parts[0]);
  words = _mm512_mask_permutexvar_epi32(words, from.of_part[1], places, (__m512i)parts[1]);
  return (Reg<T>)_mm512_mask_permutexvar_epi32(words, from.of_part[2], places, (__m512i)parts[2]);
#else
  const __m256i places = _mm256_load_si256(reinterpret_cast<const __m256i*>(from.word));
  const auto pick = [&](const Reg<T>& part) { return _mm256_permutevar8x32_epi32((__m256i)part, places); };
  const __m256i words = _mm256_blend_epi32(pick(parts[0]), pick(parts[1]), int(from.of_part[1]));
  return (Reg<T>)_mm256_blend_epi32(words, pick(parts[2]), int(from.of_part[2]));
#endif
}

template <class T>
inline void interleave(const Reg<T> (&parts)[3], Reg<T> (&records)[3]) {
  records[0] = record_of_three<0, T>(parts);
  records[1] = record_of_three<1, T>(parts);
  records[2] = record_of_three<2, T>(parts);
}

template <class T>
inline void interleave(const Reg<T> (&parts)[4], Reg<T> (&records)[4]) {
  Reg<T> even[2], odd[2], pairs[2];
  interleave<T>({parts[0], parts[2]}, even);
  interleave<T>({parts[1], parts[3]}, odd);
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    interleave<T>({even[k], odd[k]}, pairs);
    records[2 * k] = pairs[0];
    records[2 * k + 1] = pairs[1];
  }
}

// The units of the parts' lanes side by side.
template <class H, int U, class... V>
inline auto records_of(const Vec<H, U>& first, const V&... others) {
  constexpr int size = 1 + sizeof...(V);
  Vec<H, U * size> result;
#pragma GCC unroll 16
  for (int k = 0; k < Vec<H, U>::regs; ++k) {
    Reg<H> records[size];
    interleave<H>({first.r[k], others.r[k]...}, records);
#pragma GCC unroll 4
    for (int n = 0; n < size; ++n) result.r[k * size + n] = records[n];
  }
  return result;
}

// What is known of values that become bf16: nothing, that a NaN has a low half of zeros, or that they are bf16 already.
enum class Rounds { kAll, kPlain, kNone };

// p[lane * size + n] = lane of part n, for the lanes that take part; size: the number of parts.
// around_cache: straight to memory where p is a multiple of a piece of a vector, ordered before what follows by sfence.
template <bool around_cache = false, Rounds rounds = Rounds::kAll, class T, class Lanes, class... V>
inline void store_records(T* p, const Lanes& lanes, const V&... parts) {
  constexpr int size = sizeof...(V);
  const auto records = records_of(parts...);
  if constexpr (Lanes::full) {
    constexpr Full<Lanes::units * size> all;
    const auto write = [&](T* place) ICPU_INLINE { store(place, records, all); };
    if constexpr (around_cache) around(p, all, write);
    else write(p);
  } else {
#pragma GCC unroll 4
    for (int n = 0; n < size; ++n) {
      const int left = lanes.count * size - n * kLanes;
      if (left >= kLanes) store_unit(p + n * kLanes, unit_of(records, n));
      else if (left > 0) store(p + n * kLanes, unit_of(records, n), Tail(left));
    }
  }
}

// Two neighbours of half a word or less as one integer.
template <bool around_cache, class Pair, class Lanes, int U>
inline void store_pairs(Pair* p, const Lanes& lanes, const Vec<int32_t, U>& pairs) {
  const auto write = [&](Pair* place) ICPU_INLINE { store(place, pairs, lanes); };
  if constexpr (around_cache) around(p, lanes, write);
  else write(p);
}

// The same for two integers that are narrower than their lanes: both are an integer of twice the size, which a lane holds.
template <bool around_cache = false, Rounds rounds = Rounds::kAll, class T, class Lanes, int U = Lanes::units>
  requires(sizeof(T) < 4)
inline void store_records(T* p, const Lanes& lanes, const Vec<int32_t, U>& first, const Vec<int32_t, U>& second) {
  using Pair = std::conditional_t<sizeof(T) == 2, int32_t, int16_t>;
  constexpr int bits = 8 * sizeof(T), low = (1 << bits) - 1;
  Vec<int32_t, U> pairs;
#pragma GCC unroll 16
  for (int k = 0; k < Vec<int32_t, U>::regs; ++k) pairs.r[k] = (first.r[k] & low) | (second.r[k] << bits);
  store_pairs<around_cache>(reinterpret_cast<Pair*>(p), lanes, pairs);
}

#if !defined(CPU_CAPABILITY_AVX512)
// Two floats as the word that holds both as bf16.
template <Rounds rounds, int U>
inline Vec<int32_t, U> pairs_of_bf16(const Vec<float, U>& first, const Vec<float, U>& second) {
  const auto round = [](Reg<float> x) ICPU_INLINE {
    if constexpr (rounds == Rounds::kNone) return bits_of_lanes(x);
    else if constexpr (rounds == Rounds::kPlain) return plain_halves(x);
    else return halves(x);
  };
  Vec<int32_t, U> pairs;
#pragma GCC unroll 8
  for (int u = 0; u < U; ++u) {
    constexpr int kSecond = 0xaa;
    const __m256i low = (__m256i)(round(first.r[u]) >> 16), high = (__m256i)round(second.r[u]);
    pairs.r[u] = (Reg<int32_t>)_mm256_blend_epi16(low, high, kSecond);
  }
  return pairs;
}
template <bool around_cache = false, Rounds rounds = Rounds::kAll, class Lanes, int U = Lanes::units>
inline void store_records(bf16* p, const Lanes& lanes, const Vec<float, U>& first, const Vec<float, U>& second) {
  store_pairs<around_cache>(reinterpret_cast<int32_t*>(p), lanes, pairs_of_bf16<rounds>(first, second));
}
template <bool around_cache = false, Rounds rounds = Rounds::kAll, class Lanes, int U = Lanes::units>
inline void store_records(
    bf16* p, const Lanes& lanes, const Vec<float, U>& a, const Vec<float, U>& b, const Vec<float, U>& c,
    const Vec<float, U>& d) {
  const auto first = pairs_of_bf16<rounds>(a, b), second = pairs_of_bf16<rounds>(c, d);
  store_records<around_cache>(reinterpret_cast<int32_t*>(p), lanes, first, second);
}
#endif

}  // namespace icpu
