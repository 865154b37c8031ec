// The micro kernel of bf16 attention with AMX tiles: 32 rows by 32 columns in 4 tiles.
//
// Preconditions: those of gemm/amx.h, which says how A and B are packed, and amx_bf16. Operands and results are in the
// caches: nothing is fetched ahead.
//
// Products and softmax take turns: for about 90 cycles after an instruction on tiles, be it one that zeroes a tile, only
// one vector of 512 bits is computed in a cycle, not two (measured), so that nothing is won where both are mixed.
#pragma once

#include "../gemm/amx_bf16.h"

namespace icpu::attention {

struct AmxBf16 {
  using Element = bf16;
  using Dots = gemm::AmxBf16Products;
  using Thread = gemm::AmxBf16::Thread;
  static constexpr int kBlock = 32;
  static constexpr int kBlocks = 1;  // of rows that share a second operand in the L1 cache
  static constexpr int64_t kKeys = 64;  // or half as many more, which stay in the L1 cache with scores, weights and values
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

  // Products one after the other, as block() computes them. The sums of one are stored between the tile products of the
  // next one's first step: those do not wait for all of them.
  class Products {
   public:
    void multiply(const bf16* a, const bf16* b, float* c, int64_t rows, int64_t columns, int64_t depth, bool accumulate) {
      if (rows <= 16) {
        finish();
        return block(a, b, c, rows, columns, depth, accumulate);
      }
      if (before_ == nullptr) {
        accumulate ? first_step<false, true>(a, b, c) : first_step<false, false>(a, b, c);
      } else {
        accumulate ? first_step<true, true>(a, b, c) : first_step<true, false>(a, b, c);
      }
      gemm::multiply_tiles<Dots, 2>(a + 2 * kTile, b + 2 * kTile, gemm::ceil_div(depth, kStep) - 1);
      before_ = c;
    }

    // To be called before sums are read.
    void finish() {
      if (before_ != nullptr) gemm::store_tiles<2>(before_);
      before_ = nullptr;
    }

   private:
    static constexpr int64_t kTile = 16 * kStep;

    template <bool store, bool accumulate>
    ICPU_INLINE void first_step(const bf16* a, const bf16* b, const float* c) const {
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      exchange<store, accumulate, 0>(c);
      _tile_loadd(7, b + kTile, 64);
      exchange<store, accumulate, 1>(c);
      _tile_loadd(5, a + kTile, 64);
      exchange<store, accumulate, 2>(c);
      exchange<store, accumulate, 3>(c);
    }

    // Stores the sums of tile n, and begins the next ones.
    template <bool store, bool accumulate, int n>
    ICPU_INLINE void exchange(const float* c) const {
      if constexpr (store) gemm::store_tile<n>(before_);
      if constexpr (accumulate) {
        gemm::load_tile<n>(c);
      } else {
        gemm::zero_tile<n>();
      }
      Dots::dot<n>();
    }

    float* before_ = nullptr;  // whose sums are in tiles
  };

  // After a thousand cycles without a tile product, the next ones were measured to take as many longer (an idle unit that
  // wakes up): a product that nobody needs, now and then, is cheaper. Not between multiply() and finish().
  static ICPU_INLINE void stay_awake() { _tile_dpbf16ps(0, 4, 6); }

 private:
  template <int row_tiles>
  static ICPU_INLINE void tiles(const bf16* a, const bf16* b, float* c, int64_t depth, bool accumulate) {
    if (accumulate) {
      gemm::load_tiles<row_tiles>(c);
    } else {
      gemm::zero_tiles();
    }
    gemm::multiply_tiles<Dots, row_tiles>(a, b, gemm::ceil_div(depth, kStep));
    gemm::store_tiles<row_tiles>(c);
  }
};

}  // namespace icpu::attention
