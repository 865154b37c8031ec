// The micro kernel of bf16 attention with the dot products of AVX-512: up to 14 rows by two vectors of columns in registers.
//
// Preconditions: avx512_bf16. A and B are packed as for tiles of bf16 (pack.h): steps of 32 in depth, of A kBlock rows of 32
// values, of B two halves of 16 columns, each with a row for each pair of depths.
#pragma once

#include "../gemm/dot_bf16.h"

namespace icpu::attention {

struct DotBf16 {
  using Element = bf16;
  static constexpr int kBlock = 32;
  static constexpr int kBlocks = 2;  // of rows that share a second operand in the L1 cache
  static constexpr int kColumns = 32;
  static constexpr int kStep = 32;

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  // c (+)= a @ b for the first `rows` rows, in parts of about the same size, rounded up to pairs. c has kBlock rows of
  // kColumns.
  static void block(const bf16* a, const bf16* b, float* c, int64_t rows, int64_t depth, bool accumulate) {
    const int64_t part = gemm::round_up(gemm::equal_parts(rows, kMost), 2);
    for (int64_t row = 0; row < rows; row += part) {
      const int64_t count = std::min(part, rows - row);
      [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
        const auto place = [&](auto* from) ICPU_INLINE { return from + row * kStep; };
        ((count == 2 * n + 1 || count == 2 * n + 2
              ? multiply_rows<2 * n + 2>(place(a), b, place(c), depth, accumulate)
              : void()),
         ...);
      }(std::make_integer_sequence<int, kMost / 2>{});
    }
  }

  static void stay_awake() {}

 private:
  using Products = gemm::DotBf16Products;
  static constexpr int kMost = 14;
  static_assert(kColumns == kStep && kBlock % 2 == 0);

  template <int R>
  static void multiply_rows(const bf16* a, const bf16* b, float* c, int64_t depth, bool accumulate) {
    __m512 sum[R][2];
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = __m512{};
    for (int64_t k = 0; k < depth; k += kStep, a += kBlock * kStep, b += kColumns * kStep) {
#pragma GCC unroll 1
      for (int i = 0; i < kStep; i += 2) {
        const __m512i left = Products::line(b + i * 16), right = Products::line(b + (kStep + i) * 16);
#pragma GCC unroll 14
        for (int r = 0; r < R; ++r) {
          const __m512i pair = Products::spread(a + r * kStep + i);
          sum[r][0] = Products::dot(sum[r][0], pair, left);
          sum[r][1] = Products::dot(sum[r][1], pair, right);
        }
      }
    }
    // Each block of keys has sums of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* const place = c + r * kColumns + half * 16;
        if (accumulate) sum[r][half] += _mm512_loadu_ps(place);
        _mm512_storeu_ps(place, sum[r][half]);
      }
    }
  }
};

}  // namespace icpu::attention
