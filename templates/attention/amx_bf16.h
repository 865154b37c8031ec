// The micro kernel of bf16 attention with AMX tiles: 32 rows by 32 columns in 4 tiles.
//
// Preconditions: those of gemm/amx.h, which says how A and B are packed, and amx_bf16. Operands and results are in the
// caches: nothing is fetched ahead.
#pragma once

#include "../gemm/amx_bf16.h"

namespace icpu::attention {

struct AmxBf16 {
  using Element = bf16;
  using Thread = gemm::AmxBf16::Thread;
  static constexpr int kBlock = 32;
  static constexpr int kBlocks = 1;  // of rows that share a second operand in the L1 cache
  static constexpr int kColumns = 32;
  static constexpr int kStep = 32;

  // c (+)= a @ b for the first `rows` rows and a depth that are both rounded up to tiles, and all columns of a panel; c has
  // rows of kColumns.
  static void block(const bf16* a, const bf16* b, float* c, int64_t rows, int64_t, int64_t depth, bool accumulate) {
    if (rows > 16) {
      tiles<2>(a, b, c, depth, accumulate);
    } else {
      tiles<1>(a, b, c, depth, accumulate);
    }
  }

  // After several thousand cycles without a tile product, the next ones were measured to take about 640 cycles longer
  // (an idle unit that wakes up, or lower clocks): a product that nobody needs, now and then, is cheaper.
  static ICPU_INLINE void stay_awake() { _tile_dpbf16ps(0, 4, 6); }

 private:
  template <int row_tiles>
  static ICPU_INLINE void tiles(const bf16* a, const bf16* b, float* c, int64_t depth, bool accumulate) {
    if (accumulate) {
      gemm::load_tiles<row_tiles>(c);
    } else {
      gemm::zero_tiles();
    }
    gemm::multiply_tiles<gemm::AmxBf16Products, row_tiles>(a, b, gemm::ceil_div(depth, kStep));
    gemm::store_tiles<row_tiles>(c);
  }
};

}  // namespace icpu::attention
