// out = softmax(q @ k^T * scale + mask) @ v, in blocks of queries and keys, without the matrix of scores in memory.
//
// Blocks of queries meet one block of keys after the other: scores by a micro kernel, their softmax with running sums, and
// the weights times the values by the micro kernel again; what was summed before is scaled down where a much larger score
// comes. Several blocks of queries share what is read of keys and values. These are packed for the micro kernel once for
// each head and thread, as far as its queries need them.
//
// A few queries, for which keys and values would be packed for a single use, go another way (decode.h), unless weights are
// dropped or gradients follow. Dropped weights count in the divisor of their row; those that are kept are divided by the
// probability of that.
//
// Preconditions: neighbouring values of a row of q, k, v, out and mask lie side by side; other strides are any. heads is
// a multiple of kv_heads: neighbouring query heads share keys and values. A mask is true or finite where a key counts,
// or -infinity; scores under a false one become `fill`. Weights are rounded to the micro kernel's element type; sums are float.
#pragma once

#include "decode.h"

namespace icpu::attention {

// Values of `few`, else the number of rows that share a head of keys, where it is known and decode.h takes them.
inline constexpr int kManyRows = -1, kAnyRows = 0;

template <class Micro, class T, class MaskElement, bool causal, Empty empty, bool dropped, int few>
class Attention : public Problem<T, MaskElement, causal, empty, dropped> {
  static_assert(!dropped || few == kManyRows);
  using Base = Problem<T, MaskElement, causal, empty, dropped>;
  using Base::kChanged, Base::kMasked, Base::kSummed;
  using Element = typename Micro::Element;
  using Products = typename Micro::Products;
  using Pack = Packing<Micro, T>;
  using Rows = Softmax<Micro, kMasked, kSummed>;
  static constexpr int64_t kBlock = Micro::kBlock, kColumns = Micro::kColumns, kStep = Micro::kStep;
  static constexpr int64_t kBlocks = Micro::kBlocks, kQueries = kBlocks * kBlock, kKeys = Micro::kKeys;

 public:
  using Base::blocks, Base::change, Base::fill, Base::k, Base::keep, Base::kept, Base::mask, Base::out, Base::q, Base::scale, Base::sizes, Base::v;

  // One kernel: the queries of all heads are shared among threads, kQueries at once.
  void run(int limit) const {
    if constexpr (few > 0) {
      Decode<Base, few>(*this).run(limit);
    } else {
      if constexpr (few == kAnyRows) {
        if (Decode<Base, 0>::takes(sizes)) return Decode<Base, 0>(*this).run(limit);
      }
      in_blocks(limit);
    }
  }

 private:
  void in_blocks(int limit) const {
    const int64_t blocks = ceil_div(sizes.rows, kQueries);
    const int64_t work = sizes.batch * sizes.heads * sizes.rows * sizes.keys * (sizes.depth + sizes.columns) / 32;
    parallel_for(sizes.batch * sizes.heads * blocks, 1, threads_for(work, 4000, limit), [&](int64_t begin, int64_t end) {
      const typename Micro::Thread thread;
      Buffers buffers(*this);
      int64_t head_of_keys = -1;
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t head = unit / blocks, first = unit % blocks * kQueries;
        const int64_t shared = head / (sizes.heads / sizes.kv_heads);
        if (shared != head_of_keys) std::fill_n(buffers.packed, ceil_div(sizes.keys, kKeys), false);
        head_of_keys = shared;
        attend({head / sizes.heads, head % sizes.heads, first, std::min(kQueries, sizes.rows - first)}, buffers);
      }
    });
  }

  int64_t depth_() const { return round_up(sizes.depth, kStep); }
  int64_t panels_() const { return ceil_div(sizes.columns, kColumns); }

  // Keys that are met at once begin at multiples of kKeys. A few that are left over belong to those before.
  int64_t end_of_keys(int64_t begin) const {
    return sizes.keys - begin <= kKeys + kKeys / 2 ? sizes.keys : begin + kKeys;
  }

  // Of all queries, in whole panels.
  int64_t most_keys() const { return std::min(round_up(sizes.keys, kColumns), kKeys + kKeys / 2); }

  // Queries of one head.
  struct Queries {
    int64_t batch, head, first, count;
  };

  // A block of them. keys: how many of the keys at hand it sees; begun: whether it has seen any before.
  struct Block {
    int64_t first = 0, rows = 0, keys = 0;
    bool begun = false;
    Element *queries = nullptr, *weights = nullptr;
    float *scores = nullptr, *sums = nullptr;
    Running* running = nullptr;
  };

  struct Buffers {
    Element *keys, *values, *queries, *weights;
    float *scores, *sums;
    Running* running;
    bool* packed;  // which keys are that are met at once, with their values

    explicit Buffers(const Attention& a) {
      const int64_t all = round_up(a.sizes.keys, kColumns), some = a.most_keys();
      keys = scratch<Element, 18>(all * a.depth_());
      values = scratch<Element, 19>(all * a.panels_() * kColumns);
      queries = scratch<Element, 20>(kQueries * a.depth_());
      weights = scratch<Element, 21>(kQueries * some);
      scores = scratch<float, 22>(kQueries * some);
      sums = scratch<float, 23>(kQueries * a.panels_() * kColumns);
      packed = scratch<bool, 24>(ceil_div(a.sizes.keys, kKeys));
      running = scratch<Running, 25>(kQueries);
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

  void attend(const Queries& some, const Buffers& to) const {
    Block blocks_of[kBlocks];
    const int64_t count = ceil_div(some.count, kBlock), width = most_keys();
    for (int64_t n = 0; n < count; ++n) {
      const int64_t row = n * kBlock, rows = std::min(kBlock, some.count - row);
      blocks_of[n] = {some.first + row,        rows, 0, false, to.queries + row * depth_(), to.weights + row * width,
                      to.scores + row * width, to.sums + row * panels_() * kColumns, to.running + row};
      Pack::queries(q.at(some.batch, some.head, some.first + row), q.row, rows, sizes.depth, scale < 0, blocks_of[n].queries);
    }
    const int64_t keys = causal ? std::min(sizes.keys, some.first + some.count) : sizes.keys;
    Products products;
    for (int64_t begin = 0, end; begin < keys; begin = end) {
      // All of them are packed: their number decides where the values lie.
      end = end_of_keys(begin);
      if (kChanged && !blocks.see(some.batch, some.head, some.first, some.first + some.count, begin, end)) continue;
      bool& packed = to.packed[begin / kKeys];
      if (!packed) pack(to, some.batch, some.head / (sizes.heads / sizes.kv_heads), begin, end);
      packed = true;
      for (int64_t n = 0; n < count; ++n) {
        Block& block = blocks_of[n];
        block.keys = std::max<int64_t>(0, causal ? std::min(end, block.first + block.rows) - begin : end - begin);
        const int64_t last = block.first + block.rows;
        if (kChanged && !blocks.see(some.batch, some.head, block.first, last, begin, end)) block.keys = 0;
      }
      meet(some, to, begin, end, blocks_of, count, products);
    }
    products.finish();
    for (int64_t n = 0; n < count; ++n) finish(some, blocks_of[n]);
  }

  // Blocks of queries and a block of keys.
  void meet(const Queries& some, const Buffers& to, int64_t begin, int64_t end, Block* blocks_of, int64_t count,
            Products& products) const {
    for (int64_t key = 0; key < end - begin; key += kColumns) {
      for (Block* block = blocks_of; block < blocks_of + count; ++block) {
        if (key < block->keys) score(some, *block, to, begin, key, products);
      }
    }
    products.finish();
    for (Block* block = blocks_of; block < blocks_of + count; ++block) {
      if (block->keys > 0) weigh(some, *block, begin);
    }
    const Element* values = to.values + begin * panels_() * kColumns;
    for (int64_t panel = 0; panel < panels_(); ++panel, values += round_up(end - begin, kColumns) * kColumns) {
      for (Block* block = blocks_of; block < blocks_of + count; ++block) {
        float* const sums = block->sums + panel * kBlock * kColumns;
        if (block->keys > 0) {
          const int64_t columns = std::min(kColumns, sizes.columns - panel * kColumns);
          products.multiply(block->weights, values, sums, block->rows, columns, block->keys, block->begun);
        }
      }
    }
    for (Block* block = blocks_of; block < blocks_of + count; ++block) block->begun |= block->keys > 0;
  }

  // The scores of one block of queries and one panel of keys.
  void score(const Queries& some, const Block& block, const Buffers& to, int64_t begin, int64_t key,
             Products& products) const {
    const int64_t count = std::min(kColumns, block.keys - key), first = begin + key;
    if (kChanged && !blocks.see(some.batch, some.head, block.first, block.first + block.rows, first, first + count)) return;
    float* const scores = block.scores + key * kBlock;
    products.multiply(block.queries, to.keys + first * depth_(), scores, block.rows, count, sizes.depth, false);
    if constexpr (kChanged) {
      products.finish();
      (*change)(some.batch, some.head, block.first, first, block.rows, count, kColumns, scores);
    }
  }

  // The weights of one block of queries and of keys.
  void weigh(const Queries& some, const Block& block, int64_t begin) const {
    const int64_t b = some.batch, h = some.head, end = begin + block.keys, width = round_up(block.keys, kColumns);
    if constexpr (kChanged) {
      this->hide(b, h, block.first, block.rows, begin, end, [&](int64_t r, int64_t key) -> float& {
        return block.scores[key / kColumns * kColumns * kBlock + r * kColumns + key % kColumns];
      });
    }
    const float unit = std::abs(scale);
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t row = block.first + r, count = std::max<int64_t>(0, causal ? std::min(end, row + 1) - begin : end - begin);
      float* const scores = block.scores + r * kColumns;
      Element* const weights = block.weights + r * kStep;
      Running& running = block.running[r];
      if (!block.begun) running = {};
      if (r == kBlock / 2) Micro::stay_awake();
      float factor;
      if constexpr (kChanged) {
        factor = Rows::row(scores, count, width, !block.begun, kLog2E, running, weights);
      } else if constexpr (kMasked) {
        Rows::add_mask(scores, count, unit, mask.at(b, h, row) + begin, fill);
        factor = Rows::row(scores, count, width, !block.begun, kLog2E, running, weights);
      } else {
        factor = Rows::row(scores, count, width, !block.begun, unit * kLog2E, running, weights);
      }
      if constexpr (dropped) Rows::drop(weights, count, kept.at(b, h, row) + begin);
      if (block.begun && factor != 1) scale_sums(block.sums + r * kColumns, factor);
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

  void finish(const Queries& some, const Block& block) const {
    for (int64_t r = 0; r < block.rows; ++r) {
      if (!block.begun) block.running[r] = {};
      const Running& running = block.running[r];
      const float sum = block.begun ? total_of(running.sums) : 0.0f, exact = Rows::total(running);
      const auto sums = [&](int64_t panel) { return block.sums + (panel * kBlock + r) * kColumns; };
      this->template finish_row<Pack, kColumns>(some.batch, some.head, block.first + r, running.base, sum, exact, sums);
    }
  }
};

}  // namespace icpu::attention
