// The micro kernel of float matrix products in the prelude's vectors, for any instruction set that has them.
//
// Preconditions: those of templates/gemm/multiply.h. The packed A is a sequence of steps of kLanes in depth; a step is
// kBlock rows of kLanes values. The packed B is a sequence of rows of kColumns columns, one for each depth.
#pragma once

#include "../gemm/multiply.h"

namespace icpu::attention {

struct VecF32 {
  using Element = float;
  static constexpr int kBlock = 6;
  static constexpr int kColumns = 2 * kLanes;
  static constexpr int kStep = kLanes;
  static constexpr int kDepth = 256;

  struct Thread {
    Thread() {}  // not trivial, so that an object that only lives is no unused variable
  };

  static void block(const float* a, const float* b, const float*, float* c, int64_t, int64_t depth, bool accumulate) {
    Reg<float> sum[kBlock][2];
#pragma GCC unroll 8
    for (int r = 0; r < kBlock; ++r) sum[r][0] = sum[r][1] = Reg<float>{};
    for (int64_t k = 0; k < depth; k += kStep, a += kBlock * kStep) {
      for (int i = 0; i < kStep; ++i, b += kColumns) {
        Reg<float> left, right;
        std::memcpy(&left, b, sizeof(left));
        std::memcpy(&right, b + kLanes, sizeof(right));
#pragma GCC unroll 8
        for (int r = 0; r < kBlock; ++r) {
          const Reg<float> value = splat_reg(a[r * kStep + i]);
          sum[r][0] = fma_reg(value, left, sum[r][0]);
          sum[r][1] = fma_reg(value, right, sum[r][1]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kBlock; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* const place = c + r * kColumns + half * kLanes;
        if (accumulate) {
          Reg<float> before;
          std::memcpy(&before, place, sizeof(before));
          sum[r][half] += before;
        }
        std::memcpy(place, &sum[r][half], sizeof(sum[r][half]));
      }
    }
  }
};

}  // namespace icpu::attention
