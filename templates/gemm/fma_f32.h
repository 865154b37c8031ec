// The micro kernel of float matrix products with AVX-512 FMA: 8 rows by 48 columns of C in 24 registers.
//
// Preconditions: AVX-512F. The packed A is a sequence of columns of 8 rows, one for each depth; the packed B a sequence of
// rows of 48 columns, one for each depth.
#pragma once

#include "multiply.h"

#include <immintrin.h>

namespace icpu::gemm {

struct FmaF32 {
  using Element = float;
  using Weight = float;
  using Sum = float;
  static constexpr int kBlock = 8;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 48;
  static constexpr int kStep = 16;
  static constexpr int kDepth = 192;  // a panel of 36 KiB

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  static void block(Thread&, const float* a, const float* b, const float* next, float* c, int64_t rows, int64_t depth,
                    bool accumulate, int64_t lines) {
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((rows == n + 1 ? multiply_rows<n + 1>(a, b, next, lines, c, depth, accumulate) : void()), ...);
    }(std::make_integer_sequence<int, kBlock>{});
  }

  // Neighbouring values of row r, from depth k on.
  static ICPU_INLINE void copy(const float* from, int64_t count, int64_t k, int64_t r, float* out) {
    for (int64_t i = 0; i < count; ++i) out[(k + i) * kBlock + r] = from[i];
  }

  // The first `rows` rows, at most kBlock, of a row-major A in the order of the packed A.
  static void pack(const float* a, int64_t lda, int64_t rows, int64_t depth, float* out) {
    for (int64_t k = 0; k < depth; k += kStep) {
      const auto some = static_cast<__mmask16>(depth - k < kStep ? (1u << (depth - k)) - 1 : ~0u);
      __m512 row[kBlock];
#pragma GCC unroll 8
      for (int r = 0; r < kBlock; ++r) row[r] = r < rows ? _mm512_maskz_loadu_ps(some, a + r * lda + k) : __m512{};
      transpose(row);
#pragma GCC unroll 8
      for (int i = 0; i < kBlock; ++i, out += kStep) _mm512_storeu_ps(out, row[i]);
    }
  }

 private:
  static constexpr int kVectors = kColumns / 16;

  // 8 rows of 16 values become 16 columns of 8, two in a register: by pairs of values, pairs of pairs, then quarters.
  static ICPU_INLINE void transpose(__m512 (&v)[8]) {
    const auto low = [](__m512 x, __m512 y) ICPU_INLINE {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
    };
    const auto high = [](__m512 x, __m512 y) ICPU_INLINE {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
    };
    __m512 t[8];  // t[4 h + j], quarter q: column 4 q + j, rows 4 h to 4 h + 3
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
      const __m512 a = _mm512_unpacklo_ps(v[h], v[h + 1]), b = _mm512_unpackhi_ps(v[h], v[h + 1]);
      const __m512 c = _mm512_unpacklo_ps(v[h + 2], v[h + 3]), d = _mm512_unpackhi_ps(v[h + 2], v[h + 3]);
      t[h] = low(a, c);
      t[h + 1] = high(a, c);
      t[h + 2] = low(b, d);
      t[h + 3] = high(b, d);
    }
    // Columns 4 q and 4 q + 1, and 4 q + 2 and 4 q + 3, of all quarters q.
    const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), odd = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
#pragma GCC unroll 2
    for (int j = 0; j < 4; j += 2) {
      const auto pair = [&](int i, __m512i which) ICPU_INLINE {
        return _mm512_castpd_ps(_mm512_permutex2var_pd(_mm512_castps_pd(t[i]), which, _mm512_castps_pd(t[i + 4])));
      };
      const __m512 first = pair(j, even), second = pair(j + 1, even), third = pair(j, odd), fourth = pair(j + 1, odd);
      v[j / 2] = _mm512_shuffle_f32x4(first, second, 0x44);
      v[2 + j / 2] = _mm512_shuffle_f32x4(first, second, 0xee);
      v[4 + j / 2] = _mm512_shuffle_f32x4(third, fourth, 0x44);
      v[6 + j / 2] = _mm512_shuffle_f32x4(third, fourth, 0xee);
    }
  }

  // The loop over the depth stays small, so that it runs from the buffer of decoded instructions; lines of B are fetched
  // between pieces of it, not too many at once.
  template <int R>
  static void multiply_rows(const float* a, const float* b, const float* next, int64_t lines, float* c, int64_t depth,
                            bool accumulate) {
    const int64_t piece = lines > depth / 2 ? 16 : 48;
    const int64_t lines_of_piece = ceil_div(lines * piece, depth);
    __m512 sum[R][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) sum[r][j] = __m512{};
    }
    const float* const end = b + depth * kColumns;
    while (b < end) {
#pragma GCC unroll 1
      for (int64_t i = 0; i < lines_of_piece; ++i, next += 16) {
        _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
      }
      const float* const stop = std::min(b + piece * kColumns, end);
#pragma GCC unroll 1
      for (; b < stop; a += kBlock, b += kColumns) {
        __m512 line[kVectors];
#pragma GCC unroll 3
        for (int j = 0; j < kVectors; ++j) line[j] = _mm512_load_ps(b + 16 * j);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512 value = _mm512_set1_ps(a[r]);
#pragma GCC unroll 3
          for (int j = 0; j < kVectors; ++j) sum[r][j] = _mm512_fmadd_ps(value, line[j], sum[r][j]);
        }
      }
    }
    // Each part of the depth has a sum of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        float* const to = c + r * kColumns + 16 * j;
        if (accumulate) sum[r][j] = _mm512_add_ps(sum[r][j], _mm512_load_ps(to));
        _mm512_store_ps(to, sum[r][j]);
      }
    }
  }
};

}  // namespace icpu::gemm
