// 8-bit floats in vectors: held as floats, as bf16 and f16 are.
//
// Preconditions: those of float8.h. Codes are 32-bit lanes below 256, or packed bytes.
#pragma once

#include "float8.h"
#include "vec_convert.h"

namespace icpu {

#if defined(CPU_CAPABILITY_AVX512)
inline __m256i signed_words(__m128i bytes) { return _mm256_cvtepi8_epi16(bytes); }
inline __m256i shifted(__m256i words, int count) { return _mm256_slli_epi16(words, count); }
inline __m256i without_bit_14(__m256i words) { return _mm256_and_si256(words, _mm256_set1_epi16(short(0xbfff))); }
inline Reg<uint32_t> codes_of(__m128i bytes) { return (Reg<uint32_t>)_mm512_cvtepu8_epi32(bytes); }
inline __m128i packed_codes(Reg<uint32_t> a) { return _mm512_cvtepi32_epi8((__m512i)a); }
inline Reg<uint32_t> where_less(Reg<uint32_t> a, Reg<uint32_t> b, Reg<uint32_t> yes, Reg<uint32_t> no) {
  const __mmask16 m = _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b);
  return (Reg<uint32_t>)_mm512_mask_blend_epi32(m, (__m512i)no, (__m512i)yes);
}
#else
inline __m128i signed_words(__m128i bytes) { return _mm_cvtepi8_epi16(bytes); }
inline __m128i shifted(__m128i words, int count) { return _mm_slli_epi16(words, count); }
inline __m128i without_bit_14(__m128i words) { return _mm_and_si128(words, _mm_set1_epi16(short(0xbfff))); }
inline Reg<uint32_t> codes_of(__m128i bytes) { return (Reg<uint32_t>)_mm256_cvtepu8_epi32(bytes); }
inline __m128i packed_codes(Reg<uint32_t> a) {
  const __m256i packed = _mm256_packus_epi32((__m256i)a, (__m256i)a);
  const __m128i words = _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
  return _mm_packus_epi16(words, words);
}
inline Reg<uint32_t> where_less(Reg<uint32_t> a, Reg<uint32_t> b, Reg<uint32_t> yes, Reg<uint32_t> no) {
  const auto m = (Reg<uint32_t>)((Reg<int32_t>)a < (Reg<int32_t>)b);
  return (yes & m) | (no & ~m);
}
#endif

// The numbers of packed codes, one a lane.
template <class Format>
inline Reg<float> of_f8_codes(__m128i bytes) {
  using Bits = Float8Bits<Format>;
  if constexpr (Format::one_nan) {
    const auto codes = codes_of(bytes), magnitude = codes & 0x7fu;
    const auto normal = (magnitude << Bits::shift) + Bits::rebias;
    const auto least = splat_reg(std::bit_cast<float>(Bits::normal));
    const auto small = (Reg<uint32_t>)((Reg<float>)((magnitude << Bits::shift) + Bits::normal) - least);
    const auto number = where_less(magnitude, splat_reg(1u << Format::mantissa), small, normal);
    const auto signs = (codes & 0x80u) << 24;
    const auto minus_zero = splat_reg(0x80u);
    return (Reg<float>)where_less(codes ^ minus_zero, splat_reg(1u), splat_reg(Bits::quiet), number | signs);
  } else if constexpr (Format::mantissa == 2) {
    return of_f16_bits(shifted(signed_words(bytes), 8));  // f16 with fewer bits
  } else {
    // As f16 with another bias; the exponent of ones is no exception there, but the code of NaN.
    const auto number = of_f16_bits(without_bit_14(shifted(signed_words(bytes), 7))) * float(1 << (15 - Format::bias));
    const auto bits = (Reg<uint32_t>)number;
    const auto finite = splat_reg(std::bit_cast<uint32_t>(480.0f));
    return (Reg<float>)where_less(bits & 0x7fffffffu, finite, bits, bits | Bits::quiet);
  }
}

// The code of the nearest number, ties to even.
template <class Format>
inline Reg<uint32_t> f8_codes(Reg<float> a) {
  using Bits = Float8Bits<Format>;
  const auto bits = (Reg<uint32_t>)a, magnitude = bits & 0x7fffffffu, signs = (bits >> 24) & 0x80u;
  const auto small = (Reg<uint32_t>)((Reg<float>)magnitude + Bits::magic_number()) - Bits::magic;
  const auto large = (magnitude + ((magnitude >> Bits::shift) & 1u) + (Bits::half - Bits::rebias)) >> Bits::shift;
  const auto code = where_less(magnitude, splat_reg(Bits::normal), small, large);
  const auto largest = splat_reg(Format::largest), infinite = splat_reg(Bits::infinity);
  if constexpr (Format::one_nan) {
    const auto number = where_less(splat_reg(0u), code, code | signs, code);
    return where_less(largest, code, splat_reg(0x80u), number);
  } else {
    const auto number = where_less(code, largest, code, largest);
    return where_less(infinite, magnitude, splat_reg(0x7fu), number) | signs;
  }
}

template <class Format, int U>
inline Vec<float, U> round_f8(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return of_f8_codes<Format>(packed_codes(f8_codes<Format>(x))); }, a);
}

}  // namespace icpu
