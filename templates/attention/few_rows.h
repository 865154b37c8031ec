// A few rows of queries by keys, and their weights by values, where these lie.
//
// Preconditions: those of decode.h. P is an instance of Problem.
#pragma once

#include "few_values.h"

#include <bit>

namespace icpu::attention {

// Whether the processor follows runs by itself, and there are registers enough to read rows as runs.
#if defined(ICPU_FOLLOWS_RUNS) && defined(CPU_CAPABILITY_AVX512)
inline constexpr bool kFollowsRuns = true;
#else
inline constexpr bool kFollowsRuns = false;
#endif

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

// body<R>(first row) for groups of `most` of `rows` rows, or of two, where no more are left or `in_pairs` says so. known: the
// number of rows, or 0. Each body that may be needed is compiled, once: they are inlined.
template <int most, int known, class Body>
inline ICPU_INLINE void by_rows(int64_t rows, bool in_pairs, const Body& body) {
  if constexpr (known <= 1) {
    if (known == 1 || rows == 1) return body.template operator()<1>(0);
  }
  if constexpr (known != 1) {
    for (int64_t r = 0; r < rows;) {
      if constexpr (most > 2 && known != 2) {
        if (!in_pairs && rows - r > 2) {
          body.template operator()<most>(r);
          r += most;
          continue;
        }
      }
      body.template operator()<2>(r);
      r += 2;
    }
  }
}

template <class P>
class FewRows {
  using T = typename P::Value;

 public:
#if defined(ICPU_AVX512_BF16)
  // Logarithms that are a result are of weights that are not rounded.
  using Values = std::conditional_t<std::is_same_v<T, bf16> && !P::kSummed, Dots, Floats<T>>;
#else
  using Values = Floats<T>;
#endif
  using Weight = typename Values::Weight;
  using Operand = typename Values::Operand;

  static constexpr int64_t kKeys = 128;                 // the most keys of a block, and the distance of rows of scores
  static constexpr int kAtOnce = kLanes == 16 ? 4 : 2;  // rows whose sums are in registers together
  static constexpr int kPair = 2 * kLanes;
  // Pairs of vectors of columns whose sums are in registers together.
  template <int R>
  static constexpr int kPairs = R == 1 || (kLanes == 16 && R == 2) ? 4 : 2;

  const int64_t depth, columns;  // rounded up to pairs of vectors

  // far: whether keys and values are more than caches hold.
  FewRows(const P& p, bool far)
      : depth(round_up(p.sizes.depth, kPair)), columns(round_up(p.sizes.columns, kPair)), p_(p), far_(far) {}

  void copy_query(const T* from, float* to) const {
    for (int64_t k = 0; k < p_.sizes.depth; k += kPair) {
      const Operand value = Values::load(from + k, p_.sizes.depth - k);
      Values::keep(to + k, p_.scale < 0 ? Values::negated(value) : value);
    }
  }

  // The scores of R queries and `count` keys, at most kLanes, while the values of these keys come.
  template <int R>
  ICPU_INLINE void score(const T* keys, int64_t count, const T* values, const float* queries, float* scores) const {
    by_distance<R>([&]<bool far>() ICPU_INLINE { score_tile<R, far>(keys, count, values, queries, scores); });
  }

  // sums = sums * factor + weights @ values, for R rows, while the next keys come. Each block of keys has sums of its own:
  // chains of additions stay short, and their errors small.
  template <int R>
  ICPU_INLINE void weigh(const T* values, int64_t keys, const Weight* weights, const float* factors, float* sums,
                         const T* next) const {
    by_distance<R>([&]<bool far>() ICPU_INLINE { weigh_all<R, far>(values, keys, weights, factors, sums, next); });
  }

 private:
  static constexpr int kMostChunks = 4;  // pairs of vectors of a row that stay in registers
  // Whether the end of a row is loaded as fast as the rest.
  static constexpr bool kMaskedLoads = kLanes == 16 && (std::is_same_v<T, float> || std::is_same_v<T, bf16>);

  static constexpr bool kByDistance = kLanes == 8;  // whether near and far rows are read in different ways

  // body<whether to read as from far>(). Several rows always look ahead: each body takes a second to compile.
  template <int R, class Body>
  ICPU_INLINE void by_distance(const Body& body) const {
    if constexpr (kByDistance && R == 1) {
      if (!far_) return body.template operator()<false>();
    }
    body.template operator()<true>();
  }

  // What R rows use.
  template <int R>
  static ICPU_INLINE Operand used(Operand value) {
    if constexpr (kByDistance && R > 1) Values::hold(value);
    return value;
  }

  // Sums of kLanes / R keys and R rows are in registers together; their lanes are added up in pairs of keys, pairs of
  // pairs, ...
  template <int R, bool far>
  ICPU_INLINE void score_tile(const T* keys, int64_t count, const T* values, const float* queries, float* scores) const {
    constexpr int kTile = kLanes / R, kLevel = std::bit_width(unsigned(kTile));
    // Keys whose scores are summed before the next ones: with few of them, their rows come one after the other.
    constexpr int kSome = 4;
    static_assert(kTile % kSome == 0);
    Reg<float> parts[R][R];
#pragma GCC unroll 4
    for (int t = 0; t < R; ++t) {
      Reg<float> sums[R][kTile] = {};
      if constexpr (R == 1 && kLanes == 16) {
        if (count == kLanes && depth <= kMostChunks * kPair && (kMaskedLoads || depth == p_.sizes.depth)) {
          score_in_order(keys, values, queries, sums[0]);
          parts[0][0] = fold_all<1>(sums[0]);
          continue;
        }
      }
      if constexpr (far && kByDistance) {
        if (far_ && count >= (t + 1) * kTile && depth == p_.sizes.depth) {
          score_rows<R>(keys + t * kTile * p_.k.row, values + t * kTile * p_.v.row, queries, sums);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) parts[r][t] = fold_all<1>(sums[r]);
          continue;
        }
      }
      constexpr bool ahead = !kByDistance || R > 1;  // what is left of one row is not worth a way of its own
#pragma GCC unroll 4
      for (int first = 0; first < kTile; first += kSome) {
        const int64_t before = t * kTile + first;
        score_some<R, kSome, ahead>(keys + before * p_.k.row, count - before, values + before * p_.v.row, queries, sums, first);
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

  template <int R, bool far>
  ICPU_INLINE void weigh_all(const T* values, int64_t keys, const Weight* weights, const float* factors, float* sums,
                             const T* next) const {
    const int64_t width = p_.sizes.columns;
    const auto whole = [](const T* from) ICPU_INLINE { return Values::load(from); };
    int64_t c = 0;
    for (; c + kPairs<R> * kPair <= width; c += kPairs<R> * kPair) {
      weigh_columns<R, kPairs<R>, far>(values + c, keys, weights, factors, sums + c, next + c, whole);
    }
    for (; kPairs<R> > 2 && c + 2 * kPair <= width; c += 2 * kPair) {
      weigh_columns<R, 2, far>(values + c, keys, weights, factors, sums + c, next + c, whole);
    }
    for (; c < width; c += kPair) {
      weigh_columns<R, 1, far>(values + c, keys, weights, factors, sums + c, next + c,
                               [&](const T* from) ICPU_INLINE { return Values::load(from, width - c); });
    }
  }

  // The sums of one query and kLanes keys, whose rows are read one after the other, and each from its start to its end: the
  // processor sees a stream.
  ICPU_INLINE void score_in_order(const T* keys, const T* values, const float* queries, Reg<float> (&sums)[kLanes]) const {
    const int64_t rest = p_.sizes.depth - depth + kPair;
    const auto last = [&](const T* from) ICPU_INLINE {
      return kMaskedLoads ? Values::load(from, rest) : Values::load(from);
    };
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((depth / kPair == n + 1 ? score_chunks<n + 1>(keys, values, queries, last, sums) : void()), ...);
    }(std::make_integer_sequence<int, kMostChunks>{});
  }

  // last: loads the last of `chunks` pairs of vectors of a row.
  template <int chunks, class Last>
  ICPU_INLINE void score_chunks(const T* keys, const T* values, const float* queries, const Last& last,
                                Reg<float> (&sums)[kLanes]) const {
    Operand query[chunks];
#pragma GCC unroll 4
    for (int c = 0; c < chunks; ++c) query[c] = Values::kept(queries + c * kPair);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i, keys += p_.k.row, values += p_.v.row) {
#pragma GCC unroll 4
      for (int c = 0; c < chunks - 1; ++c) {
        fetch<1, true>(values + c * kPair);
        sums[i] = Values::dot(sums[i], Values::load(keys + c * kPair), query[c]);
      }
      fetch<1, true>(values + (chunks - 1) * kPair);
      sums[i] = Values::dot(sums[i], last(keys + (chunks - 1) * kPair), query[chunks - 1]);
    }
  }

  // The same of R queries and kTile keys, whose queries are read again for each key.
  template <int R, int kTile>
  ICPU_INLINE void score_rows(const T* keys, const T* values, const float* queries, Reg<float> (&sums)[R][kTile]) const {
#pragma GCC unroll 8
    for (int i = 0; i < kTile; ++i, keys += p_.k.row, values += p_.v.row) {
      Reg<float> sum[R] = {};
      for (int64_t k = 0; k < depth; k += kPair) {
        const Operand key = used<R>(Values::load(keys + k));
        fetch<R, true>(values + k);
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r) sum[r] = Values::dot(sum[r], key, Values::kept(queries + r * depth + k));
      }
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) sums[r][i] = sum[r];
    }
  }

  // Adds the products of R queries and the keys from number `first` of a tile on, at most kSome of `count`.
  template <int R, int kSome, bool far, int kTile>
  ICPU_INLINE void score_some(const T* keys, int64_t count, const T* values, const float* queries,
                              Reg<float> (&sums)[R][kTile], int first) const {
    const int64_t width = p_.sizes.depth;
    int64_t k = 0;
    for (; count >= kSome && k + kPair <= width; k += kPair) {
      Operand query[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) query[r] = Values::kept(queries + r * depth + k);
#pragma GCC unroll 8
      for (int i = 0; i < kSome; ++i) {
        const Operand key = used<R>(Values::load(keys + i * p_.k.row + k));
        fetch<R, far>(values + i * p_.v.row + k);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sums[r][first + i] = Values::dot(sums[r][first + i], key, query[r]);
      }
    }
    for (; k < width; k += kPair) {
#pragma GCC unroll 8
      for (int i = 0; i < kSome; ++i) {
        if (i >= count) break;
        const Operand key = Values::load(keys + i * p_.k.row + k, width - k);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          sums[r][first + i] = Values::dot(sums[r][first + i], key, Values::kept(queries + r * depth + k));
        }
      }
    }
  }

  template <int R, int n, bool far, class Load>
  ICPU_INLINE void weigh_columns(const T* values, int64_t keys, const Weight* weights, const float* factors, float* sums,
                                 const T* next, const Load& load) const {
    constexpr int kTogether = Values::kTogether;
    const int64_t value_row = p_.v.row, key_row = p_.k.row;  // or each step reads them again: sums might lie there
    Reg<float> sum[R][n][2] = {};
    const auto add = [&](int64_t key, const auto& row) ICPU_INLINE {
      typename Values::Together value[n];
#pragma GCC unroll 4
      for (int i = 0; i < n; ++i) value[i] = row(i * kPair);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) Values::weigh(weights + r * kKeys + key, value[i], sum[r][i]);
      }
    };
    int64_t key = 0;
    for (; key + kTogether <= keys; key += kTogether, values += kTogether * value_row, next += kTogether * key_row) {
      add(key, [&](int64_t c) ICPU_INLINE {
        Operand row[kTogether];
#pragma GCC unroll 2
        for (int i = 0; i < kTogether; ++i) {
          row[i] = used<R>(load(values + i * value_row + c));
          fetch<R, far>(next + i * key_row + c);
        }
        return Values::together(row);
      });
    }
    // The last one of an odd number: its weight has a zero beside it, and so must the values have.
    if (key < keys) {
      add(key, [&](int64_t c) ICPU_INLINE {
        Operand row[kTogether] = {load(values + c)};
        return Values::together(row);
      });
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < 2 * n; ++i) {
        float* const place = sums + r * columns + i * kLanes;
        const Reg<float> all = fma_reg(load_reg(place), splat_reg(factors[r]), sum[r][i / 2][i % 2]);
        std::memcpy(place, &all, sizeof(all));
      }
    }
  }

  // Has a pair of vectors come while others are used, for R rows. What lies behind the last row is the next head, or comes
  // in vain. A processor that follows runs by itself is faster without, unless there is too much work for each vector to
  // look far enough ahead; then lines come into the L2 cache: into the L1 cache few can be on their way at once.
  template <int R, bool far>
  static ICPU_INLINE void fetch(const T* from) {
    if constexpr ((kFollowsRuns && R == 1) || !far) return;
    constexpr auto kHint = kFollowsRuns ? _MM_HINT_T1 : _MM_HINT_T0;
#pragma GCC unroll 2
    for (int64_t i = 0; i < kPair; i += gemm::kLine / int64_t(sizeof(T))) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i), kHint);
    }
  }

  const P& p_;
  bool far_;
};

}  // namespace icpu::attention
