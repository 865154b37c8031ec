// Attention of a few query rows against many keys, as when a model generates text: keys and values are read once, where
// they lie, at the memory's pace (few_rows.h).
//
// Preconditions: those of attention.h, and takes(sizes). All rows of the query heads that share a head of keys take part
// in one pass over it. Each thread reads an equal part of all keys; a head that threads share is put together afterwards
// from what each has summed, by the softmax's rule for another base.
//
// P is an instance of Problem. known: how many rows share a head of keys, or 0.
#pragma once

#include "few_rows.h"

namespace icpu::attention {

// Rows of one head, and of all heads that share keys and values: more of them are products for tiles and blocks.
inline constexpr int64_t kMostOfHead = 4, kMostRows = 8;

// The layout of a row by itself, for the softmax and for packing.
template <class T>
struct OneRow {
  using Element = T;
  static constexpr int kBlock = 1;
  static constexpr int kColumns = 2 * kLanes;
  static constexpr int kStep = kLanes;
};

template <class P, int known>
class Decode {
  using T = typename P::Value;
  using Few = FewRows<P>;
  using Weight = typename Few::Weight;
  using Rows = Softmax<OneRow<Weight>, P::kMasked>;
  using Pack = Packing<OneRow<float>, T>;

  static constexpr int64_t kKeys = Few::kKeys;
  // Of a block's keys: they, its values, and with AVX2 the next keys that come while several rows weigh the values, stay in
  // the L1 cache.
  static constexpr int64_t kBytes = 16 << 10, kBytesOfMany = kLanes == 16 ? kBytes : kBytes / 2;
  static constexpr int kAtOnce = Few::kAtOnce, kPair = Few::kPair;
  // Keys and values come from memory from about here on. Where a processor follows runs, two rows at a time are faster then:
  // they have registers for wide values in one pass, which is a run; four rows take one pass for each half.
  static constexpr int64_t kStream = 16 << 20;
  static constexpr int64_t kFar = 8 << 20;  // with AVX2, look ahead from here on: what is near comes in time

 public:
  explicit Decode(const P& p)
      : p_(p),
        rows_(rows_of(p.sizes)),
        groups_(p.sizes.heads / p.sizes.kv_heads),
        keys_(P::kCausal ? std::min(p.sizes.keys, p.sizes.rows) : p.sizes.keys),
        at_once_(keys_at_once(rows_ > 2 ? kBytesOfMany : kBytes, p.sizes.depth)),
        blocks_(ceil_div(keys_, at_once_)),
        few_(p, bytes() > kFar),
        depth_(few_.depth),
        columns_(few_.columns),
        in_pairs_(kFollowsRuns && bytes() > kStream && columns_ > Few::template kPairs<kAtOnce> * kPair) {}

  // Whether rows are few enough.
  static bool takes(const Sizes& sizes) {
    const bool some = sizes.heads > 0 && sizes.rows > 0;
    return some && sizes.rows <= kMostOfHead && rows_of(sizes) <= kMostRows;
  }

  void run(int limit) const {
    const Sizes& sizes = p_.sizes;
    const int64_t heads = sizes.batch * sizes.kv_heads, total = heads * blocks_;
    if (keys_ == 0) return without_keys(heads);
    const int64_t lines = bytes() / gemm::kLine;
    // A part without a block would have summed nothing where others look for its sums.
    const int threads = int(std::clamp<int64_t>(total, 1, threads_for(lines * (1 + rows_ / 4), 2000, limit)));
    float* const pieces = scratch<float, 18>(2 * threads * state_size());
    const auto start = [&](int64_t part) { return total * part / threads; };
    parallel_for(threads, 1, threads, [&](int64_t begin, int64_t end) {
      const Buffers buffers(*this);
      for (int64_t part = begin; part < end; ++part) {
        for (int64_t unit = start(part), stop = start(part + 1); unit < stop;) {
          const int64_t head = unit / blocks_, block = unit % blocks_, count = std::min(blocks_ - block, stop - unit);
          const bool whole = count == blocks_;
          const State state = whole ? State(buffers.state, rows_) : piece(pieces, 2 * part + (block == 0));
          attend(buffers, head, block * at_once_, std::min(keys_, (block + count) * at_once_), state);
          if (whole) finish(head, state);
          unit += count;
        }
      }
    });
    for (int64_t part = 0, shared = 0; part < threads; ++part) {
      const int64_t first = start(part), stop = start(part + 1), head = first / blocks_;
      if (first % blocks_ != 0) {
        const State sum = piece(pieces, 2 * shared + 1);
        merge(sum, piece(pieces, 2 * part));
        if (stop >= (head + 1) * blocks_) finish(head, sum);
      }
      if (stop % blocks_ != 0 && stop / blocks_ * blocks_ >= first) shared = part;
    }
  }

 private:
  static int64_t keys_at_once(int64_t bytes, int64_t depth) {
    const int64_t key = int64_t(sizeof(T)) * std::max<int64_t>(depth, 1);
    return std::clamp<int64_t>(bytes / key / kPair * kPair, kPair, kKeys);
  }

  // Rows that share one head of keys.
  static int64_t rows_of(const Sizes& sizes) { return sizes.rows * (sizes.heads / sizes.kv_heads); }

  // What is known of a head's rows after some keys: for each the score whose weight is 1, the sum of its weights, and
  // that of the weighted values.
  struct State {
    float *base, *total, *sums;
    State(float* memory, int64_t rows) : base(memory), total(memory + rows), sums(memory + round_up(2 * rows, 16)) {}
  };

  int64_t padded_rows() const { return round_up(rows_, kAtOnce); }
  int64_t state_size() const { return round_up(2 * rows_, 16) + padded_rows() * columns_; }
  State piece(float* pieces, int64_t number) const { return {pieces + number * state_size(), rows_}; }

  // Of all keys and values that are read.
  int64_t bytes() const {
    return p_.sizes.batch * p_.sizes.kv_heads * keys_ * (p_.sizes.depth + p_.sizes.columns) * int64_t(sizeof(T));
  }

  // What the exponents of a score more by one differ by.
  float unit() const { return P::kMasked ? kLog2E : std::abs(p_.scale) * kLog2E; }

  struct Buffers {
    float *queries, *scores, *state;
    Weight* weights;
    explicit Buffers(const Decode& d) {
      queries = scratch<float, 20>(d.padded_rows() * d.depth_);
      scores = scratch<float, 22>(d.padded_rows() * kKeys);
      weights = scratch<Weight, 21>(d.padded_rows() * kKeys);
      state = scratch<float, 23>(d.state_size());
    }
  };

  void without_keys(int64_t heads) const {
    const Buffers buffers(*this);
    const State state(buffers.state, rows_);
    for (int64_t head = 0; head < heads; ++head) {
      std::memset(buffers.state, 0, static_cast<size_t>(state_size()) * sizeof(float));
      finish(head, state);
    }
  }

  // The head and the row of the query number r of those that share a head of keys.
  int64_t head_of(int64_t shared, int64_t r) const { return shared % p_.sizes.kv_heads * groups_ + r / p_.sizes.rows; }
  int64_t row_of(int64_t r) const { return r % p_.sizes.rows; }

  // The keys from `begin` to `end` of a head.
  void attend(const Buffers& to, int64_t shared, int64_t begin, int64_t end, const State& state) const {
    const int64_t b = shared / p_.sizes.kv_heads, head = shared % p_.sizes.kv_heads;
    for (int64_t r = 0; r < padded_rows(); ++r) {  // the rows that fill up repeat the last one
      const int64_t own = std::min(r, rows_ - 1);
      few_.copy_query(p_.q.at(b, head_of(shared, own), row_of(own)), to.queries + r * depth_);
    }
    std::memset(state.sums, 0, static_cast<size_t>(padded_rows() * columns_) * sizeof(float));
    Running running[kMostRows];
    bool begun = false;
    for (int64_t first = begin; first < end; first += at_once_) {
      const int64_t stop = std::min(first + at_once_, end), keys = stop - first;
      if (P::kChanged && !seen(shared, first, stop)) continue;
      float factors[round_up(kMostRows, kAtOnce)] = {};
      by_rows<kAtOnce, known>(rows_, false, [&]<int R>(int64_t r) ICPU_INLINE {
        for (int64_t key = 0; key < keys; key += kLanes) {
          const int64_t some = std::min<int64_t>(kLanes, keys - key);
          const T *const row = p_.k.at(b, head, first + key), *const value = p_.v.at(b, head, first + key);
          few_.template score<R>(row, some, value, to.queries + r * depth_, to.scores + r * kKeys + key);
        }
      });
      for (int64_t r = 0; r < rows_; ++r) {
        const int64_t count = P::kCausal ? std::clamp<int64_t>(row_of(r) + 1 - first, 0, keys) : keys;
        float* const scores = to.scores + r * kKeys;
        if constexpr (P::kChanged) {
          const int64_t h = head_of(shared, r), row = row_of(r);
          (*p_.change)(b, h, row, first, 1, keys, kKeys, scores);
          p_.hide(b, h, row, 1, first, stop, [&](int64_t, int64_t key) -> float& { return scores[key]; });
        } else if constexpr (P::kMasked) {
          Rows::add_mask(scores, count, std::abs(p_.scale), p_.mask.at(b, head_of(shared, r), row_of(r)) + first,
                         p_.fill);
        }
        factors[r] = Rows::row(scores, count, round_up(keys, OneRow<Weight>::kColumns), !begun, unit(), running[r],
                               to.weights + r * kKeys);
      }
      by_rows<kAtOnce, known>(rows_, in_pairs_, [&]<int R>(int64_t r) ICPU_INLINE {
        few_.template weigh<R>(p_.v.at(b, head, first), keys, to.weights + r * kKeys, factors + r, state.sums + r * columns_,
                               p_.k.at(b, head, stop));
      });
      begun = true;
    }
    for (int64_t r = 0; r < rows_; ++r) {
      state.base[r] = running[r].base;
      state.total[r] = total_of(running[r].sums);
    }
  }

  // Whether one of the rows that share a head of keys looks at some of these keys.
  bool seen(int64_t shared, int64_t key, int64_t end) const {
    bool found = p_.blocks.count == 0;
    for (int64_t r = 0; r < rows_ && !found; ++r) {
      found = p_.blocks.see(shared / p_.sizes.kv_heads, head_of(shared, r), row_of(r), row_of(r) + 1, key, end);
    }
    return found;
  }

  // Adds what was summed of other keys. The larger base becomes that of both.
  void merge(const State& to, const State& from) const {
    for (int64_t r = 0; r < rows_; ++r) {
      if (from.total[r] == 0) continue;  // no key
      const bool none = to.total[r] == 0;
      const float base = none || !(from.base[r] <= to.base[r]) ? from.base[r] : to.base[r];
      const float of_to = none ? 0.0f : std::exp2((to.base[r] - base) * unit());
      const float of_from = std::exp2((from.base[r] - base) * unit());
      to.total[r] = to.total[r] * of_to + from.total[r] * of_from;
      for (int64_t c = 0; c < columns_; ++c) {
        to.sums[r * columns_ + c] = to.sums[r * columns_ + c] * of_to + from.sums[r * columns_ + c] * of_from;
      }
      to.base[r] = base;
    }
  }

  void finish(int64_t shared, const State& state) const {
    const int64_t b = shared / p_.sizes.kv_heads;
    for (int64_t r = 0; r < rows_; ++r) {
      float* const sums = state.sums + r * columns_;
      for (int64_t c = 0; c < columns_; c += kPair) {
        Reg<float> pair[2];
        std::memcpy(pair, sums + c, sizeof(pair));
        Few::Values::put_in_order(pair);
        std::memcpy(sums + c, pair, sizeof(pair));
      }
      p_.template finish_row<Pack, kPair>(b, head_of(shared, r), row_of(r), state.base[r], state.total[r], state.total[r],
                                          [&](int64_t panel) { return sums + panel * kPair; });
    }
  }

  const P& p_;
  int64_t rows_, groups_, keys_, at_once_, blocks_;
  FewRows<P> few_;
  int64_t depth_, columns_;
  bool in_pairs_;  // whether values are weighed for two rows at a time
};

}  // namespace icpu::attention
