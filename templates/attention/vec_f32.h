// The micro kernel of attention in float, in the prelude's vectors: as many rows by two vectors of columns as fit into
// the registers.
//
// Preconditions: the packed A is a sequence of steps of kLanes in depth; a step is kBlock rows of kLanes values. The
// packed B is a sequence of rows of kColumns columns, one for each depth.
#pragma once

#include "at_once.h"

namespace icpu::attention {

struct VecF32 {
  using Products = AtOnce<VecF32>;
  using Element = float;
  static constexpr int kBlock = kLanes == 16 ? 14 : 6;
  static constexpr int kBlocks = kLanes == 16 ? 4 : 8;  // of rows that share a second operand in the L1 cache
  static constexpr int64_t kKeys = 256;  // or half as many more, whose scores and weights stay in the L1 and L2 caches
  static constexpr int kColumns = 2 * kLanes;
  static constexpr int kStep = kLanes;

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  // c (+)= a @ b for the first `rows` rows, rounded up to pairs (half as many functions are compiled in half the time), and
  // `columns` columns, rounded up to vectors. c has kBlock rows of kColumns.
  static void block(const float* a, const float* b, float* c, int64_t rows, int64_t columns, int64_t depth, bool accumulate) {
    const auto by = columns > kLanes ? by_pairs<2> : by_pairs<1>;
    by(a, b, c, rows, depth, accumulate);
  }

  static void stay_awake() {}

 private:
  template <int Vectors>
  static void by_pairs(const float* a, const float* b, float* c, int64_t rows, int64_t depth, bool accumulate) {
    static_assert(kBlock % 2 == 0);
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((rows == 2 * n + 1 || rows == 2 * n + 2 ? multiply_rows<2 * n + 2, Vectors>(a, b, c, depth, accumulate) : void()), ...);
    }(std::make_integer_sequence<int, kBlock / 2>{});
  }

  template <int R, int Vectors>
  static void multiply_rows(const float* a, const float* b, float* c, int64_t depth, bool accumulate) {
    Reg<float> sum[R][Vectors] = {};
    for (int64_t k = 0; k < depth; k += kStep, a += kBlock * kStep) {
      for (int i = 0, end = std::min<int64_t>(kStep, depth - k); i < end; ++i, b += kColumns) {
        Reg<float> line[Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) line[v] = load_reg(b + v * kLanes);
#pragma GCC unroll 14
        for (int r = 0; r < R; ++r) {
          const Reg<float> value = splat_reg(a[r * kStep + i]);
#pragma GCC unroll 2
          for (int v = 0; v < Vectors; ++v) sum[r][v] = fma_reg(value, line[v], sum[r][v]);
        }
      }
    }
    // Each block of keys has sums of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        float* const place = c + r * kColumns + v * kLanes;
        if (accumulate) sum[r][v] += load_reg(place);
        std::memcpy(place, &sum[r][v], sizeof(sum[r][v]));
      }
    }
  }
};

}  // namespace icpu::attention
