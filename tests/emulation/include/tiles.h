// AMX tiles and bf16 instructions in plain C++, in the place of the intrinsics, which are macros here. Tiles have rows of
// 64 bytes, as every kernel configures them. Nothing is inlined: where an instruction was a loop, compilers would take
// many times as long.
//
// Preconditions: AVX-512 (F, BW, DQ, VL), or its emulation. As the instructions do, conversions to bf16 and products of
// bf16 take denormals for zero and round to the nearest even.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace amx_emulated {

struct Tile {
  unsigned char rows[16][64];
};

inline Tile& tile(int number) {
  thread_local Tile tiles[8];
  return tiles[number];
}

// The rows of each tile.
inline uint8_t (&rows())[8] {
  thread_local uint8_t count[8];
  return count;
}

[[gnu::noinline]] inline void configure(const void* config) {
  std::memcpy(rows(), static_cast<const char*>(config) + 48, 8);
}

[[gnu::noinline]] inline void zero(int number) { tile(number) = Tile{}; }

[[gnu::noinline]] inline void load(int number, const void* from, int64_t stride) {
  zero(number);
  for (int r = 0; r < rows()[number]; ++r) std::memcpy(tile(number).rows[r], static_cast<const char*>(from) + r * stride, 64);
}

[[gnu::noinline]] inline void store(int number, void* to, int64_t stride) {
  for (int r = 0; r < rows()[number]; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tile(number).rows[r], 64);
}

inline float float_of(uint16_t bits) {
  const uint32_t word = (bits & 0x7f80) == 0 ? uint32_t(bits & 0x8000) << 16 : uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

inline uint16_t bf16_of(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  if ((word & 0x7f800000) == 0) return static_cast<uint16_t>((word & 0x80000000) >> 16);
  if ((word & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(word >> 16 | 0x40);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

struct Pair {
  float value[2];
};

inline Pair pair_of_bf16(const unsigned char* from) {
  uint16_t bits[2];
  std::memcpy(bits, from, 4);
  return {{float_of(bits[0]), float_of(bits[1])}};
}

template <class A>
inline int32_t four_bytes(const unsigned char* a, const unsigned char* b) {
  int32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += int32_t(static_cast<A>(a[i])) * int32_t(static_cast<int8_t>(b[i]));
  return sum;
}

// c[m][n] += the sum over groups k of product(a[m][k], b[k][n]), each a word of 4 bytes.
template <class A>
[[gnu::noinline]] void multiply_bytes(int c, int a, int b) {
  int32_t sums[16][16];
  std::memcpy(sums, tile(c).rows, sizeof(sums));
  for (int m = 0; m < rows()[c]; ++m) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 16; ++n) sums[m][n] += four_bytes<A>(tile(a).rows[m] + 4 * k, tile(b).rows[k] + 4 * n);
    }
  }
  std::memcpy(tile(c).rows, sums, sizeof(sums));
}

// The same of pairs of bf16: even and odd depths have sums of their own, which begin at zero (TDPBF16PS in Intel's manual),
// so that one instruction rounds far less than if it added to c at each step. A product of two bf16 is exact.
[[gnu::noinline]] inline void multiply_bf16(int c, int a, int b) {
  float sums[16][16];
  std::memcpy(sums, tile(c).rows, sizeof(sums));
  for (int m = 0; m < rows()[c]; ++m) {
    float total[16][2] = {};
    for (int k = 0; k < 16; ++k) {
      const auto x = pair_of_bf16(tile(a).rows[m] + 4 * k);
      for (int n = 0; n < 16; ++n) {
        const auto y = pair_of_bf16(tile(b).rows[k] + 4 * n);
        for (int i = 0; i < 2; ++i) total[n][i] += x.value[i] * y.value[i];
      }
    }
    for (int n = 0; n < 16; ++n) sums[m][n] += total[n][0] + total[n][1];
  }
  std::memcpy(tile(c).rows, sums, sizeof(sums));
}

[[gnu::noinline]] inline __m512bh narrow(__m512 high, __m512 low) {
  float from[32];
  uint16_t to[32];
  std::memcpy(from, &low, 64);
  std::memcpy(from + 16, &high, 64);
  for (int i = 0; i < 32; ++i) to[i] = bf16_of(from[i]);
  __m512bh result;
  std::memcpy(&result, to, 64);
  return result;
}

[[gnu::noinline]] inline __m256bh narrow(__m512 from) {
  const __m512bh both = narrow(from, from);
  __m256bh result;
  std::memcpy(&result, &both, 32);
  return result;
}

[[gnu::noinline]] inline __m512 dot(__m512 sum, __m512bh a, __m512bh b) {
  float total[16];
  unsigned char x[64], y[64];
  std::memcpy(total, &sum, 64);
  std::memcpy(x, &a, 64);
  std::memcpy(y, &b, 64);
  for (int i = 0; i < 16; ++i) {
    // The odd one first (VDPBF16PS).
    const Pair left = pair_of_bf16(x + 4 * i), right = pair_of_bf16(y + 4 * i);
    total[i] = __builtin_fmaf(left.value[1], right.value[1], total[i]);
    total[i] = __builtin_fmaf(left.value[0], right.value[0], total[i]);
  }
  std::memcpy(&sum, total, 64);
  return sum;
}

}  // namespace amx_emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#undef _tile_dpbssd
#define _tile_loadconfig(config) amx_emulated::configure(config)
#define _tile_release() static_cast<void>(amx_emulated::rows())
#define _tile_zero(c) amx_emulated::zero(c)
#define _tile_loadd(c, from, stride) amx_emulated::load(c, from, stride)
#define _tile_stream_loadd(c, from, stride) amx_emulated::load(c, from, stride)
#define _tile_stored(c, to, stride) amx_emulated::store(c, to, stride)
#define _tile_dpbf16ps(c, a, b) amx_emulated::multiply_bf16(c, a, b)
#define _tile_dpbusd(c, a, b) amx_emulated::multiply_bytes<uint8_t>(c, a, b)
#define _tile_dpbssd(c, a, b) amx_emulated::multiply_bytes<int8_t>(c, a, b)
#define _mm512_cvtne2ps_pbh(high, low) amx_emulated::narrow(high, low)
#define _mm512_cvtneps_pbh(from) amx_emulated::narrow(from)
#define _mm512_dpbf16_ps(sum, a, b) amx_emulated::dot(sum, a, b)
