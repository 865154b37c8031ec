// Loads and stores whose lanes have addresses of their own.
//
// Preconditions: offsets count elements. Lanes that do not take part are neither read nor written.
#pragma once

#include "vec_memory.h"

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
inline Reg<int32_t> gather_unit(const int32_t* p, const Vec<int64_t>& at, __mmask16 m) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i lo = _mm512_mask_i64gather_epi32(zero, static_cast<__mmask8>(m), (__m512i)at.r[0], p, 4);
  const __m256i hi = _mm512_mask_i64gather_epi32(zero, static_cast<__mmask8>(m >> 8), (__m512i)at.r[1], p, 4);
  return join(lo, hi);
}
inline Reg<int64_t> gather_half(const int64_t* p, Reg<int64_t> at, __mmask8 m) {
  return (Reg<int64_t>)_mm512_mask_i64gather_epi64(_mm512_setzero_si512(), m, (__m512i)at, p, 8);
}
#else
inline Reg<int32_t> gather_unit(const int32_t* p, const Vec<int64_t>& at, MaskReg m) {
  const __m128i zero = _mm_setzero_si128();
  const __m128i lo = _mm256_mask_i64gather_epi32(zero, p, (__m256i)at.r[0], _mm256_castsi256_si128(m), 4);
  const __m128i hi = _mm256_mask_i64gather_epi32(zero, p, (__m256i)at.r[1], _mm256_extracti128_si256(m, 1), 4);
  return join(lo, hi);
}
inline Reg<int64_t> gather_half(const int64_t* p, Reg<int64_t> at, Reg<int64_t> m) {
  return (Reg<int64_t>)_mm256_mask_i64gather_epi64(
      _mm256_setzero_si256(), reinterpret_cast<const long long*>(p), (__m256i)at, (__m256i)m, 8);
}
#endif

template <class T>
inline value_t<T> gather_lanes(const T* p, const Vec<int64_t>& at, MaskReg m) {
  if constexpr (sizeof(T) == 4) {
    return {{bits_as<Reg<T>>(gather_unit(reinterpret_cast<const int32_t*>(p), at, m))}};
  } else if constexpr (sizeof(T) == 8) {
    const auto* q = reinterpret_cast<const int64_t*>(p);
    return {
        {bits_as<Reg<T>>(gather_half(q, at.r[0], mask_part<int64_t>(m, 0))),
         bits_as<Reg<T>>(gather_half(q, at.r[1], mask_part<int64_t>(m, 1)))}};
  } else {
    const auto offset = spill(at);
    T lane[kLanes];
    std::memset(static_cast<void*>(lane), 0, sizeof(lane));
    for (uint32_t bits = bits_of_mask(m); bits; bits &= bits - 1) {
      const int i = __builtin_ctz(bits);
      lane[i] = p[offset[i]];
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
    store_unit(lane, unit_of(v, u));
    for (uint32_t bits = bits_of_mask(wanted.m[u]); bits; bits &= bits - 1) {
      const int i = __builtin_ctz(bits);
      step(p + offset[u * kLanes + i], lane[i]);
    }
  }
}

#if defined(CPU_CAPABILITY_AVX512)
inline void scatter_unit(int32_t* p, const Vec<int64_t>& at, Reg<int32_t> v, __mmask16 m) {
  const __m256i high = _mm512_extracti64x4_epi64((__m512i)v, 1);
  _mm512_mask_i64scatter_epi32(
      p, static_cast<__mmask8>(m), (__m512i)at.r[0], _mm512_castsi512_si256((__m512i)v), 4);
  _mm512_mask_i64scatter_epi32(p, static_cast<__mmask8>(m >> 8), (__m512i)at.r[1], high, 4);
}
inline void scatter_half(int64_t* p, Reg<int64_t> at, Reg<int64_t> v, __mmask8 m) {
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
  each_lane<T, U>(p, at, v, wanted, [](T* place, const T& value) { *place = value; });
}
template <class T, class Lanes, int U = Lanes::units>
inline void scatter(T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes) {
  scatter(p, at, v, lanes, lanes.mask());
}

// Lanes in order, so that lanes with one address are added up as one after another.
template <class T, class Lanes, int U = Lanes::units>
inline void scatter_add(
    T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes, const Mask<U>& mask) {
  const auto add = [](T* place, const T& value) { store_add(place, load(&value)); };
  each_lane<T, U>(p, at, v, mask & lanes.mask(), add);
}
template <class T, class Lanes, int U = Lanes::units>
inline void scatter_add(T* p, const Vec<int64_t, U>& at, const value_t<T, U>& v, const Lanes& lanes) {
  scatter_add(p, at, v, lanes, lanes.mask());
}

}  // namespace icpu
