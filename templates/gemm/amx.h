// What kernels with AMX tiles share: the configuration of tiles, and products of packed operands.
//
// Preconditions: a CPU with amx_tile and the type's tile products, and a process that asked for tile data. Tiles 0-3 hold C
// (0 and 1 its rows 0-15, 2 and 3 its rows 16-31), 4 and 5 A, 6 and 7 B; C is row-major with 32 columns of 4 bytes.
//
// The packed A is a sequence of steps of 64 bytes of depth; a step is two tiles (rows 0-15, 16-31) of 16 rows. The packed B
// is a sequence of steps; a step is two tiles (columns 0-15, 16-31) of 16 rows of 16 groups of neighbours in depth, 4 bytes
// each: B[2 r][c], B[2 r + 1][c] for 16-bit values.
//
// Products is a class with
//   Element, Weight, Sum   the types of A, B and C
//   dot<n>()               for n = 0 to 3: tile n += tile 4 + n / 2 of A times tile 6 + n % 2 of B
#pragma once

#include "base.h"

#include <immintrin.h>

namespace icpu::gemm {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};

  void load() const {
    // GCC 12 does not know that the instruction reads memory: the barrier keeps the stores that filled it.
    asm volatile("" : : "r"(this) : "memory");
    _tile_loadconfig(this);
  }
};

inline constexpr int64_t kTileColumns = 32;               // of C
inline constexpr int64_t kTileStride = kTileColumns * 4;  // bytes between two rows of C

// Tile n of C. The instructions want the number as a literal.
template <int n>
inline ICPU_INLINE void zero_tile() {
  if constexpr (n == 0) _tile_zero(0);
  if constexpr (n == 1) _tile_zero(1);
  if constexpr (n == 2) _tile_zero(2);
  if constexpr (n == 3) _tile_zero(3);
}

template <int n, class Sum>
inline ICPU_INLINE void load_tile(const Sum* c) {
  c += n / 2 * 16 * kTileColumns + n % 2 * 16;
  if constexpr (n == 0) _tile_loadd(0, c, kTileStride);
  if constexpr (n == 1) _tile_loadd(1, c, kTileStride);
  if constexpr (n == 2) _tile_loadd(2, c, kTileStride);
  if constexpr (n == 3) _tile_loadd(3, c, kTileStride);
}

template <int n, class Sum>
inline ICPU_INLINE void store_tile(Sum* c) {
  c += n / 2 * 16 * kTileColumns + n % 2 * 16;
  if constexpr (n == 0) _tile_stored(0, c, kTileStride);
  if constexpr (n == 1) _tile_stored(1, c, kTileStride);
  if constexpr (n == 2) _tile_stored(2, c, kTileStride);
  if constexpr (n == 3) _tile_stored(3, c, kTileStride);
}

inline ICPU_INLINE void zero_tiles() {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
}

// One or two rows of tiles.
template <int row_tiles, class Sum>
inline ICPU_INLINE void load_tiles(const Sum* c) {
  load_tile<0>(c);
  load_tile<1>(c);
  if constexpr (row_tiles == 2) {
    load_tile<2>(c);
    load_tile<3>(c);
  }
}

template <int row_tiles, class Sum>
inline ICPU_INLINE void store_tiles(Sum* c) {
  store_tile<0>(c);
  store_tile<1>(c);
  if constexpr (row_tiles == 2) {
    store_tile<2>(c);
    store_tile<3>(c);
  }
}

// The tiles of C += A @ B, both packed.
template <class Products, int row_tiles>
inline ICPU_INLINE void multiply_tiles(const typename Products::Element* a, const typename Products::Weight* b, int64_t steps) {
  constexpr int64_t tile = 16 * 64 / sizeof(*a);
  for (int64_t s = 0; s < steps; ++s, a += 2 * tile, b += 2 * tile) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    Products::template dot<0>();
    _tile_loadd(7, b + tile, 64);
    Products::template dot<1>();
    if constexpr (row_tiles == 2) {
      _tile_loadd(5, a + tile, 64);
      Products::template dot<2>();
      Products::template dot<3>();
    }
  }
}

}  // namespace icpu::gemm
