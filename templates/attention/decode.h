// Attention of a few query rows against many keys, as when a model generates text: keys and values are read once, where
// they lie, at the memory's pace, in vectors of float.
//
// Preconditions: those of attention.h, and takes(sizes). All rows of the query heads that share a head of keys take part
// in one pass over it. Each thread reads an equal part of all keys; a head that threads share
// is put together afterwards from what each has summed, by the softmax's rule for another base.
//
// P is an instance of Problem.
#pragma once

#include "problem.h"

namespace icpu::attention {

// Rows of one head, and of all heads that share keys and values: more of them are products for tiles and blocks.
inline constexpr int64_t kMostOfHead = 4, kMostRows = 8;

// The layout of a row by itself, for the softmax and for packing.
struct OneRow {
  using Element = float;
  static constexpr int kBlock = 1;
  static constexpr int kColumns = 2 * kLanes;
  static constexpr int kStep = kLanes;
};

// Two vectors of neighbouring values, in whatever order is fastest to get: sums over all of them do not mind.
template <class T>
struct Pair {
  static ICPU_INLINE void load(const T* from, Reg<float> (&out)[2]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      value_t<T> value;
      load_unit(from + i * kLanes, value);
      out[i] = value.r[0];
    }
  }

  // The first `count` values, and zeros.
  static ICPU_INLINE void load(const T* from, int64_t count, Reg<float> (&out)[2]) {
    out[0] = load_floats(from, count);
    out[1] = load_floats(from + kLanes, count - kLanes);
  }

  static ICPU_INLINE void put_in_order(Reg<float> (&)[2]) {}
};

// Values at even places, and at odd ones.
template <>
struct Pair<bf16> {
  static ICPU_INLINE void load(const bf16* from, Reg<float> (&out)[2]) {
    Reg<int32_t> words;
    std::memcpy(&words, from, sizeof(words));
    split(words, out);
  }

  static ICPU_INLINE void load(const bf16* from, int64_t count, Reg<float> (&out)[2]) {
#if defined(CPU_CAPABILITY_AVX512)
    const auto lanes = static_cast<__mmask32>(count < 32 ? (1u << count) - 1 : ~0u);
    split((Reg<int32_t>)_mm512_maskz_loadu_epi16(lanes, from), out);
#else
    bf16 some[2 * kLanes] = {};
    std::memcpy(static_cast<void*>(some), from, static_cast<size_t>(std::min<int64_t>(count, 2 * kLanes)) * sizeof(bf16));
    load(some, out);
#endif
  }

  static ICPU_INLINE void split(Reg<int32_t> words, Reg<float> (&out)[2]) {
    out[0] = (Reg<float>)(words << 16);
    out[1] = (Reg<float>)(words & splat_reg(int32_t(0xffff0000)));
  }

  static ICPU_INLINE void put_in_order(Reg<float> (&v)[2]) {
    Reg<float> even = v[0], odd = v[1];
    for (int i = 0; i < kLanes; ++i) {
      v[0][i] = i % 2 == 0 ? even[i / 2] : odd[i / 2];
      v[1][i] = i % 2 == 0 ? even[(kLanes + i) / 2] : odd[(kLanes + i) / 2];
    }
  }
};

// Adds up lanes of a and b, each with the sums of 2^(level - 1) keys side by side, to one with those of both.
template <int level>
inline ICPU_INLINE Reg<float> fold(Reg<float> a, Reg<float> b) {
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (level == 1) return _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
  if constexpr (level == 2) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(_mm512_unpacklo_pd(x, y)) + _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
  }
  return _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
#else
  if constexpr (level == 1) return _mm256_unpacklo_ps(a, b) + _mm256_unpackhi_ps(a, b);
  if constexpr (level == 2) {
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return _mm256_castpd_ps(_mm256_unpacklo_pd(x, y)) + _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
  }
  return _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
#endif
}

// Vectors with the sums of 2^(level - 1) keys each, neighbours in order, to one.
template <int level, int n>
inline ICPU_INLINE Reg<float> fold_all(const Reg<float> (&sums)[n]) {
  if constexpr (n == 1) {
    return sums[0];
  } else {
    Reg<float> half[n / 2];
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i) half[i] = fold<level>(sums[2 * i], sums[2 * i + 1]);
    return fold_all<level + 1>(half);
  }
}

template <class P>
class Decode {
  using T = typename P::Value;
  using Rows = Softmax<OneRow, P::kMasked>;
  using Pack = Packing<OneRow, T>;

  static constexpr int64_t kKeys = 128;                 // the most keys of a block
  static constexpr int64_t kBytes = 16 << 10;           // of a block's keys: they and its values stay in the L1 cache
  static constexpr int kAtOnce = kLanes == 16 ? 4 : 2;  // rows whose sums are in registers together
  static constexpr int kPair = 2 * kLanes;
  static constexpr int kPairs = 2;                      // of columns whose sums are in registers together

 public:
  explicit Decode(const P& p)
      : p_(p),
        rows_(rows_of(p.sizes)),
        groups_(p.sizes.heads / p.sizes.kv_heads),
        keys_(P::kCausal ? std::min(p.sizes.keys, p.sizes.rows) : p.sizes.keys),
        at_once_(std::clamp<int64_t>(kBytes / (int64_t(sizeof(T)) * std::max<int64_t>(p.sizes.depth, 1)) / kPair * kPair, kPair,
                                     kKeys)),
        blocks_(ceil_div(keys_, at_once_)),
        depth_(round_up(p.sizes.depth, kPair)),
        columns_(round_up(p.sizes.columns, kPair)) {}

  // Whether rows are few enough.
  static bool takes(const Sizes& sizes) {
    const bool some = sizes.keys > 0 && sizes.heads > 0 && sizes.rows > 0;
    return some && sizes.rows <= kMostOfHead && rows_of(sizes) <= kMostRows;
  }

  template <class Change>
  void run(int limit, const Change& change) const {
    const Sizes& sizes = p_.sizes;
    const int64_t heads = sizes.batch * sizes.kv_heads, total = heads * blocks_;
    const int64_t lines = heads * keys_ * (sizes.depth + sizes.columns) * int64_t(sizeof(T)) / gemm::kLine;
    const int threads = threads_for(lines * (1 + rows_ / 4), 2000, limit);
    float* const pieces = gemm::aligned_scratch<float, 18>(2 * threads * state_size());
    const auto start = [&](int64_t part) { return total * part / threads; };
    parallel_for(threads, 1, threads, [&](int64_t begin, int64_t end) {
      const Buffers buffers(*this);
      for (int64_t part = begin; part < end; ++part) {
        for (int64_t unit = start(part), stop = start(part + 1); unit < stop;) {
          const int64_t head = unit / blocks_, block = unit % blocks_, count = std::min(blocks_ - block, stop - unit);
          const bool whole = count == blocks_;
          const State state = whole ? State(buffers.state, rows_) : piece(pieces, 2 * part + (block == 0));
          attend(buffers, head, block * at_once_, std::min(keys_, (block + count) * at_once_), state, change);
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

  // What the exponents of a score more by one differ by.
  float unit() const { return P::kMasked ? kLog2E : std::abs(p_.scale) * kLog2E; }

  struct Buffers {
    float *queries, *scores, *weights, *state;
    explicit Buffers(const Decode& d) {
      queries = gemm::aligned_scratch<float, 20>(d.padded_rows() * d.depth_);
      scores = gemm::aligned_scratch<float, 22>(d.padded_rows() * kKeys);
      weights = gemm::aligned_scratch<float, 21>(d.padded_rows() * kKeys);
      state = gemm::aligned_scratch<float, 23>(d.state_size());
    }
  };

  // The head and the row of the query number r of those that share a head of keys.
  int64_t head_of(int64_t shared, int64_t r) const { return shared % p_.sizes.kv_heads * groups_ + r / p_.sizes.rows; }
  int64_t row_of(int64_t r) const { return r % p_.sizes.rows; }

  // The keys from `begin` to `end` of a head.
  template <class Change>
  void attend(const Buffers& to, int64_t shared, int64_t begin, int64_t end, const State& state,
              const Change& change) const {
    const int64_t b = shared / p_.sizes.kv_heads, head = shared % p_.sizes.kv_heads;
    for (int64_t r = 0; r < padded_rows(); ++r) {  // the rows that fill up repeat the last one
      const int64_t own = std::min(r, rows_ - 1);
      copy_query(p_.q.at(b, head_of(shared, own), row_of(own)), to.queries + r * depth_);
    }
    std::memset(state.sums, 0, static_cast<size_t>(padded_rows() * columns_) * sizeof(float));
    Running running[kMostRows];
    bool begun = false;
    for (int64_t first = begin; first < end; first += at_once_) {
      const int64_t stop = std::min(first + at_once_, end), keys = stop - first;
      if (P::kChanged && !seen(shared, first, stop)) continue;
      float factors[round_up(kMostRows, kAtOnce)] = {};
      by_rows([&]<int R>(int64_t r) ICPU_INLINE {
        for (int64_t key = 0; key < keys; key += kLanes) {
          const int64_t some = std::min<int64_t>(kLanes, keys - key);
          const T *const row = p_.k.at(b, head, first + key), *const value = p_.v.at(b, head, first + key);
          score<R>(row, some, value, to.queries + r * depth_, to.scores + r * kKeys + key);
        }
      });
      for (int64_t r = 0; r < rows_; ++r) {
        const int64_t count = P::kCausal ? std::clamp<int64_t>(row_of(r) + 1 - first, 0, keys) : keys;
        float* const scores = to.scores + r * kKeys;
        if constexpr (P::kChanged) {
          const int64_t h = head_of(shared, r), row = row_of(r);
          change(b, h, row, first, 1, keys, kKeys, scores);
          p_.hide(b, h, row, 1, first, stop, [&](int64_t, int64_t key) -> float& { return scores[key]; });
        } else if constexpr (P::kMasked) {
          Rows::add_mask(scores, count, std::abs(p_.scale), p_.mask.at(b, head_of(shared, r), row_of(r)) + first,
                         p_.fill);
        }
        factors[r] = Rows::row(scores, count, round_up(keys, OneRow::kColumns), !begun, unit(), running[r],
                               to.weights + r * kKeys);
      }
      by_rows([&]<int R>(int64_t r) ICPU_INLINE {
        weigh<R>(p_.v.at(b, head, first), keys, to.weights + r * kKeys, factors + r, state.sums + r * columns_,
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

  // Has a pair of vectors come while others are used: there is too much work for each row for the processor to look far
  // enough ahead. What lies behind the last row is the next head, or comes in vain.
  static ICPU_INLINE void fetch(const T* from) {
#pragma GCC unroll 2
    for (int64_t i = 0; i < kPair; i += gemm::kLine / int64_t(sizeof(T))) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T0);
    }
  }

  // body<R>(first row) for groups of rows.
  template <class Body>
  ICPU_INLINE void by_rows(const Body& body) const {
    if (rows_ == 1) return body.template operator()<1>(0);
    for (int64_t r = 0; r < rows_; r += kAtOnce) {
      if (rows_ - r <= 2) {
        body.template operator()<2>(r);
      } else {
        body.template operator()<kAtOnce>(r);
      }
    }
  }

  void copy_query(const T* from, float* to) const {
    const Reg<int32_t> flip = splat_reg(p_.scale < 0 ? kSignBit<float> : 0);
    for (int64_t k = 0; k < p_.sizes.depth; k += kPair) {
      Reg<float> value[2];
      Pair<T>::load(from + k, std::min<int64_t>(kPair, p_.sizes.depth - k), value);
      for (int i = 0; i < 2; ++i) value[i] = (Reg<float>)((Reg<int32_t>)value[i] ^ flip);
      std::memcpy(to + k, value, sizeof(value));
    }
  }

  // The scores of R queries and `count` keys, at most kLanes, while the values of these keys come. Sums of kLanes / R keys
  // and R rows are in registers together; their lanes are added up in pairs of keys, pairs of pairs, ...
  template <int R>
  ICPU_INLINE void score(const T* keys, int64_t count, const T* values, const float* queries, float* scores) const {
    constexpr int kTile = kLanes / R, kLevel = std::bit_width(unsigned(kTile));
    Reg<float> parts[R][R];
#pragma GCC unroll 4
    for (int t = 0; t < R; ++t) {
      Reg<float> sums[R][kTile] = {};
      const T *key = keys + t * kTile * p_.k.row, *value = values + t * kTile * p_.v.row;
      int64_t k = 0;
      for (; count == kLanes && k + kPair <= p_.sizes.depth; k += kPair) {
        score_tile<true>(key + k, kTile, kPair, value + k, queries + k, sums);
      }
      for (; k < p_.sizes.depth; k += kPair) {
        score_tile<false>(key + k, count - t * kTile, p_.sizes.depth - k, value, queries + k, sums);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) parts[r][t] = fold_all<1>(sums[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Reg<float> sum = fold_all<kLevel>(parts[r]);
      std::memcpy(scores + r * kKeys, &sum, sizeof(sum));
    }
  }

  // Adds `width` products of each of `count` keys and R queries.
  template <bool whole, int R, int kTile>
  ICPU_INLINE void score_tile(const T* keys, int64_t count, int64_t width, const T* values, const float* queries,
                              Reg<float> (&sums)[R][kTile]) const {
    Reg<float> query[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) query[r][j] = load_reg(queries + r * depth_ + j * kLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i, keys += p_.k.row, values += p_.v.row) {
      Reg<float> key[2];
      if constexpr (whole) {
        Pair<T>::load(keys, key);
        fetch(values);
      } else {
        if (i >= count) break;
        Pair<T>::load(keys, width, key);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r][i] = fma_reg(key[1], query[r][1], fma_reg(key[0], query[r][0], sums[r][i]));
    }
  }

  // sums = sums * factor + weights @ values, for R rows, while the next keys come.
  template <int R>
  ICPU_INLINE void weigh(const T* values, int64_t keys, const float* weights, const float* factors, float* sums,
                         const T* next) const {
    const int64_t columns = p_.sizes.columns;
    int64_t c = 0;
    for (; c + kPairs * kPair <= columns; c += kPairs * kPair) {
      weigh_columns<R, kPairs>(values + c, keys, weights, factors, sums + c, next + c,
                               [](const T* from, Reg<float>(&to)[2]) ICPU_INLINE { Pair<T>::load(from, to); });
    }
    for (; c < columns; c += kPair) {
      weigh_columns<R, 1>(values + c, keys, weights, factors, sums + c, next + c,
                          [&](const T* from, Reg<float>(&to)[2]) ICPU_INLINE { Pair<T>::load(from, columns - c, to); });
    }
  }

  template <int R, int n, class Load>
  ICPU_INLINE void weigh_columns(const T* values, int64_t keys, const float* weights, const float* factors, float* sums,
                                 const T* next, const Load& load) const {
    Reg<float> sum[R][n][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < 2 * n; ++i) {
        const Reg<float> before = load_reg(sums + r * columns_ + i * kLanes);
        sum[r][i / 2][i % 2] = factors[r] == 1 ? before : before * splat_reg(factors[r]);
      }
    }
    for (int64_t key = 0; key < keys; ++key, values += p_.v.row, next += p_.k.row) {
      Reg<float> value[n][2];
#pragma GCC unroll 4
      for (int i = 0; i < n; ++i) {
        load(values + i * kPair, value[i]);
        fetch(next + i * kPair);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Reg<float> weight = splat_reg(weights[r * kKeys + key]);
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) {
          sum[r][i][0] = fma_reg(weight, value[i][0], sum[r][i][0]);
          sum[r][i][1] = fma_reg(weight, value[i][1], sum[r][i][1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < 2 * n; ++i) {
        std::memcpy(sums + r * columns_ + i * kLanes, &sum[r][i / 2][i % 2], sizeof(Reg<float>));
      }
    }
  }

  // Adds what was summed of other keys. The larger base becomes that of both.
  void merge(const State& to, const State& from) const {
    for (int64_t r = 0; r < rows_; ++r) {
      if (from.total[r] == 0) continue;  // no key
      const bool none = to.total[r] == 0;
      const float base = none || !(from.base[r] <= to.base[r]) ? from.base[r] : to.base[r];
      const float of_to = none ? 0.0f : std::exp2(Rows::between(to.base[r], base, unit()));
      const float of_from = std::exp2(Rows::between(from.base[r], base, unit()));
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
        Pair<T>::put_in_order(pair);
        std::memcpy(sums + c, pair, sizeof(pair));
      }
      p_.template finish_row<Pack, kPair>(b, head_of(shared, r), row_of(r), state.base[r], state.total[r], state.total[r],
                                          [&](int64_t panel) { return sums + panel * kPair; });
    }
  }

  const P& p_;
  int64_t rows_, groups_, keys_, at_once_, blocks_, depth_, columns_;
};

}  // namespace icpu::attention
