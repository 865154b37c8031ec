// Vectors: `kLanes` values per unit, U units per vector.
//
// Preconditions: CPU_CAPABILITY_AVX512 (F, BW, DQ, VL) or CPU_CAPABILITY_AVX2 (with FMA, F16C).
//
// A unit has as many lanes as a register has floats, for every type: a unit of float or int32_t is one register, of
// double or int64_t two, so that values of different types line up. Narrow integers are held as int32_t (sign or zero
// extended), bf16, f16 and 8-bit floats as float, bool as Mask. U > 1 makes one vector out of several units: then each operation is
// U independent instructions, which hides their latency.
#pragma once

#include "scalar_math.h"

#include <immintrin.h>

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kLanes = 16;
using MaskReg = __mmask16;
#else
inline constexpr int kLanes = 8;
using MaskReg = __m256i;  // all ones or all zeros in each 32-bit lane
#endif
inline constexpr int kRegBytes = 4 * kLanes;

// Vectors that cover `points` points.
inline int64_t vectors_in(int64_t points) { return (points + kLanes - 1) / kLanes; }

template <class T>
struct RegOf {
  typedef T type __attribute__((vector_size(kRegBytes)));
};
template <class T>
using Reg = typename RegOf<T>::type;

template <class T, int U = 1>
struct Vec {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using value_type = T;
  static constexpr int units = U;
  static constexpr int per_unit = sizeof(T) / 4;  // registers
  static constexpr int regs = U * per_unit;
  static constexpr int size = U * kLanes;
  Reg<T> r[regs];
};

template <int U = 1>
struct Mask {
  using value_type = bool;
  static constexpr int units = U;
  static constexpr int size = U * kLanes;
  MaskReg m[U];
};

// The vector that holds values of element type T.
template <class T, int U = 1>
struct ValueOf {
  using type = Vec<std::conditional_t<(sizeof(T) < 4), int32_t, T>, U>;
};
template <int U> struct ValueOf<bf16, U> { using type = Vec<float, U>; };
template <int U> struct ValueOf<f16, U> { using type = Vec<float, U>; };
template <class Format, int U> struct ValueOf<f8<Format>, U> { using type = Vec<float, U>; };
template <int U> struct ValueOf<bool, U> { using type = Mask<U>; };
template <class T, int U = 1>
using value_t = typename ValueOf<T, U>::type;

// -- registers --------------------------------------------------------------------------------------------------------
template <class To, class From>
inline To bits_as(From a) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)a;
}

template <class T>
inline Reg<T> splat_reg(T a) {
  return a - Reg<T>{};  // the compiler's way to write a broadcast; a - 0 is exact, also for -0.0
}

#if defined(CPU_CAPABILITY_AVX512)
// The part of a unit's mask that belongs to its register number `half` of 64-bit lanes, or all of it for 32-bit lanes.
template <class T>
inline auto mask_part(MaskReg m, int half) {
  if constexpr (sizeof(T) == 4) {
    return m;
  } else {
    return static_cast<__mmask8>(m >> (8 * half));
  }
}
inline MaskReg mask_join(__mmask8 lo, __mmask8 hi) { return _mm512_kunpackb(hi, lo); }
inline MaskReg mask_of_bits(uint32_t bits) { return static_cast<MaskReg>(bits); }
inline uint32_t bits_of_mask(MaskReg m) { return m; }

inline __m512 blend(__mmask16 m, Reg<float> yes, Reg<float> no) { return _mm512_mask_blend_ps(m, no, yes); }
inline __m512d blend(__mmask8 m, Reg<double> yes, Reg<double> no) { return _mm512_mask_blend_pd(m, no, yes); }
inline Reg<int32_t> blend(__mmask16 m, Reg<int32_t> yes, Reg<int32_t> no) {
  return (Reg<int32_t>)_mm512_mask_blend_epi32(m, (__m512i)no, (__m512i)yes);
}
inline Reg<int64_t> blend(__mmask8 m, Reg<int64_t> yes, Reg<int64_t> no) {
  return (Reg<int64_t>)_mm512_mask_blend_epi64(m, (__m512i)no, (__m512i)yes);
}
#else
template <class T>
inline auto mask_part(MaskReg m, int half) {
  if constexpr (sizeof(T) == 4) {
    return bits_as<Reg<int32_t>>(m);
  } else {
    return bits_as<Reg<int64_t>>(
        _mm256_cvtepi32_epi64(half ? _mm256_extracti128_si256(m, 1) : _mm256_castsi256_si128(m)));
  }
}
inline MaskReg mask_join(Reg<int64_t> lo, Reg<int64_t> hi) {
  const __m256i packed = _mm256_packs_epi32((__m256i)lo, (__m256i)hi);           // 16-bit pairs, by 128-bit halves
  const __m256i ordered = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
  // Each 64-bit lane gave two equal 16-bit halves: they form the 32-bit lane.
  return ordered;
}
inline MaskReg mask_of_bits(uint32_t bits) {
  const Reg<int32_t> lane_bit = {1, 2, 4, 8, 16, 32, 64, 128};
  return (__m256i)((splat_reg(static_cast<int32_t>(bits)) & lane_bit) == lane_bit);
}
inline uint32_t bits_of_mask(MaskReg m) { return static_cast<uint32_t>(_mm256_movemask_ps((__m256)m)); }

inline Reg<float> blend(Reg<int32_t> m, Reg<float> yes, Reg<float> no) {
  return _mm256_blendv_ps(no, yes, (__m256)m);
}
inline Reg<double> blend(Reg<int64_t> m, Reg<double> yes, Reg<double> no) {
  return _mm256_blendv_pd(no, yes, (__m256d)m);
}
inline Reg<int32_t> blend(Reg<int32_t> m, Reg<int32_t> yes, Reg<int32_t> no) {
  return (Reg<int32_t>)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)m);
}
inline Reg<int64_t> blend(Reg<int64_t> m, Reg<int64_t> yes, Reg<int64_t> no) {
  return (Reg<int64_t>)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)m);
}
#endif

// -- applying a function register by register ------------------------------------------------------------------------
template <class F, class V>
inline V map(const F& f, const V& a) {
  V result;
#pragma GCC unroll 8
  for (int j = 0; j < V::regs; ++j) result.r[j] = f(a.r[j]);
  return result;
}

template <class F, class V>
inline V map(const F& f, const V& a, const V& b) {
  V result;
#pragma GCC unroll 8
  for (int j = 0; j < V::regs; ++j) result.r[j] = f(a.r[j], b.r[j]);
  return result;
}

template <class F, int U>
inline Mask<U> map(const F& f, const Mask<U>& a, const Mask<U>& b) {
  Mask<U> result;
#pragma GCC unroll 8
  for (int j = 0; j < U; ++j) result.m[j] = f(a.m[j], b.m[j]);
  return result;
}

template <class T, int U>
inline Vec<T, U> select(const Mask<U>& m, const Vec<T, U>& yes, const Vec<T, U>& no) {
  Vec<T, U> result;
#pragma GCC unroll 8
  for (int j = 0; j < Vec<T, U>::regs; ++j) {
    constexpr int n = Vec<T, U>::per_unit;
    result.r[j] = blend(mask_part<T>(m.m[j / n], j % n), yes.r[j], no.r[j]);
  }
  return result;
}

template <int U>
inline Mask<U> select(const Mask<U>& m, const Mask<U>& yes, const Mask<U>& no) {
  Mask<U> result;
  for (int j = 0; j < U; ++j) result.m[j] = (m.m[j] & yes.m[j]) | (~m.m[j] & no.m[j]);
  return result;
}

template <int U>
inline bool any(const Mask<U>& m) {
  uint32_t bits = 0;
  for (int j = 0; j < U; ++j) bits |= bits_of_mask(m.m[j]);
  return bits != 0;
}

// -- splat ------------------------------------------------------------------------------------------------------------
template <int U, class T>
inline auto splat(T a) {
  value_t<T, U> result;
  if constexpr (std::is_same_v<T, bool>) {
#pragma GCC unroll 8
    for (int j = 0; j < U; ++j) result.m[j] = mask_of_bits(a ? ~0u : 0u);
  } else {
    using V = typename value_t<T, U>::value_type;
#pragma GCC unroll 8
    for (int j = 0; j < value_t<T, U>::regs; ++j) result.r[j] = splat_reg<V>(static_cast<V>(a));
  }
  return result;
}

// base, base + step, base + 2 step, ... at the width of T.
template <int U, class T = int64_t>
inline Vec<T, U> iota(int64_t base, int64_t step) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr int n = kRegBytes / sizeof(T);
  Reg<Unsigned> lane;
  for (int j = 0; j < n; ++j) lane[j] = static_cast<Unsigned>(j);
  Vec<T, U> result;
#pragma GCC unroll 8
  for (int j = 0; j < Vec<T, U>::regs; ++j) {
    const auto position = lane + static_cast<Unsigned>(j * n);
    result.r[j] = (Reg<T>)(position * static_cast<Unsigned>(step) + static_cast<Unsigned>(base));
  }
  return result;
}

// What all lanes choose alike. Not `chosen ? yes : no`: of two such lines beside each other GCC 12 makes a shift of vectors
// that it then cannot compile.
template <class V, int U = V::units>
inline V select(bool chosen, const V& yes, const V& no) {
  if (__builtin_constant_p(chosen)) return chosen ? yes : no;
  return select(splat<U>(chosen), yes, no);
}

// -- lanes as an array ------------------------------------------------------------------------------------------------
template <class T, int U>
struct Spilled {
  alignas(kRegBytes) T lane[U * kLanes];
  T operator[](int64_t i) const { return lane[i]; }
};

template <class T, int U>
inline Spilled<T, U> spill(const Vec<T, U>& a) {
  Spilled<T, U> result;
  std::memcpy(result.lane, a.r, sizeof(a.r));
  return result;
}

template <int U>
inline Spilled<bool, U> spill(const Mask<U>& a) {
  Spilled<bool, U> result;
  for (int i = 0; i < U * kLanes; ++i) result.lane[i] = bits_of_mask(a.m[i / kLanes]) >> (i % kLanes) & 1;
  return result;
}

template <class T, int U>
inline value_t<T, U> unspill(const Spilled<T, U>& a) {
  value_t<T, U> result;
  if constexpr (std::is_same_v<T, bool>) {
    for (int j = 0; j < U; ++j) {
      uint32_t bits = 0;
      for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.lane[j * kLanes + i]) << i;
      result.m[j] = mask_of_bits(bits);
    }
  } else {
    std::memcpy(result.r, a.lane, sizeof(result.r));
  }
  return result;
}

// -- which lanes take part --------------------------------------------------------------------------------------------
// Code that works on vectors is written once, with `lanes` of one of these types: all lanes, or the first few.
template <int U = 1>
struct Full {
  static constexpr int units = U;
  static constexpr bool full = true;
  template <class T>
  auto vec(T a) const { return splat<U>(a); }
  Vec<int64_t, U> iota(int64_t base, int64_t step) const { return icpu::iota<U>(base, step); }
  Vec<int32_t, U> iota32(int64_t base, int64_t step) const { return icpu::iota<U, int32_t>(base, step); }
  bool active(int) const { return true; }
  Mask<U> mask() const { return splat<U>(true); }
};

// All lanes; in units 2 n and 2 n + 1 of a vector are the even and the odd elements of a part of memory. So only what knows
// no order of lanes takes them: loads and stores of bf16, and functions of the elements.
template <int U>
struct Alternating {
  static_assert(U % 2 == 0);
  static constexpr int units = U;
  static constexpr bool full = true;
  template <class T>
  auto vec(T a) const { return splat<U>(a); }
  bool active(int) const { return true; }
};

struct Tail {
  static constexpr int units = 1;
  static constexpr bool full = false;
  int count;  // 0 < count < kLanes
  MaskReg bits;
  explicit Tail(int64_t n) : count(static_cast<int>(n)), bits(mask_of_bits((1u << n) - 1)) {}
  template <class T>
  auto vec(T a) const { return splat<1>(a); }
  Vec<int64_t> iota(int64_t base, int64_t step) const { return icpu::iota<1>(base, step); }
  Vec<int32_t> iota32(int64_t base, int64_t step) const { return icpu::iota<1, int32_t>(base, step); }
  bool active(int lane) const { return lane < count; }
  Mask<1> mask() const { return {{bits}}; }
};

// A vector of T whose lane number i is f(i), for a scalar function; lanes beyond the end hold 0.
template <class T, class Lanes, class F>
inline value_t<T, Lanes::units> per_lane(const Lanes& lanes, const F& f) {
  constexpr int U = Lanes::units;
  using Held = typename value_t<T, U>::value_type;
  Spilled<Held, U> result;
  for (int i = 0; i < U * kLanes; ++i) result.lane[i] = lanes.active(i) ? static_cast<Held>(f(i)) : Held(0);
  return unspill(result);
}

// f applied lane by lane to vectors that hold values of type T.
template <class T, class Result = T, class Lanes, class F, class... V>
inline value_t<Result, Lanes::units> lanewise(const Lanes& lanes, const F& f, const V&... args) {
  return [&](const auto&... spilled) {
    return per_lane<Result>(lanes, [&](int i) { return f(static_cast<T>(spilled[i])...); });
  }(spill(args)...);
}

}  // namespace icpu
