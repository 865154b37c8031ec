// Few rows with AMX tiles that have no more rows than there are.
//
// Preconditions: those of amx.h, which says what Products is and how A and B are packed; rows of A beyond the last one are
// not read.
#pragma once

#include "amx_lines.h"
#include "few_rows.h"

#include <immintrin.h>

namespace icpu::gemm {

template <class Products>
struct AmxFew {
  using Element = typename Products::Element;
  using Weight = typename Products::Weight;
  using Sum = typename Products::Sum;
  using Lines = AmxLines<typename Products::Vectors, Element>;
  static constexpr int64_t kMost = 32, kMostOfLines = Lines::kMost;

  // Up to 16 rows, tiles 2 and 3 are sums of odd steps: two chains of additions for each tile of C hide the latency.
  struct Thread {
    explicit Thread(int64_t rows) {
      TileConfig config;
      const auto first = static_cast<uint8_t>(std::min<int64_t>(rows, 16));
      const auto second = rows > 16 ? static_cast<uint8_t>(rows - 16) : first;
      for (const int tile : {0, 1, 4}) config.rows[tile] = first;
      for (const int tile : {2, 3, 5}) config.rows[tile] = second;
      config.load();
    }
    Thread(const Thread&) = delete;
    ~Thread() { _tile_release(); }
  };

  // The same for up to kMostOfLines rows where B comes out of memory.
  static void panel_of_lines(const Element* a, const Weight* b, Sum* c, int64_t rows, int64_t depth) {
    Lines::panel(a, b, c, rows, depth / kStep);
  }

  static void panel(const Element* a, const Weight* b, Sum* c, int64_t rows, int64_t depth) {
    const int64_t steps = depth / kStep;
    zero_tiles();
    if (rows > 16) {
      multiply_tiles<Products, 2>(a, b, steps);
      store_tiles<2>(c);
    } else {
      one_row_of_tiles(a, b, c, rows, steps);
    }
  }

 private:
  static constexpr int64_t kStep = 64 / sizeof(Element);
  static constexpr int64_t kTile = 16 * kStep;

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
    alignas(64) Sum odd[16 * kTileColumns];
    store_tiles<1>(c);
    _tile_stored(2, odd, kTileStride);
    _tile_stored(3, odd + 16, kTileStride);
    for (int64_t i = 0; i < rows * kTileColumns; ++i) c[i] += odd[i];
  }
};

}  // namespace icpu::gemm
