// Micro kernels with AVX2: a few rows by 16 columns of C.
//
// Preconditions: AVX2; those of vectors.h; 4 or 6 rows of a block.
//
// Beside what vectors.h asks for, Products has
//   groups(from)          8 groups of a row of A as a vector of 32-bit lanes
#pragma once

#include "vectors.h"

namespace icpu::gemm {

template <class Products, int rows_of_block, int depth_of_panel, int steps_of_turn = 1>
struct Avx2 : Vectors<Products, rows_of_block, 2, depth_of_panel, steps_of_turn> {
  using Base = Vectors<Products, rows_of_block, 2, depth_of_panel, steps_of_turn>;
  using typename Base::Element;
  using typename Base::Source;
  using Base::kBlock;
  using Base::kPair;
  using Base::kStep;
  static_assert(kBlock == 4 || kBlock == 6);

  // The first `rows` rows, at most kBlock, of a row-major A in the order of the packed A.
  static void pack(const Source* a, int64_t lda, int64_t rows, int64_t depth, Element* out) {
    constexpr int64_t part = 8 * kPair;
    static_assert(kStep % part == 0);
    auto* to = reinterpret_cast<float*>(out);
    for (int64_t k = 0, whole = round_up(depth, kStep); k < whole; k += part) {
      __m256 row[8];
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) row[r] = r < kBlock && r < rows ? some(a + r * lda + k, depth - k) : __m256{};
      transpose(row);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i, to += kBlock) store(to, row[i]);
    }
  }

 private:
  // 8 groups of a row, zeros beyond `count` values.
  static ICPU_INLINE __m256 some(const Source* from, int64_t count) {
    if (count >= 8 * kPair) return Products::groups(from);
    alignas(32) Source values[8 * kPair] = {};
    if (count > 0) std::memcpy(static_cast<void*>(values), from, static_cast<size_t>(count) * sizeof(Source));
    return Products::groups(values);
  }

  // A column of the packed A.
  static ICPU_INLINE void store(float* to, __m256 column) {
    _mm_storeu_ps(to, _mm256_castps256_ps128(column));
    if constexpr (kBlock == 6) _mm_storel_pi(reinterpret_cast<__m64*>(to + 4), _mm256_extractf128_ps(column, 1));
  }

  // 8 rows of 8 values become columns: by pairs of values, pairs of pairs, then halves.
  static ICPU_INLINE void transpose(__m256 (&v)[8]) {
    __m256 t[8];  // t[4 h + j], half q: column 4 q + j, rows 4 h to 4 h + 3
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
      const __m256 a = _mm256_unpacklo_ps(v[h], v[h + 1]), b = _mm256_unpackhi_ps(v[h], v[h + 1]);
      const __m256 c = _mm256_unpacklo_ps(v[h + 2], v[h + 3]), d = _mm256_unpackhi_ps(v[h + 2], v[h + 3]);
      t[h] = _mm256_shuffle_ps(a, c, 0x44);
      t[h + 1] = _mm256_shuffle_ps(a, c, 0xee);
      t[h + 2] = _mm256_shuffle_ps(b, d, 0x44);
      t[h + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      v[j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x20);
      v[4 + j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x31);
    }
  }
};

}  // namespace icpu::gemm
