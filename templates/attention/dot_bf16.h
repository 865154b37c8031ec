// The micro kernel of bf16 attention with the dot products of AVX-512: up to 14 rows by two vectors of columns in registers.
//
// Preconditions: avx512_bf16. A and B are packed as for tiles of bf16 (pack.h): steps of 32 in depth, of A kBlock rows of 32
// values, of B two halves of 16 columns, each with a row for each pair of depths.
#pragma once

#include "../gemm/dot_bf16.h"
#include "at_once.h"

namespace icpu::attention {

struct DotBf16 {
  using Products = AtOnce<DotBf16>;
  using Element = bf16;
  static constexpr int kBlock = 32;
  static constexpr int kBlocks = 2;  // of rows that share a second operand in the L1 cache
  static constexpr int64_t kKeys = 256;  // or half as many more, whose scores and weights stay in the L1 and L2 caches
  static constexpr int kColumns = 32;
  static constexpr int kStep = 32;

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  // c (+)= a @ b for the first `rows` rows, in parts of about the same size, and `columns` columns, rounded up to vectors; rows
  // and depth are rounded up to pairs. c has kBlock rows of kColumns.
  static void block(const bf16* a, const bf16* b, float* c, int64_t rows, int64_t columns, int64_t depth, bool accumulate) {
    const auto by = columns > kLanes ? by_parts<2> : by_parts<1>;
    by(a, b, c, rows, depth, accumulate);
  }

  static void stay_awake() {}

 private:
  using Dots = gemm::DotBf16Products;
  static constexpr int kMost = 14;
  static_assert(kColumns == kStep && kBlock % 2 == 0);

  template <int Vectors>
  static void by_parts(const bf16* a, const bf16* b, float* c, int64_t rows, int64_t depth, bool accumulate) {
    const int64_t part = gemm::round_up(gemm::equal_parts(rows, kMost), 2);
    for (int64_t row = 0; row < rows; row += part) {
      const int64_t count = std::min(part, rows - row);
      [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
        const auto place = [&](auto* from) ICPU_INLINE { return from + row * kStep; };
        ((count == 2 * n + 1 || count == 2 * n + 2
              ? multiply_rows<2 * n + 2, Vectors>(place(a), b, place(c), depth, accumulate)
              : void()),
         ...);
      }(std::make_integer_sequence<int, kMost / 2>{});
    }
  }

  template <int R, int Vectors>
  static void multiply_rows(const bf16* a, const bf16* b, float* c, int64_t depth, bool accumulate) {
    __m512 sum[R][Vectors] = {};
    for (int64_t k = 0; k < depth; k += kStep, a += kBlock * kStep, b += kColumns * kStep) {
#pragma GCC unroll 1
      for (int i = 0, end = std::min<int64_t>(kStep, depth - k); i < end; i += 2) {
        __m512i line[Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) line[v] = Dots::line(b + (v * kStep + i) * 16);
#pragma GCC unroll 14
        for (int r = 0; r < R; ++r) {
          const __m512i pair = Dots::spread(a + r * kStep + i);
#pragma GCC unroll 2
          for (int v = 0; v < Vectors; ++v) sum[r][v] = Dots::dot(sum[r][v], pair, line[v]);
        }
      }
    }
    // Each block of keys has sums of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        float* const place = c + r * kColumns + v * 16;
        if (accumulate) sum[r][v] += _mm512_loadu_ps(place);
        _mm512_storeu_ps(place, sum[r][v]);
      }
    }
  }
};

}  // namespace icpu::attention
