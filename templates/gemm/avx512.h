// Micro kernels with AVX-512: 8 rows by 48 columns of C in 24 registers.
//
// Preconditions: AVX-512 (F, BW); those of vectors.h.
//
// Beside what vectors.h asks for, Products has
//   groups(from, count)   16 groups of a row of A as a vector of 32-bit lanes; zero beyond `count` values
#pragma once

#include "vectors.h"

namespace icpu::gemm {

// Lanes below a number of them.
template <class Mask>
inline ICPU_INLINE Mask first_lanes(int64_t count) {
  constexpr int64_t bits = 8 * sizeof(Mask);
  return static_cast<Mask>(count >= bits ? ~uint64_t{0} : (uint64_t{1} << count) - 1);
}

template <class Products>
struct Avx512 : Vectors<Products, 8, 3, 192 * Products::kPair> {  // a panel of 36 KiB
  using Base = Vectors<Products, 8, 3, 192 * Products::kPair>;
  using typename Base::Element;
  using typename Base::Source;
  using Base::kBlock;
  using Base::kStep;

  // The first `rows` rows, at most kBlock, of a row-major A in the order of the packed A.
  static void pack(const Source* a, int64_t lda, int64_t rows, int64_t depth, Element* out) {
    auto* to = reinterpret_cast<float*>(out);
    for (int64_t k = 0; k < depth; k += kStep) {
      __m512 row[kBlock];
#pragma GCC unroll 8
      for (int r = 0; r < kBlock; ++r) row[r] = r < rows ? Products::groups(a + r * lda + k, depth - k) : __m512{};
      transpose(row);
#pragma GCC unroll 8
      for (int i = 0; i < kBlock; ++i, to += 16) _mm512_storeu_ps(to, row[i]);
    }
  }

 private:
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
};

}  // namespace icpu::gemm
