// Rows of queries, keys and values in the order in which the micro kernels of matrix products read them.
//
// Preconditions: neighbouring values of a row lie side by side in memory; rows are `stride` elements apart. `depth`
// values of a row are read, and no more. What is beyond the end of a panel's rows or depth becomes 0. The layouts are
// those of the micro kernels: Micro::kBlock rows of a first operand; panels of Micro::kColumns columns of a second one.
#pragma once

#include "../gemm/multiply.h"

#include <array>

namespace icpu::attention {

using gemm::ceil_div;
using gemm::round_up;

// `count` values from `from` on, zeros up to kLanes.
template <class T>
inline ICPU_INLINE Reg<float> load_floats(const T* from, int64_t count) {
  value_t<T> result{};
  if (count >= kLanes) {
    load_unit(from, result);
  } else if (count > 0) {
    load_unit(from, Tail(count).bits, result);
  }
  return result.r[0];
}

// At most `count` values from `to` on.
template <class T>
inline ICPU_INLINE void store_floats(T* to, Reg<float> value, int64_t count) {
  if (count >= kLanes) {
    store_unit(to, Vec<float>{{value}});
  } else if (count > 0) {
    store_unit(to, Tail(count).bits, Vec<float>{{value}});
  }
}

// The packing of a micro kernel whose elements are float, from elements of any floating type.
template <class Micro, class T, class Element = typename Micro::Element>
struct Packing {
  static_assert(std::is_same_v<Element, float> && Micro::kStep == kLanes && Micro::kColumns % kLanes == 0);

  // At most kBlock queries: for each kLanes of the depth, for each row.
  static void queries(const T* from, int64_t stride, int64_t rows, int64_t depth, bool negate, float* out) {
    const Reg<int32_t> flip = splat_reg(negate ? kSignBit<float> : 0);
    for (int64_t k = 0; k < depth; k += kLanes) {
      for (int64_t r = 0; r < Micro::kBlock; ++r, out += kLanes) {
        const Reg<float> value = r < rows ? load_floats(from + r * stride + k, depth - k) : Reg<float>{};
        const auto signed_value = (Reg<float>)((Reg<int32_t>)value ^ flip);
        std::memcpy(out, &signed_value, sizeof(signed_value));
      }
    }
  }

  // A panel of keys, which are the columns of the product: for each value of the depth, for each key.
  static void keys(const T* from, int64_t stride, int64_t count, int64_t depth, float* out) {
    for (int64_t k = 0; k < depth; k += kLanes) {
      for (int64_t first = 0; first < Micro::kColumns; first += kLanes) {
        Reg<float> tile[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          tile[i] = first + i < count ? load_floats(from + (first + i) * stride + k, depth - k) : Reg<float>{};
        }
        transpose(tile);
        for (int i = 0; i < kLanes; ++i) std::memcpy(out + (k + i) * Micro::kColumns + first, &tile[i], sizeof(tile[i]));
      }
    }
  }

  // At most `count` of a panel's columns of one row of the result.
  static ICPU_INLINE void store(T* to, const Reg<float> (&value)[Micro::kColumns / kLanes], int64_t count) {
#pragma GCC unroll 2
    for (int i = 0; i < Micro::kColumns / kLanes; ++i) store_floats(to + i * kLanes, value[i], count - i * kLanes);
  }

  // A panel of `width` columns of the values: for each key, rounded up to whole panels of keys, for each column.
  static void values(const T* from, int64_t stride, int64_t count, int64_t width, float* out) {
    for (int64_t key = 0; key < round_up(count, Micro::kColumns); ++key) {
      for (int64_t c = 0; c < Micro::kColumns; c += kLanes, out += kLanes) {
        const Reg<float> value = key < count ? load_floats(from + key * stride + c, width - c) : Reg<float>{};
        std::memcpy(out, &value, sizeof(value));
      }
    }
  }

  // Rows as columns of a first operand: for each value of the rows, zeros beyond the last row.
  static void across(const T* from, int64_t stride, int64_t rows, int64_t depth, float* out) {
    const int64_t steps = round_up(rows, kLanes);
    for (int64_t r = 0; r < rows; r += kLanes) {
      for (int64_t k = 0; k < depth; k += kLanes) {
        Reg<float> tile[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          tile[i] = r + i < rows ? load_floats(from + (r + i) * stride + k, depth - k) : Reg<float>{};
        }
        transpose(tile);
        for (int64_t i = 0; i < std::min<int64_t>(kLanes, depth - k); ++i) {
          const int64_t block = (k + i) / Micro::kBlock * Micro::kBlock, row = (k + i) % Micro::kBlock;
          std::memcpy(out + block * steps + r * Micro::kBlock + row * kLanes, &tile[i], sizeof(tile[i]));
        }
      }
    }
  }

  // Two rows of a second operand that is a panel of columns, from an even row on.
  static ICPU_INLINE void put_rows(float* panel, int64_t row, const Reg<float> (&value)[2][Micro::kColumns / kLanes]) {
    std::memcpy(panel + row * Micro::kColumns, &value, sizeof(value));
  }

  // A row of a first operand, kColumns values deep.
  static ICPU_INLINE void put_row(float* to, const Reg<float> (&value)[Micro::kColumns / kLanes]) {
#pragma GCC unroll 4
    for (int v = 0; v < Micro::kColumns / kLanes; ++v) {
      std::memcpy(to + v * Micro::kBlock * Micro::kStep, &value[v], sizeof(value[v]));
    }
  }
};

#if defined(ICPU_AVX512_BF16)
// The packing for tiles of bf16, which its dot products read as well.
template <class Micro>
struct Packing<Micro, bf16, bf16> {
  static_assert(Micro::kStep == 32 && Micro::kColumns == 32);

  static void queries(const bf16* from, int64_t stride, int64_t rows, int64_t depth, bool negate, bf16* out) {
    const __m512i flip = _mm512_set1_epi16(negate ? static_cast<int16_t>(0x8000) : 0);
    for (int64_t k = 0; k < depth; k += 32) {
      for (int64_t r = 0; r < Micro::kBlock; ++r, out += 32) {
        const __m512i value = r < rows ? some(from + r * stride + k, depth - k) : __m512i{};
        _mm512_store_si512(out, _mm512_xor_si512(value, flip));
      }
    }
  }

  // The instruction takes denormals for zero, as it does where it rounds the weights.
  static ICPU_INLINE void store(bf16* to, const Reg<float> (&value)[2], int64_t count) {
    const auto some = static_cast<__mmask32>(count < 32 ? (1u << count) - 1 : ~0u);
    _mm512_mask_storeu_epi16(to, some, (__m512i)_mm512_cvtne2ps_pbh(value[1], value[0]));
  }

  // Pairs of neighbouring depths stay together: a transpose of 32-bit words.
  static void keys(const bf16* from, int64_t stride, int64_t count, int64_t depth, bf16* out) {
    for (int64_t k = 0; k < depth; k += 32) {
      for (int64_t first = 0; first < 32; first += 16, out += 16 * 32) {
        Reg<float> tile[16];
        for (int i = 0; i < 16; ++i) {
          const __m512i row = first + i < count ? some(from + (first + i) * stride + k, depth - k) : __m512i{};
          tile[i] = (Reg<float>)row;
        }
        transpose(tile);
        for (int i = 0; i < 16; ++i) _mm512_store_ps(reinterpret_cast<float*>(out) + i * 16, tile[i]);
      }
    }
  }

  // Pairs of neighbouring keys are put together.
  static void values(const bf16* from, int64_t stride, int64_t count, int64_t width, bf16* out) {
    for (int64_t step = 0; step < count; step += 32, out += 2 * 16 * 32) {
      for (int64_t pair = 0; pair < 16; ++pair) {
        const int64_t key = step + 2 * pair;
        const __m512i even = key < count ? some(from + key * stride, width) : __m512i{};
        const __m512i odd = key + 1 < count ? some(from + (key + 1) * stride, width) : __m512i{};
        _mm512_store_si512(out + pair * 32, paired<0>(even, odd));
        _mm512_store_si512(out + (16 + pair) * 32, paired<1>(even, odd));
      }
    }
  }

  // Pairs of neighbouring rows stay together, as the words of which keys are.
  static void across(const bf16* from, int64_t stride, int64_t rows, int64_t depth, bf16* out) {
    const int64_t steps = round_up(rows, 32);
    for (int64_t r = 0; r < rows; r += 32) {
      for (int64_t k = 0; k < depth; k += 32) {
        Reg<float> tile[2][16];
        for (int pair = 0; pair < 16; ++pair) {
          const int64_t row = r + 2 * pair;
          const __m512i even = row < rows ? some(from + row * stride + k, depth - k) : __m512i{};
          const __m512i odd = row + 1 < rows ? some(from + (row + 1) * stride + k, depth - k) : __m512i{};
          tile[0][pair] = (Reg<float>)paired<0>(even, odd);
          tile[1][pair] = (Reg<float>)paired<1>(even, odd);
        }
        transpose(tile[0]);
        transpose(tile[1]);
        // kBlock is 32: these are the rows of a block.
        bf16* const place = out + k * steps + r * Micro::kBlock;
        for (int64_t i = 0; i < 32; ++i) _mm512_store_ps(reinterpret_cast<float*>(place + i * 32), tile[i / 16][i % 16]);
      }
    }
  }

  static ICPU_INLINE void put_rows(bf16* panel, int64_t row, const Reg<float> (&value)[2][2]) {
    const auto even = (__m512i)_mm512_cvtne2ps_pbh(value[0][1], value[0][0]);
    const auto odd = (__m512i)_mm512_cvtne2ps_pbh(value[1][1], value[1][0]);
    bf16* const place = panel + row / 32 * 32 * 32 + row % 32 / 2 * 32;
    _mm512_store_si512(place, paired<0>(even, odd));
    _mm512_store_si512(place + 16 * 32, paired<1>(even, odd));
  }

  static ICPU_INLINE void put_row(bf16* to, const Reg<float> (&value)[2]) {
    _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(value[1], value[0]));
  }

 private:
  // Values of two rows in turns: the first 16 of each row, or the last.
  template <int half>
  static ICPU_INLINE __m512i paired(__m512i even, __m512i odd) {
    alignas(64) static constexpr auto kOrder = [] {
      std::array<int16_t, 32> order{};
      for (int16_t i = 0; i < 32; ++i) order[static_cast<size_t>(i)] = static_cast<int16_t>(i / 2 + 16 * half + i % 2 * 32);
      return order;
    }();
    return _mm512_permutex2var_epi16(even, _mm512_load_si512(kOrder.data()), odd);
  }

  static ICPU_INLINE __m512i some(const bf16* from, int64_t count) {
    return count >= 32 ? _mm512_loadu_si512(from)
                       : _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << count) - 1), from);
  }
};
#endif

}  // namespace icpu::attention
