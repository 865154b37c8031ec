// The micro kernel of attention in floats with AVX-512 FMA: 14 rows by 32 columns of C in 28 registers.
//
// Preconditions: AVX-512F. The packed A is a sequence of steps of 16 in depth; a step is 14 rows of 16 values, so that the
// weights of a row are written as vectors (the product of matrices has its rows side by side: templates/gemm/fma_f32.h).
// The packed B is a sequence of rows of 32 columns, one for each depth.
#pragma once

#include "../gemm/multiply.h"

#include <immintrin.h>

namespace icpu::attention {

struct FmaF32 {
  using Element = float;
  static constexpr int kBlock = 14;
  static constexpr int kColumns = 32;
  static constexpr int kStep = 16;

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  static void block(const float* a, const float* b, const float* next, float* c, int64_t rows, int64_t depth,
                    bool accumulate) {
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((rows == n + 1 ? multiply_rows<n + 1>(a, b, next, c, depth / kStep, accumulate) : void()), ...);
    }(std::make_integer_sequence<int, kBlock>{});
  }

 private:
  template <int R>
  static void multiply_rows(const float* a, const float* b, const float* next, float* c, int64_t steps,
                            bool accumulate) {
    __m512 sum[R][2];
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
      sum[r][0] = sum[r][1] = __m512{};
    }
    for (int64_t s = 0; s < steps; ++s, a += kBlock * kStep) {
      _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(next + 16), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(next + 32), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(next + 48), _MM_HINT_T1);
      next += 64;
      for (int k = 0; k < kStep; ++k, b += kColumns) {
        const __m512 left = _mm512_loadu_ps(b), right = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 14
        for (int r = 0; r < R; ++r) {
          const __m512 value = _mm512_set1_ps(a[r * kStep + k]);
          sum[r][0] = _mm512_fmadd_ps(value, left, sum[r][0]);
          sum[r][1] = _mm512_fmadd_ps(value, right, sum[r][1]);
        }
      }
    }
    // Each part of the depth has a sum of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
      if (accumulate) {
        sum[r][0] = _mm512_add_ps(sum[r][0], _mm512_load_ps(c + r * kColumns));
        sum[r][1] = _mm512_add_ps(sum[r][1], _mm512_load_ps(c + r * kColumns + 16));
      }
      _mm512_store_ps(c + r * kColumns, sum[r][0]);
      _mm512_store_ps(c + r * kColumns + 16, sum[r][1]);
    }
  }
};

}  // namespace icpu::attention
