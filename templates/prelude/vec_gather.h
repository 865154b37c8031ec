// Loads and stores whose lanes have addresses of their own.
//
// Preconditions: offsets count elements. Lanes that do not take part are neither read nor written. Elements need no
// alignment (two bytes that move as one may start anywhere), except where they are added up.
#pragma once

#include "vec_memory.h"

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
inline Reg<int32_t> gather_wanted(const int32_t* p, const Vec<int64_t>& at, __mmask16 m) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i lo = _mm512_mask_i64gather_epi32(zero, static_cast<__mmask8>(m), (__m512i)at.r[0], p, 4);
  const __m256i hi = _mm512_mask_i64gather_epi32(zero, static_cast<__mmask8>(m >> 8), (__m512i)at.r[1], p, 4);
  return join(lo, hi);
}
inline Reg<int64_t> gather_wanted(const int64_t* p, Reg<int64_t> at, __mmask8 m) {
  return (Reg<int64_t>)_mm512_mask_i64gather_epi64(_mm512_setzero_si512(), m, (__m512i)at, p, 8);
}
#else
inline Reg<int32_t> gather_wanted(const int32_t* p, const Vec<int64_t>& at, MaskReg m) {
  const __m128i zero = _mm_setzero_si128();
  const __m128i lo = _mm256_mask_i64gather_epi32(zero, p, (__m256i)at.r[0], _mm256_castsi256_si128(m), 4);
  const __m128i hi = _mm256_mask_i64gather_epi32(zero, p, (__m256i)at.r[1], _mm256_extracti128_si256(m, 1), 4);
  return join(lo, hi);
}
inline Reg<int64_t> gather_wanted(const int64_t* p, Reg<int64_t> at, Reg<int64_t> m) {
  return (Reg<int64_t>)_mm256_mask_i64gather_epi64(
      _mm256_setzero_si256(), reinterpret_cast<const long long*>(p), (__m256i)at, (__m256i)m, 8);
}
#endif

// Where instructions that gather and scatter are slower than a load or store for each lane (ICPU_SLOW_GATHERS), as on
// Zen 4. They stay for units of which some lanes do not take part.
#if defined(ICPU_SLOW_GATHERS)
template <class Word>
inline ICPU_INLINE __m128i two_words(const Word* p, __m128i at) {
  Word word[2];
  std::memcpy(&word[0], p + _mm_cvtsi128_si64(at), sizeof(Word));
  std::memcpy(&word[1], p + _mm_extract_epi64(at, 1), sizeof(Word));
  if constexpr (sizeof(Word) == 4) {
    return _mm_insert_epi32(_mm_cvtsi32_si128(word[0]), word[1], 1);
  } else {
    return _mm_insert_epi64(_mm_cvtsi64_si128(word[0]), word[1], 1);
  }
}
inline ICPU_INLINE __m128i four_words(const int32_t* p, __m256i at) {
  return _mm_unpacklo_epi64(two_words(p, _mm256_castsi256_si128(at)), two_words(p, _mm256_extracti128_si256(at, 1)));
}
inline ICPU_INLINE __m256i four_words(const int64_t* p, __m256i at) {
  return _mm256_set_m128i(two_words(p, _mm256_extracti128_si256(at, 1)), two_words(p, _mm256_castsi256_si128(at)));
}
#if defined(CPU_CAPABILITY_AVX512)
inline Reg<int32_t> gather_all(const int32_t* p, const Vec<int64_t>& at) {
  const auto eight = [&](__m512i half) ICPU_INLINE {
    return _mm256_set_m128i(four_words(p, _mm512_extracti64x4_epi64(half, 1)), four_words(p, _mm512_castsi512_si256(half)));
  };
  return join(eight((__m512i)at.r[0]), eight((__m512i)at.r[1]));
}
inline Reg<int64_t> gather_all(const int64_t* p, Reg<int64_t> at) {
  const auto places = (__m512i)at;
  const __m256i lo = four_words(p, _mm512_castsi512_si256(places)), hi = four_words(p, _mm512_extracti64x4_epi64(places, 1));
  return (Reg<int64_t>)_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}
#else
inline Reg<int32_t> gather_all(const int32_t* p, const Vec<int64_t>& at) {
  return join(four_words(p, (__m256i)at.r[0]), four_words(p, (__m256i)at.r[1]));
}
inline Reg<int64_t> gather_all(const int64_t* p, Reg<int64_t> at) { return (Reg<int64_t>)four_words(p, (__m256i)at); }
#endif
#endif

// One register of words. wants_all: whether no lane is left out.
template <class Word, class Places, class M>
inline auto gather_words(const Word* p, const Places& at, const M& m, [[maybe_unused]] bool wants_all) {
#if defined(ICPU_SLOW_GATHERS)
  if (wants_all) return gather_all(p, at);
#endif
  return gather_wanted(p, at, m);
}

// lane[i] = p[offset[i]] for all lanes of a type of two bytes: put together in one register, which what reads the lanes
// can have without waiting for memory.
template <class T, class Offsets>
inline ICPU_INLINE void copy_halves(const T* p, const Offsets& offset, T* lane) {
  const auto eight = [&](int first) ICPU_INLINE {
    __m128i halves = _mm_setzero_si128();
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      const auto half = [&](int k) ICPU_INLINE {
        uint16_t bits;
        std::memcpy(&bits, static_cast<const void*>(p + offset[first + k]), sizeof(bits));
        return int(bits);
      };
      ((halves = _mm_insert_epi16(halves, half(n), n)), ...);
    }(std::make_integer_sequence<int, 8>{});
    return halves;
  };
#if defined(CPU_CAPABILITY_AVX512)
  const __m256i all = _mm256_set_m128i(eight(8), eight(0));
#else
  const __m128i all = eight(0);
#endif
  std::memcpy(static_cast<void*>(lane), &all, sizeof(all));
}

template <class T>
inline value_t<T> gather_lanes(const T* p, const Vec<int64_t>& at, MaskReg m) {
  [[maybe_unused]] const bool all = bits_of_mask(m) == (uint64_t{1} << kLanes) - 1;
  if constexpr (sizeof(T) == 4) {
    return {{bits_as<Reg<T>>(gather_words(reinterpret_cast<const int32_t*>(p), at, m, all))}};
  } else if constexpr (sizeof(T) == 8) {
    const auto* q = reinterpret_cast<const int64_t*>(p);
    return {
        {bits_as<Reg<T>>(gather_words(q, at.r[0], mask_part<int64_t>(m, 0), all)),
         bits_as<Reg<T>>(gather_words(q, at.r[1], mask_part<int64_t>(m, 1), all))}};
  } else {
    const auto offset = spill(at);
    T lane[kLanes];
    if constexpr (sizeof(T) == 2) {
      if (all) {
        copy_halves(p, offset, lane);
        value_t<T> result;
        load_unit(lane, result);
        return result;
      }
    }
    std::memset(static_cast<void*>(lane), 0, sizeof(lane));
    for (uint32_t bits = bits_of_mask(m); bits; bits &= bits - 1) {
      const int i = __builtin_ctz(bits);
      std::memcpy(static_cast<void*>(lane + i), p + offset[i], sizeof(T));
    }
    value_t<T> result;
    load_unit(lane, result);
    return result;
  }
}

template <class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> gather_masked(const T* p, const Vec<int64_t, U>& at, const Mask<U>& mask) {
  value_t<T, U> result;
#pragma GCC unroll 8
  for (int u = 0; u < U; ++u) put_unit(result, u, gather_lanes(p, unit_of(at, u), mask.m[u]));
  return result;
}

template <class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> gather(const T* p, const Vec<int64_t, U>& at, const Lanes& lanes) {
  return gather_masked<T, Lanes>(p, at, lanes.mask());
}
// The same for offsets that mostly are neighbours: those are loaded at once.
template <class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> gather_runs(const T* p, const Vec<int64_t, U>& at, const Lanes& lanes) {
  const int64_t first = at.r[0][0];
  if (!any((at != lanes.iota(first, 1)) & lanes.mask())) return load(p + first, lanes);
  return gather(p, at, lanes);
}
// The same for offsets that grow by 1 at most from a lane to the next one: at(lane) is one of them, offsets() all. So they are
// neighbours everywhere if the last one is as far from the first one as it can be, which takes two numbers to see.
template <class T, class At, class Offsets, class Lanes, int U = Lanes::units>
inline ICPU_INLINE value_t<T, U> load_bent(const T* p, const At& at, const Offsets& offsets, const Lanes& lanes) {
  int last = U * kLanes - 1;
  if constexpr (!Lanes::full) last = lanes.count - 1;
  const int64_t first = at(0);
  return at(last) - first == last ? load(p + first, lanes) : gather(p, offsets(), lanes);
}
template <class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> gather(
    const T* p, const Vec<int64_t, U>& at, const Lanes& lanes, const Mask<U>& mask, const value_t<T, U>& fill) {
  const auto wanted = mask & lanes.mask();
  return select(wanted, gather_masked<T, Lanes>(p, at, wanted), fill);
}

// step(place, value) for one lane after the other.
template <class T, int U, class Step>
inline void each_lane(
    T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Mask<U>& wanted, const Step& step) {
  const auto offset = spill(at);
#pragma GCC unroll 8
  for (int u = 0; u < U; ++u) {
    T lane[kLanes];
    if constexpr (sizeof(T) >= 4) {
      std::memcpy(lane, unit_of(v, u).r, sizeof(lane));  // lanes that are known come from registers, not from memory
    } else {
      store_unit(lane, unit_of(v, u));
    }
    for (uint32_t bits = bits_of_mask(wanted.m[u]); bits; bits &= bits - 1) {
      const int i = __builtin_ctz(bits);
      step(p + offset[u * kLanes + i], lane[i]);
    }
  }
}

#if defined(CPU_CAPABILITY_AVX512)
#if defined(ICPU_SLOW_GATHERS)
template <class Word>
inline ICPU_INLINE void put_word(Word* p, int64_t at, Word value) {
  std::memcpy(p + at, &value, sizeof(Word));
}
inline ICPU_INLINE void put_quarter(int32_t* p, __m256i at, __m128i v) {
  const __m128i first = _mm256_castsi256_si128(at), second = _mm256_extracti128_si256(at, 1);
  put_word(p, _mm_cvtsi128_si64(first), _mm_cvtsi128_si32(v));
  put_word(p, _mm_extract_epi64(first, 1), _mm_extract_epi32(v, 1));
  put_word(p, _mm_cvtsi128_si64(second), _mm_extract_epi32(v, 2));
  put_word(p, _mm_extract_epi64(second, 1), _mm_extract_epi32(v, 3));
}
inline ICPU_INLINE void put_quarter(int64_t* p, __m128i at, __m128i v) {
  put_word<int64_t>(p, _mm_cvtsi128_si64(at), _mm_cvtsi128_si64(v));
  put_word<int64_t>(p, _mm_extract_epi64(at, 1), _mm_extract_epi64(v, 1));
}
inline void scatter_all(int32_t* p, const Vec<int64_t>& at, Reg<int32_t> v) {
  const auto low = (__m512i)at.r[0], high = (__m512i)at.r[1], value = (__m512i)v;
  put_quarter(p, _mm512_castsi512_si256(low), _mm512_castsi512_si128(value));
  put_quarter(p, _mm512_extracti64x4_epi64(low, 1), _mm512_extracti32x4_epi32(value, 1));
  put_quarter(p, _mm512_castsi512_si256(high), _mm512_extracti32x4_epi32(value, 2));
  put_quarter(p, _mm512_extracti64x4_epi64(high, 1), _mm512_extracti32x4_epi32(value, 3));
}
inline void scatter_all(int64_t* p, Reg<int64_t> at, Reg<int64_t> v) {
  const auto place = (__m512i)at, value = (__m512i)v;
  put_quarter(p, _mm512_castsi512_si128(place), _mm512_castsi512_si128(value));
  put_quarter(p, _mm512_extracti64x2_epi64(place, 1), _mm512_extracti64x2_epi64(value, 1));
  put_quarter(p, _mm512_extracti64x2_epi64(place, 2), _mm512_extracti64x2_epi64(value, 2));
  put_quarter(p, _mm512_extracti64x2_epi64(place, 3), _mm512_extracti64x2_epi64(value, 3));
}
#endif

inline void scatter_unit(int32_t* p, const Vec<int64_t>& at, Reg<int32_t> v, __mmask16 m) {
#if defined(ICPU_SLOW_GATHERS)
  if (m == 0xffff) return scatter_all(p, at, v);
#endif
  const __m256i high = _mm512_extracti64x4_epi64((__m512i)v, 1);
  _mm512_mask_i64scatter_epi32(
      p, static_cast<__mmask8>(m), (__m512i)at.r[0], _mm512_castsi512_si256((__m512i)v), 4);
  _mm512_mask_i64scatter_epi32(p, static_cast<__mmask8>(m >> 8), (__m512i)at.r[1], high, 4);
}
inline void scatter_half(int64_t* p, Reg<int64_t> at, Reg<int64_t> v, __mmask8 m) {
#if defined(ICPU_SLOW_GATHERS)
  if (m == 0xff) return scatter_all(p, at, v);
#endif
  _mm512_mask_i64scatter_epi64(p, m, (__m512i)at, (__m512i)v, 8);
}
#endif

// Lanes in order, as the instructions of AVX-512 store them: where two lanes have one address, the last one stays.
template <class T, class Lanes, int U = Lanes::units>
inline void scatter(T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes, const Mask<U>& mask) {
  const auto wanted = mask & lanes.mask();
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (sizeof(T) == 4) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      scatter_unit(reinterpret_cast<int32_t*>(p), unit_of(at, u), bits_as<Reg<int32_t>>(v.r[u]), wanted.m[u]);
    }
    return;
  }
  if constexpr (sizeof(T) == 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 2 * U; ++j) {
      const auto m = static_cast<__mmask8>(wanted.m[j / 2] >> (j % 2 * 8));
      scatter_half(reinterpret_cast<int64_t*>(p), at.r[j], bits_as<Reg<int64_t>>(v.r[j]), m);
    }
    return;
  }
#endif
  each_lane<T, U>(p, at, v, wanted, [](T* place, const T& value) {
    std::memcpy(static_cast<void*>(place), &value, sizeof(T));
  });
}
template <class T, class Lanes, int U = Lanes::units>
inline void scatter(T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes) {
  scatter(p, at, v, lanes, lanes.mask());
}

// Lanes in order, so that lanes with one address are added up as one after another.
template <class T, int U>
inline void add_lanes(T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Mask<U>& wanted) {
  each_lane<T, U>(p, at, v, wanted, [](T* place, const T& value) { store_add(place, load(&value)); });
}
// Out of line: beside the code for all lanes, it would make that go through memory, too.
template <class T, int U>
__attribute__((noinline)) void add_some_lanes(
    T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Mask<U>& wanted) {
  add_lanes<T, U>(p, at, v, wanted);
}
template <class T, class Lanes, int U = Lanes::units>
inline void scatter_add(
    T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes, const Mask<U>& mask) {
  if constexpr (Lanes::full) {  // most masks are checks of indices, and leave out none
    if (!any(!mask)) return add_lanes<T, U>(p, at, v, lanes.mask());
  }
  add_some_lanes<T, U>(p, at, v, mask & lanes.mask());
}
template <class T, class Lanes, int U = Lanes::units>
inline void scatter_add(T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes) {
  add_lanes<T, U>(p, at, v, lanes.mask());
}

}  // namespace icpu
