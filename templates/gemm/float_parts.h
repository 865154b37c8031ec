// Floats as three bf16 parts: x = high + middle + low, exactly, for products of parts with AMX tiles.
//
// Preconditions: AVX-512 (F, BW, DQ); pointers to 32 parts are multiples of 64 bytes, except where fewer are given.
//
// A float has 24 significant bits, a bf16 has 8. Tiles treat subnormal numbers as zero, so values are multiplied by kScale
// first: then the last bit of the smallest float is normal. Values above kLargest, infinities and NaN are stored as they
// are, their bits in the high and the middle part, with a low part that is NaN (kAsIs): whatever they are multiplied with
// becomes NaN.
#pragma once

#include "base.h"

#include <immintrin.h>

#include <algorithm>

namespace icpu::gemm {

// apart: distance of the parts of a value, in elements.
template <int64_t apart>
struct FloatParts {
  static constexpr float kScale = 0x1p24f, kLargest = 0x1p32f;

  // Sixteen pairs of values, and the parts of them.
  struct Pairs {
    __m512 first, second;
  };
  struct Parts {
    __m512i part[3];  // high, middle, low
    bool large;  // some are too large to be split
  };

  // At most 32 neighbouring values, zeros after them.
  static ICPU_INLINE Pairs load_pairs(const float* from, int64_t count) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __mmask32 some = some_of(count);
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(some), from);
    const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(some >> 16), from + 16);
    return {_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)};
  }

  // Rounding half away from zero is an addition and a mask; the last remainder has at most 8 significant bits.
  static ICPU_INLINE Parts split(const Pairs& pairs) {
    const __m512i half = _mm512_set1_epi32(0x8000), mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const auto rounded = [&](__m512 v) ICPU_INLINE {
      return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(v), half), mask);
    };
    __m512 x = _mm512_mul_ps(pairs.first, _mm512_set1_ps(kScale));
    __m512 y = _mm512_mul_ps(pairs.second, _mm512_set1_ps(kScale));
    constexpr int larger_magnitude = 0b1011;
    const __m512 largest = _mm512_range_ps(x, y, larger_magnitude);
    Parts out;
    out.large = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kLargest * kScale), _CMP_NLE_UQ) != 0;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i p = rounded(x), q = rounded(y);
      out.part[i] = _mm512_or_si512(_mm512_srli_epi32(p, 16), q);
      x = _mm512_sub_ps(x, _mm512_castsi512_ps(p));
      y = _mm512_sub_ps(y, _mm512_castsi512_ps(q));
    }
    const __m512i last = _mm512_and_si512(_mm512_castps_si512(y), mask);
    out.part[2] = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(x), 16), last);
    return out;
  }

  static ICPU_INLINE void store(const Parts& parts, uint16_t* out) {
#pragma GCC unroll 3
    for (int64_t i = 0; i < 3; ++i) _mm512_store_si512(out + i * apart, parts.part[i]);
  }

  // At most 32 neighbouring values of a row.
  static ICPU_INLINE void split_some(const float* from, int64_t count, uint16_t* out) {
    const Parts parts = split(load_pairs(from, count));
#pragma GCC unroll 3
    for (int64_t i = 0; i < 3; ++i) _mm512_mask_storeu_epi16(out + i * apart, some_of(count), parts.part[i]);
    if (parts.large) [[unlikely]] split_as_is(from, count, out);
  }

  // One value's parts, `apart` from each other.
  static ICPU_INLINE void split_one(float value, uint16_t* out) {
    const auto bits = [](float v) { return std::bit_cast<uint32_t>(v); };
    if (!(std::abs(value) <= kLargest)) {
      out[0] = static_cast<uint16_t>(bits(value) >> 16);
      out[apart] = static_cast<uint16_t>(bits(value));
      out[2 * apart] = kAsIs;
      return;
    }
    float rest = value * kScale;
    for (int64_t i = 0; i < 3; ++i) {
      const uint32_t rounded = (bits(rest) + 0x8000) & 0xffff0000u;
      out[i * apart] = static_cast<uint16_t>(rounded >> 16);
      rest -= std::bit_cast<float>(rounded);
    }
  }

  // Neighbouring values, some of them large.
  [[gnu::noinline]] static void split_as_is(const float* from, int64_t count, uint16_t* out) {
    for (int64_t i = 0; i < count; ++i) split_one(from[i], out + i);
  }

  // The 32 values whose parts begin at `from`.
  static ICPU_INLINE void join(const uint16_t* from, float* out) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    __m512 even{}, odd{};
#pragma GCC unroll 3
    for (int64_t i = 0; i < 3; ++i) {
      const __m512i pairs = _mm512_load_si512(from + i * apart);
      even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
      odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(pairs, mask)));
    }
    const __m512 scale = _mm512_set1_ps(1 / kScale);
    _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_permutex2var_ps(even, first, odd), scale));
    _mm512_storeu_ps(out + 16, _mm512_mul_ps(_mm512_permutex2var_ps(even, second, odd), scale));
    const __m512i lows = _mm512_load_si512(from + 2 * apart);
    if (_mm512_cmpeq_epi16_mask(lows, _mm512_set1_epi16(kAsIs)) == 0) [[likely]] return;
    for (int64_t i = 0; i < 32; ++i) {
      if (from[i + 2 * apart] == kAsIs) out[i] = std::bit_cast<float>(uint32_t(from[i]) << 16 | from[i + apart]);
    }
  }

 private:
  static constexpr uint16_t kAsIs = 0x7f81;

  static constexpr __mmask32 some_of(int64_t count) { return count < 32 ? (uint32_t(1) << count) - 1 : ~uint32_t(0); }
};

}  // namespace icpu::gemm
