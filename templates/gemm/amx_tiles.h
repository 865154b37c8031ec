// Matrix products with AMX tiles: 2 x 2 tiles of C, 32 rows by 32 columns, in registers.
//
// Preconditions: those of amx.h, which says what Products is and how A and B are packed, and AVX-512 (F, BW).
#pragma once

#include "amx_few.h"

#include <immintrin.h>

#include <type_traits>

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

  // The first step of what is multiplied next, both operands packed.
  struct Next {
    const Element* a = nullptr;
    const Weight* b = nullptr;
    bool operator==(const Next&) const = default;
  };

  // loaded: in tiles 4 to 7. Tiles are released at the end, so that the thread's state stays small.
  struct Thread {
    Next loaded;
    Thread() {
      static const TileConfig config;
      config.load();
    }
    Thread(const Thread&) = delete;
    ~Thread() { _tile_release(); }
  };

  // Inlined: a call between two blocks takes a tenth of their time. next: loaded before the sums are stored, as stores hold
  // up the loads that follow; none, or what the next call multiplies.
  template <class Rows, class Meanwhile>
  static ICPU_INLINE void block(Thread& thread, const Rows& a, const Weight* b, Sum* c, int64_t rows, int64_t depth,
                                bool accumulate, Meanwhile& meanwhile, const Next& next = {}) {
    const int64_t steps = depth / kStep;
    if (!is_loaded(thread, a, b)) load_step(step_of<AmxTiles>(a, 0), b, rows);
    thread.loaded = next;
    if (rows > 16) {
      two_rows_of_tiles(a, b, c, steps, accumulate, meanwhile, next);
    } else {
      one_row_of_tiles(a, b, c, steps, accumulate, meanwhile, next);
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

  template <class Rows>
  static ICPU_INLINE bool is_loaded(const Thread& thread, const Rows& a, const Weight* b) {
    if constexpr (std::is_pointer_v<Rows>) return thread.loaded == Next{a, b};
    return false;
  }

  // A streams through the L1 cache, where B has to stay.
  static ICPU_INLINE void load_step(const Element* a, const Weight* b, int64_t rows) {
    _tile_loadd(6, b, 64);
    _tile_stream_loadd(4, a, 64);
    _tile_loadd(7, b + kTile, 64);
    if (rows > 16) _tile_stream_loadd(5, a + kTile, 64);
  }

  // Rows that a packed block does not have are zeros.
  static ICPU_INLINE void load_next(const Next& next) {
    if (next.a != nullptr) load_step(next.a, next.b, kBlock);
  }

  // The first step is loaded.
  template <class Rows, class Meanwhile>
  static ICPU_INLINE void two_rows_of_tiles(const Rows& rows, const Weight* b, Sum* c, int64_t steps, bool accumulate,
                                            Meanwhile& meanwhile, const Next& next) {
    if (accumulate) {
      load_tiles<2>(c);
    } else {
      zero_tiles();
    }
    Products::template dot<0>();
    Products::template dot<1>();
    Products::template dot<2>();
    Products::template dot<3>();
    meanwhile(0);
    for (int64_t s = 1; s < steps; ++s) {
      b += 2 * kTile;
      const Element* const a = step_of<AmxTiles>(rows, s);
      _tile_loadd(6, b, 64);
      _tile_stream_loadd(4, a, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
      _tile_stream_loadd(5, a + kTile, 64);
      Products::template dot<2>();
      Products::template dot<3>();
      meanwhile(s);
    }
    load_next(next);
    store_tiles<2>(c);
  }

  // At most 16 rows: two chains of additions for each tile of C (even and odd steps) hide the latency. The first step is
  // loaded.
  template <class Rows, class Meanwhile>
  static ICPU_INLINE void one_row_of_tiles(const Rows& rows, const Weight* b, Sum* c, int64_t steps, bool accumulate,
                                           Meanwhile& meanwhile, const Next& next) {
    if (accumulate) {
      load_tiles<1>(c);
    } else {
      _tile_zero(0);
      _tile_zero(1);
    }
    _tile_zero(2);
    _tile_zero(3);
    Products::template dot<0>();
    Products::template dot<1>();
    meanwhile(0);
    int64_t s = 1;
    for (; s + 2 <= steps; s += 2) {
      b += 4 * kTile;
      _tile_stream_loadd(5, step_of<AmxTiles>(rows, s), 64);
      _tile_loadd(6, b - 2 * kTile, 64);
      Products::template dot<2>();
      _tile_loadd(7, b - kTile, 64);
      Products::template dot<3>();
      meanwhile(s);
      _tile_stream_loadd(4, step_of<AmxTiles>(rows, s + 1), 64);
      _tile_loadd(6, b, 64);
      Products::template dot<0>();
      _tile_loadd(7, b + kTile, 64);
      Products::template dot<1>();
      meanwhile(s + 1);
    }
    if (s < steps) {
      _tile_stream_loadd(5, step_of<AmxTiles>(rows, s), 64);
      _tile_loadd(6, b + 2 * kTile, 64);
      Products::template dot<2>();
      _tile_loadd(7, b + 3 * kTile, 64);
      Products::template dot<3>();
    }
    load_next(next);
    alignas(64) Sum odd[16 * kColumns];
    store_tiles<1>(c);
    _tile_stored(2, odd, kTileStride);
    _tile_stored(3, odd + 16, kTileStride);
    for (int64_t i = 0; i < 16 * kColumns; ++i) c[i] += odd[i];
  }
};

}  // namespace icpu::gemm
