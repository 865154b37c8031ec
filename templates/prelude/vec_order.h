// Lanes that read neighbours in an order of their own, which is the same in every vector; masks that are the same.
//
// Preconditions: vectors start at multiples of kLanes points. Elements that no lane wants are not read.
#pragma once

#include "vec_gather.h"

namespace icpu {

// The mask with these bits in each unit.
template <uint32_t Bits, class Lanes>
inline Mask<Lanes::units> lane_mask(const Lanes&) {
  Mask<Lanes::units> result;
  for (int u = 0; u < Lanes::units; ++u) result.m[u] = mask_of_bits(Bits);
  return result;
}

// Whether lanes are words: not truth values.
template <class V>
inline constexpr bool is_words = false;
template <class T, int U>
inline constexpr bool is_words<Vec<T, U>> = sizeof(T) == 4;

// Whether even and odd elements have a unit of their own each.
template <class Lanes>
inline constexpr bool kAlternates = false;
template <int U>
inline constexpr bool kAlternates<Alternating<U>> = true;

// `yes` in the lanes with these bits in each unit, `no` in the others. Alternating units know bits that are the same for all
// pairs.
template <uint32_t Bits, class V, class Lanes>
inline V pick_lanes(const V& yes, const V& no, const Lanes& lanes) {
  if constexpr (kAlternates<Lanes>) {
    V result;
#pragma GCC unroll 8
    for (int u = 0; u < Lanes::units; ++u) put_unit(result, u, unit_of(Bits >> (u % 2) & 1 ? yes : no, u));
    return result;
#if !defined(CPU_CAPABILITY_AVX512)
  } else if constexpr (is_words<V>) {
    using Words = decltype(yes.r[0] + yes.r[0]);
    return map([](Words y, Words n) { return (Words)_mm256_blend_epi32((__m256i)n, (__m256i)y, Bits); }, yes, no);
#endif
  } else {
    return select(lane_mask<Bits>(lanes), yes, no);
  }
}

// Lanes 2 n and 2 n + 1 have what the other one had.
template <class V, class Lanes>
inline V swap_pairs(const V& v, const Lanes&) {
  V result;
#pragma GCC unroll 8
  for (int u = 0; u < Lanes::units; ++u) {
    if constexpr (kAlternates<Lanes>) put_unit(result, u, unit_of(v, u ^ 1));
    else put_unit(result, u, swap_lanes<1>(unit_of(v, u)));
  }
  return result;
}

// The neighbour that each lane reads: 0 <= place < kLanes, or -1 for a lane that reads nothing.
template <int... Places>
struct Order {
  static_assert(sizeof...(Places) == kLanes && ((Places >= -1 && Places < kLanes) && ...));
  static constexpr int place[kLanes] = {Places...};
  alignas(64) static constexpr int32_t from[kLanes] = {(Places < 0 ? 0 : Places)...};
  static constexpr uint32_t readers() {
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= (place[i] >= 0 ? 1u : 0u) << i;
    return bits;
  }
  // The neighbours that the first `count` lanes read.
  static constexpr uint32_t wanted(int count) {
    uint32_t bits = 0;
    for (int i = 0; i < count; ++i) bits |= place[i] >= 0 ? 1u << place[i] : 0u;
    return bits;
  }
  // The lanes that read each neighbour, as bits.
  struct Readers {
    alignas(64) int32_t lanes[kLanes];
    constexpr Readers() : lanes() {
      for (int i = 0; i < kLanes; ++i) {
        if (place[i] >= 0) lanes[place[i]] |= 1 << i;
      }
    }
  };
  static constexpr Readers readers_of{};
};

// The neighbours that these lanes read.
template <class From>
inline MaskReg neighbours_of(uint32_t lanes) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_test_epi32_mask(_mm512_load_si512(From::readers_of.lanes), _mm512_set1_epi32(static_cast<int>(lanes)));
#else
  const auto* readers = reinterpret_cast<const __m256i*>(From::readers_of.lanes);
  const __m256i among = _mm256_and_si256(_mm256_load_si256(readers), _mm256_set1_epi32(static_cast<int>(lanes)));
  return _mm256_cmpgt_epi32(among, _mm256_setzero_si256());
#endif
}

// Lane i of the result is lane from[i] of the unit.
template <class From, class V>
inline V in_order(const V& unit) {
  if constexpr (std::is_same_v<V, Mask<>>) {
    const Vec<int32_t> ones{{blend(mask_part<int32_t>(unit.m[0], 0), splat_reg(1), Reg<int32_t>{})}};
    return in_order<From>(ones) != splat<1>(0);
  } else if constexpr (V::per_unit == 1) {
#if defined(CPU_CAPABILITY_AVX512)
    const __m512i places = _mm512_load_si512(From::from);
    return {{bits_as<decltype(unit.r[0] + unit.r[0])>(_mm512_permutexvar_epi32(places, (__m512i)unit.r[0]))}};
#else
    const __m256i places = _mm256_load_si256(reinterpret_cast<const __m256i*>(From::from));
    return {{bits_as<decltype(unit.r[0] + unit.r[0])>(_mm256_permutevar8x32_epi32((__m256i)unit.r[0], places))}};
#endif
  } else {
    V result;
#if defined(CPU_CAPABILITY_AVX512)
    for (int half = 0; half < 2; ++half) {
      const auto* first = reinterpret_cast<const __m256i*>(From::from + 8 * half);
      const __m512i places = _mm512_cvtepi32_epi64(_mm256_load_si256(first));
      const __m512i picked = _mm512_permutex2var_epi64((__m512i)unit.r[0], places, (__m512i)unit.r[1]);
      result.r[half] = bits_as<decltype(unit.r[0] + unit.r[0])>(picked);
    }
#else
    const auto lane = spill(unit);
    for (int i = 0; i < kLanes; ++i) result.r[i / 4][i % 4] = lane[From::from[i]];
#endif
    return result;
  }
}

// p: the first neighbour of the first unit; step: elements from one unit to the next. Lanes that read nothing hold 0.
template <class From, class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_ordered(const T* p, int64_t step, const Lanes& lanes) {
  value_t<T, U> result;
#pragma GCC unroll 8
  for (int u = 0; u < U; ++u) {
    value_t<T> unit;
    if constexpr (Lanes::full) {
      constexpr uint32_t bits = From::wanted(kLanes);
      if constexpr (bits == (1u << kLanes) - 1) {
        load_unit(p + u * step, unit);
      } else {
        load_unit(p + u * step, mask_of_bits(bits), unit);
      }
    } else {
      load_unit(p, mask_of_bits(From::wanted(lanes.count)), unit);
    }
    put_unit(result, u, in_order<From>(unit));
  }
  return result;
}
template <class From, class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_ordered(const T* p, int64_t step, const Lanes& lanes, const value_t<T, U>& fill) {
  return select(lane_mask<From::readers()>(lanes), load_ordered<From>(p, step, lanes), fill);
}
// Only lanes in `mask` read their neighbours; the others hold `fill`.
template <class From, class T, class Lanes, int U = Lanes::units>
inline value_t<T, U> load_ordered(
    const T* p, int64_t step, const Lanes& lanes, const Mask<U>& mask, const value_t<T, U>& fill) {
  const auto wanted = mask & lanes.mask();
  value_t<T, U> result;
#pragma GCC unroll 8
  for (int u = 0; u < U; ++u) {
    value_t<T> unit;
    load_unit(p + u * step, neighbours_of<From>(bits_of_mask(wanted.m[u])), unit);
    put_unit(result, u, in_order<From>(unit));
  }
  return select(wanted, result, fill);
}

}  // namespace icpu
