// The micro kernel of attention in float, in the prelude's vectors: as many rows by two vectors of columns as fit into
// the registers.
//
// Preconditions: the packed A is a sequence of steps of kLanes in depth; a step is kBlock rows of kLanes values. The
// packed B is a sequence of rows of kColumns columns, one for each depth.
#pragma once

#include "base.h"

namespace icpu::attention {

struct VecF32 {
  using Element = float;
  static constexpr int kBlock = kLanes == 16 ? 14 : 6;
  static constexpr int kBlocks = kLanes == 16 ? 4 : 8;  // of rows that share a second operand in the L1 cache
  static constexpr int kColumns = 2 * kLanes;
  static constexpr int kStep = kLanes;

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  // c (+)= a @ b for the first `rows` rows, rounded up to pairs: half as many functions are compiled in half the time. c
  // has kBlock rows of kColumns.
  static void block(const float* a, const float* b, float* c, int64_t rows, int64_t depth, bool accumulate) {
    static_assert(kBlock % 2 == 0);
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((rows == 2 * n + 1 || rows == 2 * n + 2 ? multiply_rows<2 * n + 2>(a, b, c, depth, accumulate) : void()), ...);
    }(std::make_integer_sequence<int, kBlock / 2>{});
  }

  static void stay_awake() {}

 private:
  static ICPU_INLINE Reg<float> load(const float* from) {
    Reg<float> value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

  template <int R>
  static void multiply_rows(const float* a, const float* b, float* c, int64_t depth, bool accumulate) {
    Reg<float> sum[R][2];
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = Reg<float>{};
    for (int64_t k = 0; k < depth; k += kStep, a += kBlock * kStep) {
      for (int i = 0; i < kStep; ++i, b += kColumns) {
        const Reg<float> left = load(b), right = load(b + kLanes);
#pragma GCC unroll 14
        for (int r = 0; r < R; ++r) {
          const Reg<float> value = splat_reg(a[r * kStep + i]);
          sum[r][0] = fma_reg(value, left, sum[r][0]);
          sum[r][1] = fma_reg(value, right, sum[r][1]);
        }
      }
    }
    // Each block of keys has sums of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* const place = c + r * kColumns + half * kLanes;
        if (accumulate) sum[r][half] += load(place);
        std::memcpy(place, &sum[r][half], sizeof(sum[r][half]));
      }
    }
  }
};

}  // namespace icpu::attention
