// The micro kernel of bf16 attention with AMX tiles: 32 rows by 32 columns in 4 tiles.
//
// Preconditions: a CPU with amx_tile and amx_bf16, and a process that asked for tile data. The packed A is a sequence of
// steps of 32 in depth; a step is two tiles (rows 0-15, 16-31) of 16 rows of 32 values. The packed B is a sequence of
// steps; a step is two tiles (columns 0-15, 16-31) of 16 rows of 16 pairs B[2 r][c], B[2 r + 1][c]. Operands and results
// are in the caches: nothing is fetched ahead.
#pragma once

#include "../gemm/amx_bf16.h"

namespace icpu::attention {

struct AmxBf16 {
  using Element = bf16;
  using Thread = gemm::AmxBf16::Thread;
  static constexpr int kBlock = 32;
  static constexpr int kColumns = 32;
  static constexpr int kStep = 32;

  // c (+)= a @ b for the first `rows` rows, rounded up to tiles; c has rows of kColumns.
  static void block(const bf16* a, const bf16* b, float* c, int64_t rows, int64_t depth, bool accumulate) {
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
  static constexpr int64_t kTile = 16 * kStep;
  static constexpr int64_t kRow = kColumns * sizeof(float);

  template <int row_tiles>
  static ICPU_INLINE void tiles(const bf16* a, const bf16* b, float* c, int64_t depth, bool accumulate) {
    if (accumulate) {
      _tile_loadd(0, c, kRow);
      _tile_loadd(1, c + 16, kRow);
      if constexpr (row_tiles == 2) {
        _tile_loadd(2, c + 16 * kColumns, kRow);
        _tile_loadd(3, c + 16 * kColumns + 16, kRow);
      }
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += kStep, a += 2 * kTile, b += 2 * kTile) {
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + kTile, 64);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (row_tiles == 2) {
        _tile_loadd(5, a + kTile, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, c, kRow);
    _tile_stored(1, c + 16, kRow);
    if constexpr (row_tiles == 2) {
      _tile_stored(2, c + 16 * kColumns, kRow);
      _tile_stored(3, c + 16 * kColumns + 16, kRow);
    }
  }
};

}  // namespace icpu::attention
