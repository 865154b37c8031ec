// What attention is about: sizes, operands, results, and how a row of the result is finished.
//
// Preconditions: those of attention.h.
#pragma once

#include "softmax.h"

namespace icpu::attention {

template <class T>
struct Tensor {
  T* data;
  int64_t batch, head, row;  // strides, in elements

  T* at(int64_t b, int64_t h, int64_t r) const { return data + b * batch + h * head + r * row; }
};

struct Sizes {
  int64_t batch, heads, kv_heads, rows, keys, depth, columns;
};

// No mask.
struct None {};

// Where to look for keys, by blocks of rows and keys: for each block of rows a list of blocks of keys, or two lists.
// Other keys do not count.
struct Blocks {
  struct List {
    Tensor<const int32_t> counts, numbers;  // counts: (batch, heads, blocks of rows), the last stride 1
  };
  List lists[2];
  int count = 0;  // of lists; none: all keys count
  int64_t rows = 1, keys = 1;  // of a block

  // Whether a list of the blocks with these rows has a block with some of these keys.
  bool see(int64_t b, int64_t h, int64_t row, int64_t rows_end, int64_t key, int64_t keys_end) const {
    for (int64_t block = row / rows; block <= (rows_end - 1) / rows; ++block) {
      for (int number = 0; number < count; ++number) {
        const List& list = lists[number];
        const int32_t* const keys_of = list.numbers.at(b, h, block);
        for (int32_t i = 0; i < list.counts.at(b, h, 0)[block]; ++i) {
          if (keys_of[i] * keys < keys_end && (keys_of[i] + 1) * keys > key) return true;
        }
      }
    }
    return count == 0;
  }
};

// In place of a mask: a function changes the scores.
struct Changed {};

// What becomes of a block of scores: (batch, head, first row, first key, rows, keys, leading dimension, scores).
using Change = gemm::Callback<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float*>;

// The same, and log_sums are a result of the program, not only what gradients are made from: they are of weights that are
// not rounded.
struct ChangedAndSummed : Changed {};

// Which rows have no key at all: NaN there, as a softmax of -infinities gives, or 0.
enum class Empty { kZero, kNan };

// dropped: whether weights that are not kept become 0.
template <class T, class MaskElement, bool causal, Empty empty, bool dropped>
struct Problem {
  using Value = T;
  static constexpr bool kMasked = !std::is_same_v<MaskElement, None>;
  static constexpr bool kCausal = causal;
  static constexpr bool kChanged = std::is_base_of_v<Changed, MaskElement>;
  static constexpr bool kSummed = std::is_same_v<MaskElement, ChangedAndSummed>;

  Sizes sizes;
  Blocks blocks;  // where scores are changed,
  const Change* change = nullptr;  // and how
  float scale;
  Tensor<const T> q, k, v;
  Tensor<const MaskElement> mask;
  float fill = -kInf<float>;  // the scores where a mask of booleans is false
  Tensor<const bool> kept;  // where weights are dropped
  float keep = 1;  // the probability of being kept
  Tensor<T> out;
  // What the weights of a row were divided by, as a logarithm; data may be null. A row without keys has 0, as ATen's: its
  // backward then finds weights of exp(-inf - 0); where log_sums are a result, -infinity. in_parts: as two numbers side by
  // side, whose sum it is, for beside a mask of large numbers one number forgets how many keys share the weight.
  Tensor<float> log_sums;
  bool in_parts = false;

  // Scores of keys that no list has become -infinity; score(r, key) is that of row first + r and key begin + key.
  template <class Score>
  ICPU_INLINE void hide(int64_t b, int64_t h, int64_t first, int64_t rows, int64_t begin, int64_t end,
                        const Score& score) const {
    for (int64_t row = first, next; row < first + rows && blocks.count > 0; row = next) {
      next = std::min(first + rows, (row / blocks.rows + 1) * blocks.rows);
      for (int64_t key = begin, after; key < end; key = after) {
        after = std::min(end, (key / blocks.keys + 1) * blocks.keys);
        if (blocks.see(b, h, row, next, key, after)) continue;
        for (int64_t r = row - first; r < next - first; ++r) {
          for (int64_t k = key - begin; k < after - begin; ++k) score(r, k) = -kInf<float>;
        }
      }
    }
  }

  // base: the score whose weight is 1; total: the sum of weights, as rounded, and exact: as they were before; sums(panel):
  // weighted values, kColumns of them.
  template <class Pack, int64_t kColumns, class Sums>
  ICPU_INLINE void finish_row(int64_t b, int64_t h, int64_t row, float base, float total, float exact,
                              const Sums& sums) const {
    const float factor = total == 0 ? (empty == Empty::kNan && sizes.keys > 0 ? kNan<float> : 0.0f)
                                    : dropped ? 1 / (total * keep) : 1 / total;
    T* const place = out.at(b, h, row);
    for (int64_t panel = 0; panel < ceil_div(sizes.columns, kColumns); ++panel) {
      const float* const from = sums(panel);
      Reg<float> value[kColumns / kLanes];
      for (int i = 0; i < kColumns / kLanes; ++i) {
        value[i] = total == 0 ? splat_reg(factor) : load_reg(from + i * kLanes) * splat_reg(factor);
      }
      Pack::store(place + panel * kColumns, value, sizes.columns - panel * kColumns);
    }
    if constexpr (kSummed) {
      // Of an infinite score the weight is NaN; of no key, too, the base is what the sum is.
      *log_sums.at(b, h, row) = std::isinf(base) ? base : base + std::log(exact);
    } else if (log_sums.data != nullptr) {
      const float unit = kMasked ? 1.0f : std::abs(scale), log_of_base = base * unit, log_total = std::log(total);
      const float rest = std::abs(log_of_base) <= most_unrounded(true) ? std::fma(base, unit, -log_of_base) : 0.0f;
      const bool none = total == 0 && empty != Empty::kNan;
      float* const place = log_sums.at(b, h, row);
      place[0] = none ? 0.0f : in_parts ? log_of_base : std::fma(base, unit, log_total);
      if (in_parts) place[1] = none ? 0.0f : log_total + rest;
    }
  }
};

// Runs a kernel. By itself, and not inline, so that it can be compiled once for all that call it (`Instance`, ir/plan.py).
template <class Kernel>
[[gnu::noinline]] void run(const Kernel& kernel, int limit) {
  kernel.run(limit);
}

}  // namespace icpu::attention
