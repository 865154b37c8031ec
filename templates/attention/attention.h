// out = softmax(q @ k^T * scale + mask) @ v, in blocks of queries and keys, without the matrix of scores in memory.
//
// A block of queries meets one block of keys after the other: scores by a micro kernel of templates/gemm, their softmax
// with running sums, and the weights times the values by the micro kernel again; what was summed before is scaled down
// where a much larger score comes. Keys and values are packed for the micro kernel once for each head and
// thread, as far as its queries need them.
//
// A few queries go another way (decode.h): then keys and values would be packed for a single use.
//
// Preconditions: neighbouring values of a row of q, k, v, out and mask lie side by side; other strides are any. heads is
// a multiple of kv_heads: neighbouring query heads share keys and values. A mask is true or finite where a key counts,
// or -infinity. Weights are rounded to the micro kernel's element type; sums are float.
#pragma once

#include "decode.h"

namespace icpu::attention {

// Keys that the scores and weights of one block of queries are for, so that both stay in the L1 and L2 caches.
inline constexpr int64_t kKeysAtOnce = 256;

template <class Micro, class T, class MaskElement, bool causal, Empty empty>
class Attention : public Problem<T, MaskElement, causal, empty> {
  using Base = Problem<T, MaskElement, causal, empty>;
  using Base::kChanged, Base::kMasked;
  using Element = typename Micro::Element;
  using Pack = Packing<Micro, T>;
  using Rows = Softmax<Micro, kMasked>;
  static constexpr int64_t kBlock = Micro::kBlock, kColumns = Micro::kColumns, kStep = Micro::kStep;

 public:
  using Base::blocks, Base::k, Base::mask, Base::out, Base::q, Base::scale, Base::sizes, Base::v;

  // One kernel: the blocks of queries of all heads are shared among threads. change(batch, head, first row, first key,
  // rows, keys, leading dimension, scores): what becomes of a block of scores, with a MaskElement of `Changed`.
  template <class Change = None>
  void run(int limit, const Change& change = {}) const {
    if (Decode<Base>::takes(sizes)) return Decode<Base>(*this).run(limit, change);
    const int64_t blocks = ceil_div(sizes.rows, kBlock);
    const int64_t work = sizes.batch * sizes.heads * sizes.rows * sizes.keys * (sizes.depth + sizes.columns) / 32;
    parallel_for(sizes.batch * sizes.heads * blocks, 1, threads_for(work, 4000, limit), [&](int64_t begin, int64_t end) {
      const typename Micro::Thread thread;
      Buffers buffers(*this);
      int64_t head_of_keys = -1;
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t head = unit / blocks, first = unit % blocks * kBlock;
        const int64_t shared = head / (sizes.heads / sizes.kv_heads);
        if (shared != head_of_keys) std::fill_n(buffers.packed, ceil_div(sizes.keys, kKeysAtOnce), false);
        head_of_keys = shared;
        block(buffers, head / sizes.heads, head % sizes.heads, first, change);
      }
    });
  }

 private:
  int64_t depth_() const { return round_up(sizes.depth, kStep); }
  int64_t panels_() const { return ceil_div(sizes.columns, kColumns); }

  struct Buffers {
    Element *keys, *values, *queries, *weights;
    float *scores, *sums;
    bool* packed;  // which blocks of keys are, with their values

    explicit Buffers(const Attention& a) {
      const int64_t all = round_up(a.sizes.keys, kColumns), some = std::min(all, kKeysAtOnce);
      keys = gemm::aligned_scratch<Element, 18>(all * a.depth_());
      values = gemm::aligned_scratch<Element, 19>(all * a.panels_() * kColumns);
      queries = gemm::aligned_scratch<Element, 20>(kBlock * a.depth_());
      weights = gemm::aligned_scratch<Element, 21>(kBlock * some);
      scores = gemm::aligned_scratch<float, 22>(kBlock * some);
      sums = gemm::aligned_scratch<float, 23>(kBlock * a.panels_() * kColumns);
      packed = gemm::aligned_scratch<bool, 24>(ceil_div(a.sizes.keys, kKeysAtOnce));
    }
  };

  // Packs the keys and values of a head from number `first` on, up to `end`.
  void pack(const Buffers& to, int64_t b, int64_t h, int64_t first, int64_t end) const {
    for (int64_t key = first; key < end; key += kColumns) {
      Pack::keys(k.at(b, h, key), k.row, std::min(kColumns, end - key), sizes.depth, to.keys + key * depth_());
    }
    for (int64_t panel = 0; panel < panels_(); ++panel) {
      Element* const place = to.values + (first * panels_() + panel * round_up(end - first, kColumns)) * kColumns;
      const int64_t width = std::min(kColumns, sizes.columns - panel * kColumns);
      Pack::values(v.at(b, h, first) + panel * kColumns, v.row, end - first, width, place);
    }
  }

  template <class Change>
  void block(const Buffers& to, int64_t b, int64_t h, int64_t first, const Change& change) const {
    const int64_t rows = std::min(kBlock, sizes.rows - first), kv_head = h / (sizes.heads / sizes.kv_heads);
    const int64_t keys = causal ? std::min(sizes.keys, first + rows) : sizes.keys;
    Pack::queries(q.at(b, h, first), q.row, rows, sizes.depth, scale < 0, to.queries);
    Running running[kBlock];
    bool begun = false;
    for (int64_t begin = 0; begin < keys; begin += kKeysAtOnce) {
      // Packed by whole blocks of keys: their number decides where the values lie.
      const int64_t end = std::min(begin + kKeysAtOnce, sizes.keys);
      if (kChanged && !blocks.see(b, h, first, first + rows, begin, end)) continue;
      bool& packed = to.packed[begin / kKeysAtOnce];
      if (!packed) pack(to, b, kv_head, begin, end);
      packed = true;
      part(to, b, h, first, rows, begin, std::min(end, keys), end, !begun, running, change);
      begun = true;
    }
    finish(to, b, h, first, rows, keys, running);
  }

  // One block of queries and one of keys. end: of the keys that count; packed_end: of those that are packed; begins:
  // whether these are the first keys that the block of queries meets.
  template <class Change>
  void part(const Buffers& to, int64_t b, int64_t h, int64_t first, int64_t rows, int64_t begin, int64_t end,
            int64_t packed_end, bool begins, Running* running, const Change& change) const {
    const int64_t width = round_up(end - begin, kColumns), packed_width = round_up(packed_end - begin, kColumns);
    for (int64_t key = 0; key < width; key += kColumns) {
      float* const scores = to.scores + key * kBlock;
      const int64_t count = std::min(kColumns, end - begin - key);
      if (kChanged && !blocks.see(b, h, first, first + rows, begin + key, begin + key + count)) continue;
      Micro::block(to.queries, to.keys + (begin + key) * depth_(), scores, rows, depth_(), false);
      if constexpr (kChanged) change(b, h, first, begin + key, rows, count, kColumns, scores);
    }
    if constexpr (kChanged) {
      this->hide(b, h, first, rows, begin, end, [&](int64_t r, int64_t key) -> float& {
        return to.scores[key / kColumns * kColumns * kBlock + r * kColumns + key % kColumns];
      });
    }
    const float unit = std::abs(scale);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t count = std::max<int64_t>(0, causal ? std::min(end, first + r + 1) - begin : end - begin);
      float* const scores = to.scores + r * kColumns;
      if (r == kBlock / 2) Micro::stay_awake();
      float factor;
      if constexpr (kChanged) {
        factor = Rows::row(scores, count, width, begins, kLog2E, running[r], to.weights + r * kStep);
      } else if constexpr (kMasked) {
        Rows::add_mask(scores, count, unit, mask.at(b, h, first + r) + begin);
        factor = Rows::row(scores, count, width, begins, kLog2E, running[r], to.weights + r * kStep);
      } else {
        factor = Rows::row(scores, count, width, begins, unit * kLog2E, running[r], to.weights + r * kStep);
      }
      if (!begins && factor != 1) scale_sums(to.sums + r * kColumns, factor);
    }
    for (int64_t panel = 0; panel < panels_(); ++panel) {
      const Element* const values = to.values + (begin * panels_() + panel * packed_width) * kColumns;
      float* const sums = to.sums + panel * kBlock * kColumns;
      Micro::block(to.weights, values, sums, rows, width, !begins);
    }
  }

  void scale_sums(float* sums, float factor) const {
    for (int64_t panel = 0; panel < panels_(); ++panel, sums += kBlock * kColumns) {
      for (int64_t c = 0; c < kColumns; c += kLanes) {
        Reg<float> value = load_reg(sums + c) * splat_reg(factor);
        std::memcpy(sums + c, &value, sizeof(value));
      }
    }
  }

  void finish(const Buffers& to, int64_t b, int64_t h, int64_t first, int64_t rows, int64_t keys,
              const Running* running) const {
    for (int64_t r = 0; r < rows; ++r) {
      const float sum = keys > 0 ? total_of(running[r].sums) : 0.0f;
      this->template finish_row<Pack, kColumns>(b, h, first + r, running[r].base, sum, [&](int64_t panel) {
        return to.sums + (panel * kBlock + r) * kColumns;
      });
    }
  }
};

}  // namespace icpu::attention
