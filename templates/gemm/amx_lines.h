// A few rows times B where it comes out of memory: dot products of vectors read the panels of AMX tiles line by line.
//
// Preconditions: A and B are packed as amx.h says. Vectors is a class of dot_bf16.h or vnni_avx512.h. While a busy host has
// slowed its tile unit down, tiles of B come at three quarters of the memory's pace (measured: 17 to 20 of 26 GB/s); lines
// keep it, and are as fast otherwise.
#pragma once

#include "amx.h"
#include "dot_bf16.h"
#include "vnni_avx512.h"

namespace icpu::gemm {

template <class Vectors, class Element>
class AmxLines {
  using Weight = typename Vectors::Weight;
  using Sum = typename Vectors::Sum;
  using Lanes = Reg<Sum>;
  static constexpr int64_t kStep = 64 / sizeof(Element), kGroup = 4 / sizeof(Element), kTile = 16 * kStep;
  // Bytes with a sign are multiplied as what is 128 more, and the sums of B times 128 are taken off.
  static constexpr bool kShifted = Vectors::kShifted;

 public:
  // More take longer than a line of B to come: a product of bf16 takes two cycles, one of bytes half a cycle.
  static constexpr int64_t kMost = sizeof(Element) == 1 ? 4 : 2;

  // c = a @ b for one panel: `rows` rows, at most kMost, of kTileColumns; or 4 for 3 rows.
  static void panel(const Element* a, const Weight* b, Sum* c, int64_t rows, int64_t steps) {
    if (rows == 1) {
      multiply<1>(a, b, c, steps);
    } else if (rows == 2) {
      multiply<2>(a, b, c, steps);
    } else if constexpr (kMost == 4) {
      multiply<4>(a, b, c, steps);
    }
  }

 private:
  template <int R>
  static void multiply(const Element* a, const Weight* b, Sum* c, int64_t steps) {
    constexpr int chains = R < 4 ? 2 : 1;  // of additions, of even and of odd lines: products wait for those before them
    Lanes sums[chains][R][2] = {}, all[chains][2] = {};
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t s = 0; s < steps; ++s, a += 2 * kTile, b += 2 * kTile) {
#pragma GCC unroll 16
      for (int line = 0; line < 16; ++line) {
        __m512i groups[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) groups[r] = spread(a + r * kStep + line * kGroup);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m512i weights = Vectors::line(b + half * kTile + line * 16 * kGroup);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            Lanes& sum = sums[line % chains][r][half];
            sum = Vectors::dot(sum, groups[r], weights);
          }
          if constexpr (kShifted) all[line % chains][half] = Vectors::dot(all[line % chains][half], ones, weights);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int half = 0; half < 2; ++half) {
        Lanes sum = sums[0][r][half], of_weights = all[0][half];
        if constexpr (chains == 2) sum += sums[1][r][half], of_weights += all[1][half];
        if constexpr (kShifted) sum -= of_weights << 7;
        std::memcpy(c + r * kTileColumns + half * 16, &sum, sizeof(sum));
      }
    }
  }

  // A group of neighbours in depth, in all lanes.
  static ICPU_INLINE __m512i spread(const Element* a) {
    int32_t group;
    std::memcpy(&group, a, sizeof(group));
    if constexpr (kShifted) group ^= static_cast<int32_t>(0x80808080);
    return _mm512_set1_epi32(group);
  }
};

}  // namespace icpu::gemm
