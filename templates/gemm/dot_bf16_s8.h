// The micro kernel of bf16 matrices times int8 weights with the bf16 dot products of AVX-512.
//
// Preconditions: those of dot_bf16.h. B is packed as for it, in int8: every int8 is a bf16, exactly.
#pragma once

#include "dot_bf16.h"

namespace icpu::gemm {

struct DotBf16S8Products : DotBf16Products {
  using Weight = int8_t;

  static ICPU_INLINE __m512i line(const int8_t* b) {
    const auto half = [&](int first) ICPU_INLINE {
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + first))));
    };
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(half(16), half(0)));
  }
};

struct DotBf16S8 : Avx512<DotBf16S8Products> {
  // A whole block of rows streams B as fast as one row: B is half of what bf16 takes, and is not converted again. One or two
  // rows would wait for the conversion: they take two products in its place.
  struct Few : Avx512<DotBf16S8Products>::Few {
    using Base = Avx512<DotBf16S8Products>::Few;
    static constexpr int64_t kMost = kBlock;

    // Packed rows, and whether their values are so far from the largest float that a product by 256 is finite.
    struct Rows {
      const bf16* a;
      bool moderate;

      Rows(const bf16* packed, int64_t, int64_t depth) : a(packed), moderate(true) {
        const __m512i bound = _mm512_set1_epi16(0x7a00);  // 2^117; exponents without a sign are in the order of integers
        for (int64_t i = 0; i < depth * kBlock; i += 32) {
          const __m512i size = _mm512_and_si512(_mm512_loadu_si512(packed + i), _mm512_set1_epi16(0x7fff));
          moderate = moderate && _mm512_cmpgt_epi16_mask(size, bound) == 0;
        }
      }
    };

    static void panel(const Rows& rows, int64_t k, const int8_t* b, float* c, int64_t count, int64_t depth) {
      const bf16* const a = rows.a + k * kBlock;
      if (!rows.moderate || count > 2) return Base::panel(a, b, c, count, depth);
      if (count == 1) {
        multiply<1>(a, b, c, depth);
      } else {
        multiply<2>(a, b, c, depth);
      }
    }

   private:
    // A weight w is 128 + (w & 127) and -128, or -256 where it is negative. Both are bf16 with the bits of w in the low byte:
    // two instructions, where a conversion takes five on few ports.
    template <int R>
    static void multiply(const bf16* a, const int8_t* b, float* c, int64_t depth) {
      __m512 sum[2][R][3] = {};  // of even and of odd pairs of depths: products wait for those before them
      for (int64_t k = 0; k < depth; k += 2 * kPair) {
#pragma GCC unroll 2
        for (int turn = 0; turn < 2; ++turn, a += kBlock * kPair, b += kColumns * kPair) {
          __m512i bits[3];
#pragma GCC unroll 3
          for (int j = 0; j < 3; ++j) {
            bits[j] = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 32 * j)));
          }
#pragma GCC unroll 2
          for (int r = 0; r < R; ++r) {
            const __m512i pair = DotBf16S8Products::spread(a + r * kPair);
#pragma GCC unroll 3
            for (int j = 0; j < 3; ++j) {
              const __m512i low = with_bits<0x7f, 0x4300>(bits[j]), base = with_bits<0x80, 0xc300>(bits[j]);
              sum[turn][r][j] = DotBf16S8Products::dot(DotBf16S8Products::dot(sum[turn][r][j], pair, low), pair, base);
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) _mm512_storeu_ps(c + r * kColumns + 16 * j, sum[0][r][j] + sum[1][r][j]);
      }
    }

    // (bits & mask) | value, in each word.
    template <int mask, int value>
    static ICPU_INLINE __m512i with_bits(__m512i bits) {
      const __m512i masks = _mm512_set1_epi16(static_cast<int16_t>(mask));
      return _mm512_ternarylogic_epi32(bits, masks, _mm512_set1_epi16(static_cast<int16_t>(value)), 0xea);
    }
  };
};

}  // namespace icpu::gemm
