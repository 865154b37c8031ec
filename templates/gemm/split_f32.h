// The micro kernel of float matrix products with AMX tiles of bf16: 32 rows by 32 columns of C in registers.
//
// Preconditions: a CPU with amx_tile, amx_bf16 and AVX-512 (F, BW, DQ), and a process that asked for tile data. The packed
// B is a sequence of rows of 32 floats, one for each depth. The packed A is a sequence of steps of 32 in depth; a step has
// a record for each of 32 rows, the high, the middle and the low parts of 32 values.
//
// Of the nine products of parts (float_parts.h) the six largest are added up in float; what is left out is at most 2^-24 of
// each product, like a rounding to float. A pass of the depth (kDepth) has a sum of its own, so that chains of additions
// stay short. Henry, Tang and Heinecke describe the method and its errors in "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations" (2019). C is NaN where values take part that cannot be split:
// such a block is computed again by multiply_as_is.
#pragma once

#include "amx_bf16.h"
#include "few_rows.h"
#include "float_parts.h"

#include <immintrin.h>

namespace icpu::gemm {

struct SplitF32 {
  struct Element {  // the room of one value of A
    bf16 high, middle, low;
  };
  using Weight = float;
  using Sum = float;
  static constexpr int kBlock = 32;
  static constexpr int kRows = 16;
  static constexpr int kColumns = 32;
  static constexpr int kStep = 32;
  static constexpr bool kConverts = true;
  static constexpr bool kOverlaps = true;
  static constexpr int kDepth = 1024;  // the parts of a panel take 192 KiB of the L2 cache

  // The parts of the panel of B that was multiplied last, in steps like those of A, with tiles as in amx_bf16.h.
  struct Thread : AmxBf16::Thread {
    uint16_t* const parts = scratch<uint16_t, 19>(kDepth * kStepParts / kStep);
    const float* of = nullptr;
  };

  // Few rows are multiplied in float: B streams from memory, and splitting it would take longer.
  struct Few {
    static constexpr int64_t kMost = 4;

    struct Thread {
      explicit Thread(int64_t) {}
    };

    static void panel(const Element* a, const float* b, float* c, int64_t rows, int64_t depth) {
      multiply_few(a, b, c, 0, rows, depth);
    }
  };

  template <class Rows, class Meanwhile>
  static void block(Thread& thread, const Rows& a, const float* b, float* c, int64_t rows, int64_t depth,
                    bool accumulate, Meanwhile& meanwhile) {
    alignas(64) float sum[kBlock * kColumns];
    const bool split = thread.of != b;
    thread.of = b;
    if (rows > 16) {
      split ? multiply<2, true>(a, b, thread.parts, sum, depth, meanwhile)
            : multiply<2, false>(a, b, thread.parts, sum, depth, meanwhile);
    } else {
      split ? multiply<1, true>(a, b, thread.parts, sum, depth, meanwhile)
            : multiply<1, false>(a, b, thread.parts, sum, depth, meanwhile);
    }
    if (!scale_back(sum, rows)) [[unlikely]] multiply_as_is(a, b, sum, rows, depth);
    for (int64_t i = 0; i < rows * kColumns; i += 16) {
      const __m512 value = _mm512_load_ps(sum + i);
      _mm512_store_ps(c + i, accumulate ? _mm512_add_ps(_mm512_load_ps(c + i), value) : value);
    }
  }

  // Neighbouring values of row r, from depth k on.
  static ICPU_INLINE void copy(const float* from, int64_t count, int64_t k, int64_t r, Element* out) {
    auto* const start = reinterpret_cast<uint16_t*>(out) + r * kRecord;
    while (count > 0) {
      const int64_t inside = k % kStep, taken = std::min<int64_t>(kStep - inside, count);
      SplitA::split_some(from, taken, start + k / kStep * kBlock * kRecord + inside);
      from += taken;
      k += taken;
      count -= taken;
    }
  }

  // The first `rows` rows, at most kBlock, of a row-major A in the order of the packed A.
  static void pack(const float* a, int64_t lda, int64_t rows, int64_t depth, Element* out) {
    for (int64_t k = 0; k < depth; k += kStep, out += kBlock * kStep) {
      const int64_t count = std::min<int64_t>(kStep, depth - k);
      for (int64_t r = 0; r < rows; ++r) record(a + r * lda + k, count, out + r * kStep);
      for (int64_t r = rows; r < round_up(rows, kRows); ++r) SplitA::store({}, reinterpret_cast<uint16_t*>(out + r * kStep));
    }
  }

  // At most kStep neighbouring values, zeros after them.
  static ICPU_INLINE void record(const float* from, int64_t count, Element* out) {
    auto* const to = reinterpret_cast<uint16_t*>(out);
    const auto parts = SplitA::split(SplitA::load_pairs(from, count));
    SplitA::store(parts, to);
    if (parts.large) [[unlikely]] SplitA::split_as_is(from, count, to);
  }

 private:
  static constexpr int64_t kTile = 16 * kStep;
  static constexpr int64_t kPart = 2 * kTile;
  static constexpr int64_t kStepParts = 3 * kPart;
  static constexpr int64_t kRecord = 3 * kStep;
  using SplitA = FloatParts<kStep>;
  using SplitB = FloatParts<kPart>;
  static constexpr int kGroup = 4;  // rows that are multiplied as floats at once, in passes of the depth
  static constexpr int kPass = 256;

  // The parts of a step of A.
  template <class Rows>
  static ICPU_INLINE const uint16_t* parts_of(const Rows& a, int64_t step) {
    return reinterpret_cast<const uint16_t*>(step_of<SplitF32>(a, step));
  }

  // Eighths of a step of B: two rows of 32 floats become a row of pairs in two tiles.
  template <int eighth>
  static ICPU_INLINE void split_rows(const float* b, uint16_t* out) {
#pragma GCC unroll 4
    for (int64_t i = 4 * eighth; i < 4 * eighth + 4; ++i) {
      const int64_t pair = i / 2, tile = i % 2;
      const float* const row = b + 2 * pair * kColumns + 16 * tile;
      uint16_t* const to = out + tile * kTile + pair * kStep;
      const auto parts = SplitB::split({_mm512_load_ps(row), _mm512_load_ps(row + kColumns)});
      SplitB::store(parts, to);
      if (parts.large) [[unlikely]] split_rows_as_is(row, to);
    }
  }

  // Sixteen pairs of values of B, some of them large.
  [[gnu::noinline]] static void split_rows_as_is(const float* row, uint16_t* out) {
    for (int64_t c = 0; c < 16; ++c) {
      SplitB::split_one(row[c], out + 2 * c);
      SplitB::split_one(row[kColumns + c], out + 2 * c + 1);
    }
  }

  // The same product in float.
  template <class Rows>
  [[gnu::noinline]] static void multiply_as_is(const Rows& a, const float* b, float* c, int64_t rows, int64_t depth) {
    for (int64_t first = 0; first < rows; first += kGroup) {
      multiply_few(a, b, c, first, std::min<int64_t>(kGroup, rows - first), depth);
    }
  }

  // C = A @ B for one or two rows of tiles. While a step is multiplied, the next one of B is split.
  template <int tiles, bool splits, class Rows, class Meanwhile>
  static void multiply(const Rows& a, const float* b, uint16_t* parts, float* c, int64_t depth, Meanwhile& meanwhile) {
    zero_tiles();
    if constexpr (splits) {
      [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
        (split_rows<n>(b, parts), ...);
      }(std::make_integer_sequence<int, 8>{});
    }
    const uint16_t* const last = parts + (depth / kStep - 1) * kStepParts;
    int64_t step = 0;
    for (; parts < last; ++step, b += kStep * kColumns, parts += kStepParts) {
      meanwhile(step);
      multiply_step<tiles, splits>(parts_of(a, step), parts, b + kStep * kColumns);
    }
    multiply_step<tiles, false>(parts_of(a, step), parts, nullptr);
    store_tiles<tiles>(c);
    if constexpr (tiles == 1) {
      alignas(64) float other[16 * kColumns];
      _tile_stored(2, other, kTileStride);
      _tile_stored(3, other + 16, kTileStride);
      for (int64_t i = 0; i < 16 * kColumns; i += 16) {
        _mm512_store_ps(c + i, _mm512_add_ps(_mm512_load_ps(c + i), _mm512_load_ps(other + i)));
      }
    }
  }

  // Six products of parts; each has one operand of the one before it, which stays in its tiles. With one row of tiles they
  // take turns with two sums, so that an addition does not wait for the one before it.
  template <int tiles, bool splits>
  static ICPU_INLINE void multiply_step(const uint16_t* a, uint16_t* b, const float* following) {
    constexpr int64_t high = 0, middle = 1, low = 2;
    const auto ahead = [&]<int n>(std::integral_constant<int, n>) ICPU_INLINE {
      if constexpr (splits) split_rows<n>(following, b + kStepParts);
    };
    const auto load_a = [&](int64_t part) ICPU_INLINE {
      _tile_loadd(4, a + part * kStep, kRecord * sizeof(*a));
      if constexpr (tiles == 2) _tile_loadd(5, a + 16 * kRecord + part * kStep, kRecord * sizeof(*a));
    };
    const auto load_b = [&](int64_t part) ICPU_INLINE {
      _tile_loadd(6, b + part * kPart, 64);
      _tile_loadd(7, b + part * kPart + kTile, 64);
    };
    const auto first = [] ICPU_INLINE {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    };
    const auto second = [] ICPU_INLINE {
      if constexpr (tiles == 2) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    };
    const auto first_of_other = [&] ICPU_INLINE {
      if constexpr (tiles == 2) return first();
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 7);
    };
    load_b(high);
    load_a(low);
    ahead(std::integral_constant<int, 0>{});
    first();
    second();
    load_a(middle);
    ahead(std::integral_constant<int, 1>{});
    first_of_other();
    ahead(std::integral_constant<int, 2>{});
    second();
    load_b(middle);
    ahead(std::integral_constant<int, 3>{});
    first();
    second();
    load_a(high);
    ahead(std::integral_constant<int, 4>{});
    first_of_other();
    ahead(std::integral_constant<int, 5>{});
    second();
    load_b(low);
    ahead(std::integral_constant<int, 6>{});
    first();
    second();
    load_b(high);
    ahead(std::integral_constant<int, 7>{});
    first_of_other();
    second();
  }

  // Takes the scales back. Whether no value is NaN.
  static ICPU_INLINE bool scale_back(float* c, int64_t rows) {
    unsigned strange = 0;
    for (int64_t i = 0; i < rows * kColumns; i += 16) {
      const __m512 value = _mm512_load_ps(c + i);
      strange |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
      _mm512_store_ps(c + i, _mm512_mul_ps(value, _mm512_set1_ps(1 / SplitB::kScale / SplitB::kScale)));
    }
    return strange == 0;
  }

  // C = A @ B for up to kGroup rows in float. Even and odd depths
  // have sums of their own, so that additions wait less; and passes of the depth, so that errors stay small.
  template <class Rows>
  static void multiply_few(const Rows& a, const float* b, float* c, int64_t first, int64_t rows, int64_t depth) {
    float values[kGroup][kPass];
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      for (int64_t k = 0; k < depth; k += kPass) {
        const int64_t part = std::min<int64_t>(kPass, depth - k);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < part; i += kStep) {
            SplitA::join(parts_of(a, (k + i) / kStep) + (first + r) * kRecord, values[r] + i);
          }
        }
        float* const to = c + first * kColumns;
        ((rows == n + 1 ? multiply_rows<n + 1>(values, b + k * kColumns, to, part, k > 0) : void()), ...);
      }
    }(std::make_integer_sequence<int, kGroup>{});
  }

  template <int R>
  static void multiply_rows(const float (&values)[kGroup][kPass], const float* b, float* c, int64_t depth, bool add) {
    __m512 sum[2][R][2] = {};
    for (int64_t k = 0; k < depth; k += 2) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd, b += kColumns) {
        const __m512 left = _mm512_load_ps(b), right = _mm512_load_ps(b + 16);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m512 value = _mm512_set1_ps(values[r][k + odd]);
          sum[odd][r][0] = _mm512_fmadd_ps(value, left, sum[odd][r][0]);
          sum[odd][r][1] = _mm512_fmadd_ps(value, right, sum[odd][r][1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        float* const to = c + r * kColumns + 16 * j;
        const __m512 total = _mm512_add_ps(sum[0][r][j], sum[1][r][j]);
        _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), total) : total);
      }
    }
  }
};

}  // namespace icpu::gemm
