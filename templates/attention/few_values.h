// How the rows of a few queries are multiplied by keys and by values, where these lie: as floats, or, where the CPU adds
// products of pairs of bf16, as they are.
//
// Preconditions: those of decode.h. Members of Floats and of Dots:
//
//   Operand                   2 * kLanes neighbouring values of a row
//   Weight                    what the weights of keys are rounded to
//   kTogether                 keys whose values are weighed at once
//   load(from), load(from, count), negated(operand)
//   keep(to, operand), kept(from)   in the place of two vectors of floats
//   dot(sum, a, b)            adds products of neighbours, in any order
//   together(rows)            the values of kTogether keys, as they are weighed
//   weigh(weights, together, sum)   adds them by as many weights, in an order of its own
//   put_in_order(sum)         two vectors of such sums
#pragma once

#include "problem.h"

namespace icpu::attention {

// Two vectors of neighbouring values, in whatever order is fastest to get: sums over all of them do not mind.
template <class T>
struct Pair {
  static ICPU_INLINE void load(const T* from, Reg<float> (&out)[2]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      value_t<T> value;
      load_unit(from + i * kLanes, value);
      out[i] = value.r[0];
    }
  }

  // The first `count` values, and zeros.
  static ICPU_INLINE void load(const T* from, int64_t count, Reg<float> (&out)[2]) {
#if defined(CPU_CAPABILITY_AVX512)
    if constexpr (std::is_same_v<T, float>) {  // without a branch
      const auto lanes = static_cast<uint32_t>(count < 32 ? (1u << count) - 1 : ~0u);
      out[0] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), from);
      out[1] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), from + kLanes);
      return;
    }
#endif
    out[0] = load_floats(from, count);
    out[1] = load_floats(from + kLanes, count - kLanes);
  }

  static ICPU_INLINE void put_in_order(Reg<float> (&)[2]) {}
};

#if defined(CPU_CAPABILITY_AVX512)
// The first `count` of 32 values of 16 bits, and zeros.
inline ICPU_INLINE __m512i load_words(const bf16* from, int64_t count) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(count < 32 ? (1u << count) - 1 : ~0u), from);
}
#endif

// Values at even places, and at odd ones.
template <>
struct Pair<bf16> {
  static ICPU_INLINE void load(const bf16* from, Reg<float> (&out)[2]) {
    Reg<int32_t> words;
    std::memcpy(&words, from, sizeof(words));
    split(words, out);
  }

  static ICPU_INLINE void load(const bf16* from, int64_t count, Reg<float> (&out)[2]) {
#if defined(CPU_CAPABILITY_AVX512)
    split((Reg<int32_t>)load_words(from, count), out);
#else
    bf16 some[2 * kLanes] = {};
    std::memcpy(static_cast<void*>(some), from, static_cast<size_t>(std::min<int64_t>(count, 2 * kLanes)) * sizeof(bf16));
    load(some, out);
#endif
  }

  static ICPU_INLINE void split(Reg<int32_t> words, Reg<float> (&out)[2]) {
    out[0] = (Reg<float>)(words << 16);
    out[1] = (Reg<float>)(words & splat_reg(int32_t(0xffff0000)));
  }

  static ICPU_INLINE void put_in_order(Reg<float> (&v)[2]) {
    Reg<float> even = v[0], odd = v[1];
    for (int i = 0; i < kLanes; ++i) {
      v[0][i] = i % 2 == 0 ? even[i / 2] : odd[i / 2];
      v[1][i] = i % 2 == 0 ? even[(kLanes + i) / 2] : odd[(kLanes + i) / 2];
    }
  }
};

template <class T>
struct Floats {
  using Weight = float;
  static constexpr int kTogether = 1;

  struct Operand {
    Reg<float> first, second;
  };

  static ICPU_INLINE Operand load(const T* from) {
    Reg<float> pair[2];
    Pair<T>::load(from, pair);
    return {pair[0], pair[1]};
  }

  static ICPU_INLINE Operand load(const T* from, int64_t count) {
    Reg<float> pair[2];
    Pair<T>::load(from, count, pair);
    return {pair[0], pair[1]};
  }

  // Has them stay in registers. Compilers would rather read a value again for each use of it, as an operand of the instruction:
  // with AVX2 loads are then what takes longest.
  static ICPU_INLINE void hold(Operand& a) { asm("" : "+x"(a.first), "+x"(a.second)); }

  static Operand negated(Operand a) { return {-a.first, -a.second}; }

  static void keep(float* to, Operand a) {
    std::memcpy(to, &a.first, sizeof(a.first));
    std::memcpy(to + kLanes, &a.second, sizeof(a.second));
  }
  static ICPU_INLINE Operand kept(const float* from) { return {load_reg(from), load_reg(from + kLanes)}; }

  static ICPU_INLINE Reg<float> dot(Reg<float> sum, const Operand& a, const Operand& b) {
    return fma_reg(a.second, b.second, fma_reg(a.first, b.first, sum));
  }

  // Values of kTogether keys, as they are weighed.
  using Together = Operand;
  static ICPU_INLINE Together together(const Operand (&rows)[kTogether]) { return rows[0]; }

  static ICPU_INLINE void weigh(const float* weight, const Together& value, Reg<float> (&sum)[2]) {
    sum[0] = fma_reg(splat_reg(*weight), value.first, sum[0]);
    sum[1] = fma_reg(splat_reg(*weight), value.second, sum[1]);
  }

  static void put_in_order(Reg<float> (&sum)[2]) { Pair<T>::put_in_order(sum); }
};

#if defined(ICPU_AVX512_BF16)
// Two products a lane, of values that are neighbours, and of one column of two keys.
struct Dots {
  using Weight = bf16;
  using Operand = __m512i;
  static constexpr int kTogether = 2;

  static ICPU_INLINE Operand load(const bf16* from) { return _mm512_loadu_si512(from); }
  static ICPU_INLINE Operand load(const bf16* from, int64_t count) { return load_words(from, count); }
  static Operand negated(Operand a) { return _mm512_xor_si512(a, _mm512_set1_epi16(static_cast<int16_t>(0x8000))); }

  static void keep(float* to, Operand a) { _mm512_storeu_si512(to, a); }
  static ICPU_INLINE Operand kept(const float* from) { return _mm512_loadu_si512(from); }

  static ICPU_INLINE Reg<float> dot(Reg<float> sum, Operand a, Operand b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }

  struct Together {
    Operand low, high;  // halves of each eight columns
  };
  static ICPU_INLINE Together together(const Operand (&rows)[kTogether]) {
    return {_mm512_unpacklo_epi16(rows[0], rows[1]), _mm512_unpackhi_epi16(rows[0], rows[1])};
  }

  static ICPU_INLINE void weigh(const bf16* weights, const Together& value, Reg<float> (&sum)[2]) {
    int32_t pair;
    std::memcpy(&pair, weights, sizeof(pair));
    sum[0] = dot(sum[0], _mm512_set1_epi32(pair), value.low);
    sum[1] = dot(sum[1], _mm512_set1_epi32(pair), value.high);
  }

  static void put_in_order(Reg<float> (&sum)[2]) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    const Reg<float> low = sum[0], high = sum[1];
    sum[0] = _mm512_permutex2var_ps(low, first, high);
    sum[1] = _mm512_permutex2var_ps(low, second, high);
  }
};
#endif

}  // namespace icpu::attention
