// Micro kernels of int8 matrix products with AMX tiles, in int32: int8 or uint8 times int8.
//
// Preconditions: those of amx_tiles.h, and amx_int8. Sums wrap around beyond 32 bits.
#pragma once

#include "amx_tiles.h"

namespace icpu::gemm {

struct AmxS8Products {
  using Element = int8_t;
  using Weight = int8_t;
  using Sum = int32_t;
  using Vectors = VnniProducts<int8_t>;

  template <int n>
  static ICPU_INLINE void dot() {
    if constexpr (n == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (n == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (n == 2) _tile_dpbssd(2, 5, 6);
    if constexpr (n == 3) _tile_dpbssd(3, 5, 7);
  }
};

struct AmxU8Products {
  using Element = uint8_t;
  using Weight = int8_t;
  using Sum = int32_t;
  using Vectors = VnniProducts<uint8_t>;

  template <int n>
  static ICPU_INLINE void dot() {
    if constexpr (n == 0) _tile_dpbusd(0, 4, 6);
    if constexpr (n == 1) _tile_dpbusd(1, 4, 7);
    if constexpr (n == 2) _tile_dpbusd(2, 5, 6);
    if constexpr (n == 3) _tile_dpbusd(3, 5, 7);
  }
};

struct AmxS8 : AmxTiles<AmxS8Products> {};
struct AmxU8 : AmxTiles<AmxU8Products> {};

}  // namespace icpu::gemm
