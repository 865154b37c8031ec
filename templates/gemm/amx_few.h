// Few rows with AMX tiles that have no more rows than there are.
//
// Preconditions: a CPU with amx_tile and the type's tile products, and a process that asked for tile data. A and B are
// packed as amx_tiles.h says, a step being 64 bytes of depth for any type; rows of A beyond the last one are not read.
//
// Products is a class with
//   Element, Weight, Sum   the types of A, B and C
//   dot<n>()               for n = 0 to 3: tile n += tile 4 + n / 2 of A times tile 6 + n % 2 of B
#pragma once

#include "few_rows.h"

#include <immintrin.h>

namespace icpu::gemm {

template <class Products>
struct AmxFew {
  using Element = typename Products::Element;
  using Weight = typename Products::Weight;
  using Sum = typename Products::Sum;
  static constexpr int64_t kMost = 32;

  // Tiles 0-3 hold C, 4 and 5 A, 6 and 7 B. Up to 16 rows, 2 and 3 are sums of odd steps: two chains of additions for each
  // tile of C hide the latency. With more they are the rows from 16 on.
  struct Thread {
    explicit Thread(int64_t rows) {
      struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {0, 0, 0, 0, 0, 0, 16, 16};
      } config;
      const auto first = static_cast<uint8_t>(std::min<int64_t>(rows, 16));
      const auto second = rows > 16 ? static_cast<uint8_t>(rows - 16) : first;
      for (const int tile : {0, 1, 4}) config.rows[tile] = first;
      for (const int tile : {2, 3, 5}) config.rows[tile] = second;
      // GCC 12 does not know that the instruction reads memory: the barrier keeps the stores that filled it.
      asm volatile("" : : "r"(&config) : "memory");
      _tile_loadconfig(&config);
    }
    Thread(const Thread&) = delete;
    ~Thread() { _tile_release(); }
  };

  static void panel(const Element* a, const Weight* b, Sum* c, int64_t rows, int64_t depth) {
    const int64_t steps = depth / kStep;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (rows > 16) {
      two_rows_of_tiles(a, b, c, steps);
    } else {
      one_row_of_tiles(a, b, c, rows, steps);
    }
  }

 private:
  static constexpr int64_t kStep = 64 / sizeof(Element);
  static constexpr int64_t kTile = 16 * kStep;
  static constexpr int64_t kColumns = 32;
  static constexpr int64_t kRow = kColumns * 4;

  static ICPU_INLINE void two_rows_of_tiles(const Element* a, const Weight* b, Sum* c, int64_t steps) {
    for (int64_t s = 0; s < steps; ++s, a += 2 * kTile, b += 2 * kTile) {
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
      _tile_loadd(5, a + kTile, 64);
      Products::template dot<2>();
      Products::template dot<3>();
    }
    _tile_stored(0, c, kRow);
    _tile_stored(1, c + 16, kRow);
    _tile_stored(2, c + 16 * kColumns, kRow);
    _tile_stored(3, c + 16 * kColumns + 16, kRow);
  }

  static ICPU_INLINE void one_row_of_tiles(const Element* a, const Weight* b, Sum* c, int64_t rows, int64_t steps) {
    int64_t s = 0;
    for (; s + 2 <= steps; s += 2, a += 4 * kTile, b += 4 * kTile) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
      _tile_loadd(5, a + 2 * kTile, 64);
      _tile_loadd(6, b + 2 * kTile, 64);
      Products::template dot<2>();
      _tile_loadd(7, b + 3 * kTile, 64);
      Products::template dot<3>();
    }
    if (s < steps) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
    }
    alignas(64) Sum odd[16 * kColumns];
    _tile_stored(0, c, kRow);
    _tile_stored(1, c + 16, kRow);
    _tile_stored(2, odd, kRow);
    _tile_stored(3, odd + 16, kRow);
    for (int64_t i = 0; i < rows * kColumns; ++i) c[i] += odd[i];
  }
};

}  // namespace icpu::gemm
