// Matrix products with AMX tiles: 2 x 2 tiles of C, 32 rows by 32 columns, in registers.
//
// Preconditions: a CPU with amx_tile, the type's tile products and AVX-512 (F, BW), and a process that asked for tile data.
// A step is 64 bytes of depth. The packed A is a sequence of steps; a step is two tiles (rows 0-15, 16-31) of 16 rows. The
// packed B is a sequence of steps; a step is two tiles (columns 0-15, 16-31) of 16 rows of 16 groups of neighbours in depth,
// 4 bytes each: B[2 r][c], B[2 r + 1][c] for 16-bit values.
//
// Products is what amx_few.h says.
#pragma once

#include "amx_few.h"

#include <immintrin.h>

namespace icpu::gemm {

template <class Products>
struct AmxTiles {
  using Element = typename Products::Element;
  using Weight = typename Products::Weight;
  using Sum = typename Products::Sum;
  using Few = AmxFew<Products>;
  static constexpr int kBlock = 32;
  static constexpr int kRows = 16;
  static constexpr int kColumns = 32;
  static constexpr int kStep = 64 / sizeof(Element);
  static constexpr bool kOverlaps = true;
  static constexpr int kDepth = 16 * kStep;  // 32 KiB of a panel

  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };

  // Tiles 0-3 hold C, 4 and 5 A, 6 and 7 B. They are released at the end, so that the thread's state stays small.
  struct Thread {
    Thread() {
      static const Config config;
      // GCC 12 does not know that the instruction reads memory: the barrier keeps the stores that filled it.
      asm volatile("" : : "r"(&config) : "memory");
      _tile_loadconfig(&config);
    }
    Thread(const Thread&) = delete;
    ~Thread() { _tile_release(); }
  };

  template <class Rows, class Meanwhile>
  static void block(Thread&, const Rows& a, const Weight* b, Sum* c, int64_t rows, int64_t depth, bool accumulate,
                    Meanwhile& meanwhile) {
    const int64_t steps = depth / kStep;
    if (rows > 16) {
      two_rows_of_tiles(a, b, c, steps, accumulate, meanwhile);
    } else {
      one_row_of_tiles(a, b, c, steps, accumulate, meanwhile);
    }
  }

  // Neighbouring values of row r, from depth k on.
  static ICPU_INLINE void copy(const Element* from, int64_t count, int64_t k, int64_t r, Element* out) {
    while (count > 0) {
      const int64_t inside = k % kStep, taken = std::min<int64_t>(kStep - inside, count);
      const __mmask64 some = bytes_of(taken);
      Element* const to = out + (k / kStep * kBlock + r) * kStep + inside;
      _mm512_mask_storeu_epi8(to, some, _mm512_maskz_loadu_epi8(some, from));
      from += taken;
      k += taken;
      count -= taken;
    }
  }

  // At most kStep neighbouring values, zeros after them.
  static ICPU_INLINE void record(const Element* from, int64_t count, Element* out) {
    _mm512_store_si512(out, _mm512_maskz_loadu_epi8(bytes_of(count), from));
  }

  // The first `rows` rows, at most kBlock, of a row-major A in the order of the packed A.
  static void pack(const Element* a, int64_t lda, int64_t rows, int64_t depth, Element* out) {
    for (int64_t start = 0; start < depth; start += kRead, out += kRead * kBlock) {
      for (int64_t r = 0; r < kBlock; ++r) {
        Element* to = out + r * kStep;
        for (int64_t k = start; k < std::min(start + kRead, depth); k += kStep, to += kBlock * kStep) {
          const __mmask64 some = bytes_of(depth - k);
          _mm512_store_si512(to, r < rows ? _mm512_maskz_loadu_epi8(some, a + r * lda + k) : __m512i{});
        }
      }
    }
  }

 private:
  static ICPU_INLINE __mmask64 bytes_of(int64_t count) {
    return count >= kStep ? ~__mmask64{0} : (__mmask64{1} << (count * int64_t(sizeof(Element)))) - 1;
  }

  static constexpr int64_t kTile = 16 * kStep;
  static constexpr int64_t kRead = 4 * kStep;  // neighbouring lines of a row come faster
  static constexpr int64_t kRow = kColumns * sizeof(Sum);

  // A streams through the L1 cache, where B has to stay.
  template <class Rows, class Meanwhile>
  static ICPU_INLINE void two_rows_of_tiles(const Rows& rows, const Weight* b, Sum* c, int64_t steps, bool accumulate,
                                            Meanwhile& meanwhile) {
    if (accumulate) {
      _tile_loadd(0, c, kRow);
      _tile_loadd(1, c + 16, kRow);
      _tile_loadd(2, c + 16 * kColumns, kRow);
      _tile_loadd(3, c + 16 * kColumns + 16, kRow);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; ++s, b += 2 * kTile) {
      const Element* const a = step_of<AmxTiles>(rows, s);
      _tile_loadd(6, b, 64);
      _tile_stream_loadd(4, a, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
      _tile_stream_loadd(5, a + kTile, 64);
      Products::template dot<2>();
      Products::template dot<3>();
      meanwhile();
    }
    _tile_stored(0, c, kRow);
    _tile_stored(1, c + 16, kRow);
    _tile_stored(2, c + 16 * kColumns, kRow);
    _tile_stored(3, c + 16 * kColumns + 16, kRow);
  }

  // At most 16 rows: two chains of additions for each tile of C (even and odd steps) hide the latency.
  template <class Rows, class Meanwhile>
  static ICPU_INLINE void one_row_of_tiles(const Rows& rows, const Weight* b, Sum* c, int64_t steps, bool accumulate,
                                           Meanwhile& meanwhile) {
    if (accumulate) {
      _tile_loadd(0, c, kRow);
      _tile_loadd(1, c + 16, kRow);
    } else {
      _tile_zero(0);
      _tile_zero(1);
    }
    _tile_zero(2);
    _tile_zero(3);
    int64_t s = 0;
    for (; s + 2 <= steps; s += 2, b += 4 * kTile) {
      _tile_stream_loadd(4, step_of<AmxTiles>(rows, s), 64);
      _tile_loadd(6, b, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
      meanwhile();
      _tile_stream_loadd(5, step_of<AmxTiles>(rows, s + 1), 64);
      _tile_loadd(6, b + 2 * kTile, 64);
      Products::template dot<2>();
      _tile_loadd(7, b + 3 * kTile, 64);
      Products::template dot<3>();
      meanwhile();
    }
    if (s < steps) {
      _tile_stream_loadd(4, step_of<AmxTiles>(rows, s), 64);
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
    for (int64_t i = 0; i < 16 * kColumns; ++i) c[i] += odd[i];
  }
};

}  // namespace icpu::gemm
