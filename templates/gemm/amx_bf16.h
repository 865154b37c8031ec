// The micro kernel of bf16 matrix products with AMX tiles.
//
// Preconditions: those of amx_tiles.h, and amx_bf16.
#pragma once

#include "amx_tiles.h"

namespace icpu::gemm {

struct AmxBf16Products {
  using Element = bf16;
  using Weight = bf16;
  using Sum = float;
  using Vectors = DotBf16Products;

  template <int n>
  static ICPU_INLINE void dot() {
    if constexpr (n == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (n == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (n == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (n == 3) _tile_dpbf16ps(3, 5, 7);
  }
};

struct AmxBf16 : AmxTiles<AmxBf16Products> {};

}  // namespace icpu::gemm
