// Loads of whole records: parts of two to four elements that lie side by side, each of which becomes a vector.
//
// Preconditions: no alignment is needed. Every part of the lanes that take part may be read.
#pragma once

#include "vec_strided.h"

namespace icpu {

// part[n]: element n of each lane's record.
template <class V, int Size>
struct Parts {
  V part[Size];
};

#if !defined(CPU_CAPABILITY_AVX512)
// What 16 bytes from `p` and from `q` are: the two halves of a register.
inline __m256i two_halves(const void* p, const void* q) {
  const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return _mm256_inserti128_si256(low, _mm_loadu_si128(static_cast<const __m128i*>(q)), 1);
}

// The words of 8 records, by part.
inline ICPU_INLINE void words_by_part(const int32_t* p, __m256i (&parts)[2]) {
  const __m256 a = _mm256_castsi256_ps(two_halves(p, p + 8)), b = _mm256_castsi256_ps(two_halves(p + 4, p + 12));
  parts[0] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
  parts[1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
}
inline ICPU_INLINE void words_by_part(const int32_t* p, __m256i (&parts)[4]) {
  const auto records = [&](int k) ICPU_INLINE { return two_halves(p + 4 * k, p + 4 * k + 16); };
  const __m256i low = _mm256_unpacklo_epi32(records(0), records(1)), high = _mm256_unpackhi_epi32(records(0), records(1));
  const __m256i low2 = _mm256_unpacklo_epi32(records(2), records(3)), high2 = _mm256_unpackhi_epi32(records(2), records(3));
  parts[0] = _mm256_unpacklo_epi64(low, low2);
  parts[1] = _mm256_unpackhi_epi64(low, low2);
  parts[2] = _mm256_unpacklo_epi64(high, high2);
  parts[3] = _mm256_unpackhi_epi64(high, high2);
}

// Part n of 8 records of three, in three registers of 8 elements: that of a lane is at a place that no other lane's has,
// since 3 has no divisor in common with 8.
template <int n>
struct PartOfThree {
  static constexpr int at(int lane) { return 3 * lane + n; }
  static constexpr int in_register(int number) {
    int places = 0;
    for (int lane = 0; lane < 8; ++lane) places |= at(lane) / 8 == number ? 1 << at(lane) % 8 : 0;
    return places;
  }
  alignas(32) int32_t word[8] = {};
  alignas(16) int8_t byte_of_half[16] = {};
  constexpr PartOfThree() {
    for (int lane = 0; lane < 8; ++lane) word[lane] = at(lane) % 8;
    for (int i = 0; i < 16; ++i) byte_of_half[i] = static_cast<int8_t>(2 * (at(i / 2) % 8) + i % 2);
  }
};
template <int n>
inline ICPU_INLINE __m256i part_of_three(const int32_t* p) {
  static constexpr PartOfThree<n> from;
  const auto words = [&](int k) ICPU_INLINE { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8 * k)); };
  const __m256i found = _mm256_blend_epi32(
      _mm256_blend_epi32(words(0), words(1), from.in_register(1)), words(2), from.in_register(2));
  return _mm256_permutevar8x32_epi32(found, _mm256_load_si256(reinterpret_cast<const __m256i*>(from.word)));
}
template <int n>
inline ICPU_INLINE __m256i part_of_three(const uint16_t* p) {
  static constexpr PartOfThree<n> from;
  const auto halves = [&](int k) ICPU_INLINE { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * k)); };
  const __m128i found = _mm_blend_epi16(
      _mm_blend_epi16(halves(0), halves(1), from.in_register(1)), halves(2), from.in_register(2));
  const __m128i* const bytes = reinterpret_cast<const __m128i*>(from.byte_of_half);
  return _mm256_cvtepu16_epi32(_mm_shuffle_epi8(found, _mm_load_si128(bytes)));
}
inline ICPU_INLINE void words_by_part(const int32_t* p, __m256i (&parts)[3]) {
  parts[0] = part_of_three<0>(p);
  parts[1] = part_of_three<1>(p);
  parts[2] = part_of_three<2>(p);
}

// The value of the low half of each word, and of the high half.
template <class T>
inline value_t<T> of_low_halves(__m256i words) {
  if constexpr (std::is_same_v<T, bf16>) {
    return {{(Reg<float>)_mm256_slli_epi32(words, 16)}};
  } else if constexpr (std::is_same_v<T, f16>) {
    const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    return {{of_f16_bits(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)))}};
  } else {
    return {{(Reg<int32_t>)_mm256_srai_epi32(_mm256_slli_epi32(words, 16), 16)}};
  }
}
template <class T>
inline value_t<T> of_high_halves(__m256i words) {
  if constexpr (std::is_same_v<T, bf16>) {
    return {{(Reg<float>)_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u)))}};
  } else if constexpr (std::is_same_v<T, f16>) {
    return of_low_halves<f16>(_mm256_srli_epi32(words, 16));
  } else {
    return {{(Reg<int32_t>)_mm256_srai_epi32(words, 16)}};
  }
}

template <int Size, class T>
inline ICPU_INLINE void load_unit_of_records(const T* p, value_t<T> (&parts)[Size]) {
  if constexpr (sizeof(T) == 4) {
    __m256i words[Size];
    words_by_part(reinterpret_cast<const int32_t*>(p), words);
    for (int n = 0; n < Size; ++n) parts[n] = {{bits_as<Reg<T>>(words[n])}};
  } else if constexpr (Size == 3) {
    const auto* halves = reinterpret_cast<const uint16_t*>(p);
    parts[0] = of_low_halves<T>(part_of_three<0>(halves));
    parts[1] = of_low_halves<T>(part_of_three<1>(halves));
    parts[2] = of_low_halves<T>(part_of_three<2>(halves));
  } else {
    __m256i pairs[Size / 2];
    if constexpr (Size == 2) pairs[0] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    else words_by_part(reinterpret_cast<const int32_t*>(p), pairs);
    for (int k = 0; k < Size / 2; ++k) {
      parts[2 * k] = of_low_halves<T>(pairs[k]);
      parts[2 * k + 1] = of_high_halves<T>(pairs[k]);
    }
  }
}
#endif

// part n, lane i: p[i * Size + n].
template <int Size, class T, class Lanes, int U = Lanes::units>
inline ICPU_INLINE Parts<value_t<T, U>, Size> load_records(const T* p, const Lanes& lanes) {
  Parts<value_t<T, U>, Size> result;
#if !defined(CPU_CAPABILITY_AVX512)
  if constexpr (Lanes::full && (sizeof(T) == 4 || sizeof(T) == 2)) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      value_t<T> parts[Size];
      load_unit_of_records<Size>(p + u * kLanes * Size, parts);
      for (int n = 0; n < Size; ++n) put_unit(result.part[n], u, parts[n]);
    }
    return result;
  }
#endif
  for (int n = 0; n < Size; ++n) result.part[n] = load_strided<Size>(p + n, lanes);
  return result;
}

}  // namespace icpu
