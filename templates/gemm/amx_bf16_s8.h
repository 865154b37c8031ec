// The micro kernel of bf16 matrices times int8 weights with AMX tiles of bf16.
//
// Preconditions: those of amx_bf16.h. The packed B is a sequence of rows of 32 bytes, one for each depth. Every int8 is a
// bf16, exactly: the first block of rows that meets a panel makes tiles of it, which the others read.
#pragma once

#include "amx_bf16.h"

namespace icpu::gemm {

struct AmxBf16S8 {
  using Element = bf16;
  using Weight = int8_t;
  using Sum = float;
  static constexpr int kBlock = AmxBf16::kBlock;
  static constexpr int kRows = AmxBf16::kRows;
  static constexpr int kColumns = AmxBf16::kColumns;
  static constexpr int kStep = AmxBf16::kStep;
  static constexpr int kDepth = AmxBf16::kDepth;
  static constexpr bool kOverlaps = true;

  struct Thread : AmxBf16::Thread {
    bf16* const tiles = aligned_scratch<bf16, 19>(kDepth * kColumns);
    const int8_t* of = nullptr;
  };

  // Few rows are multiplied in float: B streams from memory, and making tiles would take longer.
  struct Few {
    static constexpr int64_t kMost = 4;

    struct Thread {
      explicit Thread(int64_t) {}
    };

    static void panel(const bf16* a, const int8_t* b, float* c, int64_t rows, int64_t depth) {
      rows == 1   ? multiply_few<1>(a, b, c, depth)
      : rows == 2 ? multiply_few<2>(a, b, c, depth)
      : rows == 3 ? multiply_few<3>(a, b, c, depth)
                  : multiply_few<4>(a, b, c, depth);
    }
  };

  template <class Meanwhile>
  static void block(Thread& thread, const bf16* a, const int8_t* b, float* c, int64_t rows, int64_t depth, bool accumulate,
                    Meanwhile& meanwhile) {
    if (std::exchange(thread.of, b) != b) make_tiles(b, depth, thread.tiles);
    AmxBf16::block(thread, a, thread.tiles, c, rows, depth, accumulate, meanwhile);
  }

  static ICPU_INLINE void copy(const bf16* from, int64_t count, int64_t k, int64_t r, bf16* out) {
    AmxBf16::copy(from, count, k, r, out);
  }

  static void pack(const bf16* a, int64_t lda, int64_t rows, int64_t depth, bf16* out) {
    AmxBf16::pack(a, lda, rows, depth, out);
  }

 private:
  static ICPU_INLINE __m512 floats(const int8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }

  // Pairs of neighbours in depth, the first one in the lower half; a bf16 is the upper half of a float,
  // and the lower half of these floats is zero.
  static void make_tiles(const int8_t* b, int64_t depth, bf16* out) {
    for (int64_t k = 0; k < depth; k += kStep) {
      for (int64_t pair = 0; pair < kStep / 2; ++pair, b += 2 * kColumns, out += 32) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m512i first = _mm512_castps_si512(floats(b + 16 * half));
          const __m512i second = _mm512_castps_si512(floats(b + kColumns + 16 * half));
          const __m512i both = _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
          _mm512_store_si512(out + half * 16 * kStep, both);
        }
      }
      out += 16 * kStep;  // both tiles
    }
  }

  // Even and odd depths have sums of their own, which hides the latency of additions; so has each part of the depth.
  template <int R>
  static void multiply_few(const bf16* a, const int8_t* b, float* c, int64_t depth) {
    for (int64_t k = 0; k < depth; k += kDepth) {
      const int64_t part = std::min<int64_t>(kDepth, depth - k);
      alignas(64) float wide[R][kDepth];
      for (int r = 0; r < R; ++r) {
        for (int64_t i = 0; i < part; ++i) wide[r][i] = a[((k + i) / kStep * kBlock + r) * kStep + (k + i) % kStep];
      }
      __m512 sum[R][4];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) sum[r][j] = __m512{};
      }
      for (int64_t i = 0; i < part; i += 2, b += 2 * kColumns) {
        __m512 line[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) line[j] = floats(b + 16 * j);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) sum[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(wide[r][i + j / 2]), line[j], sum[r][j]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          float* const to = c + r * kColumns + 16 * j;
          const __m512 all = _mm512_add_ps(sum[r][j], sum[r][2 + j]);
          _mm512_store_ps(to, k > 0 ? _mm512_add_ps(_mm512_load_ps(to), all) : all);
        }
      }
    }
  }
};

}  // namespace icpu::gemm
