// The micro kernel of bf16 matrices times int8 weights with AMX tiles.
//
// Preconditions: those of amx_bf16.h, and amx_int8. B is packed as for amx_int8.h, A as for amx_bf16.h, two steps of it to a
// step of B.
//
// Many rows: every int8 is a bf16, exactly; the first block of rows that meets a panel makes tiles of bf16, which the
// others read.
//
// Few rows: B streams from memory as it is, and is multiplied by int8 tiles: a row of A becomes four rows of digits. With
// 2^e above all of a row, x 2^(30 - e), rounded, is d0 + d1 2^8 + d2 2^16 + d3 2^24 with digits of -128 to 127. Sums of
// products of digits are exact; what is lost of x is 2^-31 of the largest value.
#pragma once

#include "amx_bf16.h"
#include "amx_int8.h"

#include <bit>
#include <cmath>

namespace icpu::gemm {

// The digits of a few rows of bf16.
class RowsOfDigits {
 public:
  static constexpr int64_t kDigits = 4, kStep = 64, kGroup = 8;  // rows of A whose digits fill two tiles
  static constexpr int64_t kTiles = kGroup * kDigits * kStep;    // bytes of a step of a group

  // a: rows packed for AmxBf16, depth a multiple of kStep.
  RowsOfDigits(const bf16* a, int64_t rows, int64_t depth)
      : a_(a), depth_(depth), digits_(scratch<int8_t, 19>(ceil_div(rows, kGroup) * depth / kStep * kTiles)) {
    for (int64_t r = 0; r < rows; ++r) split(r);
  }

  // Tiles of a group of rows from a step on; steps follow each other.
  const int8_t* tiles(int64_t group, int64_t k) const { return digits_ + (group * depth_ + k) / kStep * kTiles; }

  // What sums of digit 0 of a row are multiplied with.
  float unit(int64_t r) const { return unit_[r]; }
  bool finite() const { return finite_; }

  float value(int64_t r, int64_t k) const { return a_[(k / AmxBf16::kStep * AmxBf16::kBlock + r) * AmxBf16::kStep + k % AmxBf16::kStep]; }

 private:
  void split(int64_t r) {
    constexpr int64_t some = AmxBf16::kStep;
    __m512i most = __m512i{};
    for (int64_t k = 0; k < depth_; k += some) {
      most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_load_si512(row(r, k)), _mm512_set1_epi16(0x7fff)));
    }
    alignas(64) uint16_t largest[32];
    _mm512_store_si512(largest, most);
    const int exponent = *std::max_element(largest, largest + 32) >> 7;  // 2^(exponent - 126) is above all
    if (exponent == 0xff) {
      finite_ = false;
      return;
    }
    // In two steps, so that neither is infinite; the product is exact but for results below 1.
    const int up = std::min(156 - exponent, 148), first = up / 2, second = up - first;  // 2^-148 is a float
    const __m512 scales[2] = {_mm512_set1_ps(std::ldexp(1.0f, first)), _mm512_set1_ps(std::ldexp(1.0f, second))};
    unit_[r] = std::ldexp(1.0f, -up);
    for (int64_t k = 0; k < depth_; k += 16) {
      const auto bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(row(r, k / some * some) + k % some));
      const __m512 x = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
      __m512i rest = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(x, scales[0]), scales[1]));
      int8_t* const out = digits_ + (r / kGroup * depth_ + k) / kStep * kTiles + r % kGroup * kDigits * kStep + k % kStep;
#pragma GCC unroll 4
      for (int64_t d = 0; d < kDigits; ++d) {
        _mm_store_si128(reinterpret_cast<__m128i*>(out + d * kStep), _mm512_cvtepi32_epi8(rest));
        // The digit that was stored has a sign: half of a unit more decides what is left.
        rest = _mm512_srai_epi32(_mm512_add_epi32(rest, _mm512_set1_epi32(128)), 8);
      }
    }
  }

  const bf16* row(int64_t r, int64_t k) const { return a_ + (k / AmxBf16::kStep * AmxBf16::kBlock + r) * AmxBf16::kStep; }

  const bf16* a_;
  int64_t depth_;
  int8_t* digits_;
  float unit_[AmxBf16::kBlock] = {};
  bool finite_ = true;
};

struct AmxBf16S8 {
  using Element = bf16;
  using Weight = int8_t;
  using Sum = float;
  static constexpr int kBlock = AmxBf16::kBlock;
  static constexpr int kRows = AmxBf16::kRows;
  static constexpr int kColumns = AmxBf16::kColumns;
  static constexpr int kStep = 2 * AmxBf16::kStep;
  static constexpr int kDepth = AmxBf16::kDepth;
  static constexpr bool kConverts = true;
  static constexpr bool kOverlaps = true;
  static_assert(kDepth % kStep == 0);

  struct Thread : AmxBf16::Thread {
    bf16* const tiles = scratch<bf16, 19>(kDepth * kColumns);
    const int8_t* of = nullptr;
  };

  struct Few {
    static constexpr int64_t kMost = AmxBf16::kBlock, kMostOfLines = 1;
    using Rows = RowsOfDigits;

    struct Thread : AmxBf16::Thread {
      explicit Thread(int64_t) {}
    };

    // `depth` values from k on, of one row, whose digits are as many rows as AmxLines takes.
    static void panel_of_lines(const Rows& a, int64_t k, const int8_t* b, float* c, int64_t rows, int64_t depth) {
      if (!a.finite()) return multiply_plainly(a, k, b, c, rows, depth);
      alignas(64) int32_t sums[Rows::kDigits * kColumns];
      for (int64_t from = 0; from < depth; from += kExact) {
        const int64_t part = std::min(kExact, depth - from);
        AmxFew<AmxS8Products>::Lines::panel(a.tiles(0, k + from), b + from * kColumns, sums, Rows::kDigits, part / kStep);
        add_digits(sums, a.unit(0), c, from > 0);
      }
    }

    // `depth` values from k on.
    static void panel(const Rows& a, int64_t k, const int8_t* b, float* c, int64_t rows, int64_t depth) {
      if (!a.finite()) return multiply_plainly(a, k, b, c, rows, depth);
      alignas(64) int32_t sums[Rows::kGroup * Rows::kDigits * kColumns];
      for (int64_t first = 0; first < rows; first += Rows::kGroup) {
        const int64_t some = std::min(Rows::kGroup, rows - first);
        for (int64_t from = 0; from < depth; from += kExact) {
          const int64_t part = std::min(kExact, depth - from);
          const int8_t* const digits = a.tiles(first / Rows::kGroup, k + from);
          some > 4 ? multiply_digits<2>(digits, b + from * kColumns, sums, part / kStep)
                   : multiply_digits<1>(digits, b + from * kColumns, sums, part / kStep);
          for (int64_t r = 0; r < some; ++r) {
            add_digits(sums + r * Rows::kDigits * kColumns, a.unit(first + r), c + (first + r) * kColumns, from > 0);
          }
        }
      }
    }
  };

  template <class Meanwhile>
  static void block(Thread& thread, const bf16* a, const int8_t* b, float* c, int64_t rows, int64_t depth, bool accumulate,
                    Meanwhile& meanwhile) {
    if (std::exchange(thread.of, b) != b) make_tiles(b, depth, thread.tiles);
    AmxBf16::block(thread, a, thread.tiles, c, rows, depth, accumulate, meanwhile);
  }

  static ICPU_INLINE void copy(const bf16* from, int64_t count, int64_t k, int64_t r, bf16* out) {
    AmxBf16::copy(from, count, k, r, out);
  }

  static void pack(const bf16* a, int64_t lda, int64_t rows, int64_t depth, bf16* out) {
    AmxBf16::pack(a, lda, rows, depth, out);
    const int64_t packed = round_up(depth, AmxBf16::kStep), whole = round_up(depth, kStep);
    std::memset(static_cast<void*>(out + packed * kBlock), 0, size_t(whole - packed) * kBlock * sizeof(bf16));
  }

 private:
  // Sums of so many products of two int8 stay below 2^31.
  static constexpr int64_t kExact = int64_t(1) << 16;

  // The sums of digits times B.
  template <int tiles_of_rows>
  static ICPU_INLINE void multiply_digits(const int8_t* a, const int8_t* b, int32_t* sums, int64_t steps) {
    zero_tiles();
    multiply_tiles<AmxS8Products, tiles_of_rows>(a, b, steps);
    store_tiles<tiles_of_rows>(sums);
  }

  // c (+)= the sums of a row's digits, smallest first.
  static ICPU_INLINE void add_digits(const int32_t* sums, float unit, float* c, bool accumulate) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < kColumns; j += 16) {
      __m512 all = __m512{};
#pragma GCC unroll 4
      for (int d = 0; d < 4; ++d) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + d * kColumns + j));
        all = _mm512_fmadd_ps(sum, _mm512_set1_ps(unit * float(1 << 8 * d)), all);
      }
      _mm512_store_ps(c + j, accumulate ? _mm512_add_ps(_mm512_load_ps(c + j), all) : all);
    }
  }

  // Rows with infinities or NaN.
  static void multiply_plainly(const RowsOfDigits& a, int64_t k, const int8_t* b, float* c, int64_t rows, int64_t depth) {
    std::memset(c, 0, size_t(rows) * kColumns * sizeof(float));
    for (int64_t i = 0; i < depth; ++i) {
      const int8_t* const line = b + i / kStep * kStep * kColumns + i % kStep / 4 * 64 + i % 4;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < kColumns; ++j) c[r * kColumns + j] += a.value(r, k + i) * float(line[j / 16 * 16 * kStep + j % 16 * 4]);
      }
    }
  }

  // Pairs of neighbours in depth, the first one in the lower half; a bf16 is the upper half of a float, and the lower half
  // of these floats is zero.
  static void make_tiles(const int8_t* b, int64_t depth, bf16* out) {
    constexpr int64_t tile = 16 * AmxBf16::kStep;  // of bf16
    const auto pair = [](__m512i first, __m512i second) ICPU_INLINE {
      const __m512i low = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_srai_epi32(first, 24)));
      return _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_srai_epi32(second, 24))));
    };
    for (int64_t k = 0; k < depth; k += kStep, out += 4 * tile) {
      for (int half = 0; half < 2; ++half) {
        for (int64_t four = 0; four < 16; ++four, b += 64) {
          const __m512i bytes = _mm512_loadu_si512(b);
          bf16* const to = out + four / 8 * 2 * tile + half * tile + four % 8 * 64;
          _mm512_store_si512(to, pair(_mm512_slli_epi32(bytes, 24), _mm512_slli_epi32(bytes, 16)));
          _mm512_store_si512(to + 32, pair(_mm512_slli_epi32(bytes, 8), bytes));
        }
      }
    }
  }
};

}  // namespace icpu::gemm
