// 8-bit floats as memory holds them, and their conversions in scalar code.
//
// Preconditions: a Format has `mantissa` bits, an exponent `bias`, `largest` (the code of the largest magnitude that
// numbers are rounded to, which may be infinity) and `one_nan`: one code, that of -0, is the only NaN and there is no -0.
// The others have NaN of both signs.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace icpu {

struct E4M3Fn {
  static constexpr int mantissa = 3, bias = 7;
  static constexpr uint32_t largest = 0x7e;  // 448: what is larger, also infinity, becomes it
  static constexpr bool one_nan = false;
};
struct E5M2 {
  static constexpr int mantissa = 2, bias = 15;
  static constexpr uint32_t largest = 0x7c;  // infinity
  static constexpr bool one_nan = false;
};
struct E4M3FnUz {
  static constexpr int mantissa = 3, bias = 8;
  static constexpr uint32_t largest = 0x7f;  // 240: what is larger becomes NaN
  static constexpr bool one_nan = true;
};
struct E5M2FnUz {
  static constexpr int mantissa = 2, bias = 16;
  static constexpr uint32_t largest = 0x7f;  // 57344: what is larger becomes NaN
  static constexpr bool one_nan = true;
};

// The numbers that conversions are made of, all in the bits of floats.
template <class Format>
struct Float8Bits {
  static constexpr int shift = 23 - Format::mantissa;                     // mantissa bits that a float has more
  static constexpr uint32_t rebias = uint32_t(127 - Format::bias) << 23;  // between the exponents
  static constexpr uint32_t half = (1u << (shift - 1)) - 1;               // rounds to nearest, with the last bit kept
  static constexpr uint32_t normal = uint32_t(128 - Format::bias) << 23;  // the least normal number
  // Beside this power of two a float has the last place of a subnormal number: adding it rounds to one.
  static constexpr uint32_t magic = uint32_t(127 + 24 - Format::bias - Format::mantissa) << 23;
  static constexpr float magic_number() { return std::bit_cast<float>(magic); }
  static constexpr uint32_t infinity = 0x7f800000, quiet = 0x7fc00000;
};

template <class Format>
struct f8 {
  uint8_t bits;
  f8() = default;
  // To nearest, ties to even.
  f8(float a) : bits(round(std::bit_cast<uint32_t>(a))) {}
  operator float() const {
    const uint32_t code = bits & 0x7f, sign = uint32_t(bits & 0x80) << 24;
    if constexpr (Format::one_nan) {
      if (bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
    } else if (code > Format::largest) {
      return std::bit_cast<float>(sign | Bits::quiet);
    }
    if (!Format::one_nan && Format::largest == 0x7c && code == 0x7c) return std::bit_cast<float>(sign | Bits::infinity);
    if (code >= 1u << Format::mantissa) return std::bit_cast<float>(sign | ((code << Bits::shift) + Bits::rebias));
    // A subnormal number: the least normal one has the same last place.
    const float wide = std::bit_cast<float>((code << Bits::shift) + Bits::normal);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(wide - std::bit_cast<float>(Bits::normal)));
  }

 private:
  using Bits = Float8Bits<Format>;
  static uint8_t round(uint32_t a) {
    const uint32_t sign = (a >> 24) & 0x80;
    a &= 0x7fffffff;
    if (a > Bits::infinity) return uint8_t(Format::one_nan ? 0x80 : sign | 0x7f);
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + Bits::magic_number()) - Bits::magic;
    const uint32_t large = (a + Bits::half + ((a >> Bits::shift) & 1) - Bits::rebias) >> Bits::shift;
    const uint32_t code = a < Bits::normal ? small : large;
    if constexpr (Format::one_nan) {
      if (code > Format::largest) return 0x80;
      return uint8_t(code ? sign | code : 0);
    } else {
      return uint8_t(sign | (code < Format::largest ? code : Format::largest));
    }
  }
};

using f8_e4m3fn = f8<E4M3Fn>;
using f8_e5m2 = f8<E5M2>;
using f8_e4m3fnuz = f8<E4M3FnUz>;
using f8_e5m2fnuz = f8<E5M2FnUz>;

template <class T>
inline constexpr bool is_float8 = false;
template <class Format>
inline constexpr bool is_float8<f8<Format>> = true;

template <class Format>
inline float round_f8(float a) { return float(f8<Format>(a)); }

}  // namespace icpu
