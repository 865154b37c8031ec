// The softmax of one block of scores, row by row, with running sums.
//
// Preconditions: scores lie as a micro kernel leaves them (panels of Micro::kColumns keys, in each Micro::kBlock rows);
// weights are written as it reads its first operand. In each row the first `keys` keys count; weights up to `end`, a
// multiple of kColumns, are written, zeros beyond `keys`.
#pragma once

#include "pack.h"

namespace icpu::attention {

inline constexpr float kLog2E = 1.44269504f;

// Where the logarithm of a row's divisor is larger, its gradients round scores * scale before they subtract it: the
// difference then is 0 at a score that has all the weight. A logarithm in one part is as coarse as that anyway; one in two
// parts holds the rest of the product, up to here.
inline constexpr float most_unrounded(bool in_parts) { return in_parts ? 0x1p24f : 0x1p6f; }

// 2^x for x up to 0 or a little more. Relative error below 3e-7, or for Terms = 4 below 8e-5: enough where the result
// is rounded to 8 bits. Exactly 1 at 0 once rounded: a key that has all the weight gives its value, and a gradient that is
// the difference of two such values is 0. Exact zeros for -infinity and wherever a normal float is too large; NaN stays NaN.
template <int Terms>
inline ICPU_INLINE Reg<float> power_of_two(Reg<float> x) {
#if defined(CPU_CAPABILITY_AVX512)
  const Reg<float> rest = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
  x = raw_max(splat_reg(-127.0f), x);
  const Reg<float> whole = _mm256_round_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  const Reg<float> rest = x - whole;
#endif
  // Minimax fits (Remez) of 2^x on [0, 1), for the relative error; the longer one among those that are 1 at 0.
  Reg<float> power;
  if constexpr (Terms == 4) {
    power = fma_reg(rest, splat_reg(0.07802459f), splat_reg(0.22606723f));
    power = fma_reg(rest, power, splat_reg(0.6958334f));
    power = fma_reg(rest, power, splat_reg(0.9999252f));
  } else {
    power = short_polynomial(
        rest, {1.0f, 0.6931513f, 0.24016447f, 0.055799916f, 0.009017031f, 0.00186713f});
  }
#if defined(CPU_CAPABILITY_AVX512)
  // Below 2^-126 it is 0: making denormals takes a hundred times as long.
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, splat_reg(-126.0f), _CMP_NLT_UQ), power, x);
#else
  // 2^-127 becomes 0, as the exponent's bits do.
  return power * (Reg<float>)(((Reg<int32_t>)_mm256_cvtps_epi32(whole) + 127) << 23);
#endif
}

inline ICPU_INLINE float total_of(Reg<float> a) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_reduce_add_ps(a);
#else
  const __m128 four = _mm_add_ps(low_half(a), high_half(a));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#endif
}

inline ICPU_INLINE float largest_of(Reg<float> a) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_reduce_max_ps(a);
#else
  const __m128 four = _mm_max_ps(low_half(a), high_half(a));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
#endif
}

inline ICPU_INLINE bool any_nan(Reg<float> a) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
#else
  return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
#endif
}

inline ICPU_INLINE bool any_above(Reg<float> a, float bound) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_cmp_ps_mask(a, splat_reg(bound), _CMP_GT_OQ) != 0;
#else
  return _mm256_movemask_ps(_mm256_cmp_ps(a, splat_reg(bound), _CMP_GT_OQ)) != 0;
#endif
}

// What is known of a row after some blocks of keys: the score whose weight is 1, and sums of weights in lanes.
struct Running {
  float base = -kInf<float>;
  bool outgrown = false;  // whether a later block had scores far above the base: the next one may, too
  Reg<float> sums = {};
  Reg<float> exact = {};  // sums of weights as they were before being rounded
};

// exact: whether sums of weights that are not rounded are wanted, too.
template <class Micro, bool masked, bool exact = false>
struct Softmax {
  using Element = typename Micro::Element;
  static constexpr bool kExact = exact && !std::is_same_v<Element, float>;
  static constexpr int64_t kPanel = int64_t(Micro::kBlock) * Micro::kColumns;
  static constexpr int kVectors = Micro::kColumns / kLanes;
  static constexpr bool kShort = std::is_same_v<Element, bf16>;  // weights are
  static constexpr int kTerms = kShort && !exact ? 4 : 6;
  // Of a score far above the base, float keeps fewer bits behind the point.
  static constexpr float kRange = kShort ? 32 : 8;

  static ICPU_INLINE Mask<> first_lanes(int64_t count) {
    return {{mask_of_bits(count >= kLanes ? ~0u : count > 0 ? (1u << count) - 1 : 0u)}};
  }

  static ICPU_INLINE Reg<float> or_else(int64_t count, Reg<float> value, float other) {
    return select(first_lanes(count), Vec<float>{{value}}, splat<1>(other)).r[0];
  }

  // The weight of a score is 2^of(score). The difference comes first: it is 0 at the base, however large that is, where the
  // rest of a rounded base * unit would be an exponent of any size.
  struct Exponent {
    Reg<float> base, unit;
    Exponent(float base_, float unit_) : base(splat_reg(base_)), unit(splat_reg(unit_)) {}
    ICPU_INLINE Reg<float> of(Reg<float> score) const { return (score - base) * unit; }
  };

  // The same in one instruction, where bits of a weight are few. What the base is as an exponent is rounded: the weight of
  // the base is not quite 1, a factor that all weights of the row share.
  struct FusedExponent {
    static constexpr float kMost = 0x1p12f;  // of the base: the factor is 1 but for 2^-12
    Reg<float> offset, unit;
    FusedExponent(float base, float unit_) : offset(splat_reg(-base * unit_)), unit(splat_reg(unit_)) {}
    ICPU_INLINE Reg<float> of(Reg<float> score) const { return fma_reg(score, unit, offset); }
  };

  // The weights of one row and block of keys; a score more by one is a factor of 2^unit. Returns the factor for what was
  // summed before.
  //
  // The base need not be the largest score: weights are floats, or bf16 with the same exponents, so any base does that
  // leaves them in range. The row's first score usually does, or, as a mask may be against that key, the largest of the
  // first vector. Where a weight would exceed 2^kRange, the largest score of the block becomes the base. If that was not
  // the first block, scores rise along the keys: the largest is looked for first from then on, not weights made twice.
  static ICPU_INLINE float row(const float* scores, int64_t keys, int64_t end, bool first, float unit,
                               Running& running, Element* weights) {
    if (first) running.base = masked ? largest_of(or_else(keys, load_reg(scores), -kInf<float>)) : scores[0];
    if (running.base > -kInf<float> && !running.outgrown) {
      const bool fused = kTerms == 4 && std::abs(running.base * unit) <= FusedExponent::kMost;
      if (fused ? weigh<true, FusedExponent>(scores, keys, end, unit, running, weights)
                : weigh_apart(scores, keys, end, unit, running, weights)) {
        return 1;
      }
      running.outgrown = !first;
    }
    return rebase(scores, keys, end, unit, running, weights);
  }

  // Seldom needed: a function of its own, so that the inlined one stays short.
  static __attribute__((noinline)) bool weigh_apart(const float* scores, int64_t keys, int64_t end, float unit,
                                                    Running& running, Element* weights) {
    return weigh<true, Exponent>(scores, keys, end, unit, running, weights);
  }

  static __attribute__((noinline)) float rebase(const float* scores, int64_t keys, int64_t end, float unit,
                                                Running& running, Element* weights) {
    const float before = running.base, most = largest(scores, keys), now = most <= before ? before : most;
    if (now == -kInf<float>) {  // no key so far
      for (int64_t panel = 0; panel < end / Micro::kColumns; ++panel) {
        const Reg<float> none[kVectors] = {};
        Reg<float> nothing[kVectors] = {};
        put(weights + panel * kPanel, none, nothing, nothing);
      }
      return 1;
    }
    running.base = now;
    const float factor = before == -kInf<float> ? 0.0f : power_of_two<6>(splat_reg((before - now) * unit))[0];
    running.sums *= splat_reg(factor);
    if constexpr (kExact) running.exact *= splat_reg(factor);
    weigh<false, Exponent>(scores, keys, end, unit, running, weights);
    return factor;
  }

  // Adds the weights to the row's sums; if `limited`, gives up where one is out of range, or, where sums are of rounded
  // weights and tell as well, a sum of them.
  template <bool limited, class Exponents>
  static ICPU_INLINE bool weigh(const float* scores, int64_t keys, int64_t end, float unit, Running& running,
                                Element* weights) {
    constexpr bool by_sums = kShort, by_exponents = limited && !by_sums;
    const Exponents exponent(running.base, unit);
    Reg<float> sums[kVectors] = {running.sums}, most[kVectors] = {}, unrounded[kVectors] = {running.exact};
    const int64_t whole = keys / Micro::kColumns;
    for (int64_t panel = 0; panel < whole; ++panel) {
      Reg<float> weight[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Reg<float> power = exponent.of(load_reg(scores + panel * kPanel + v * kLanes));
        if constexpr (by_exponents) most[v] = raw_max(most[v], power);
        weight[v] = power_of_two<kTerms>(power);
      }
      put(weights + panel * kPanel, weight, sums, unrounded);
    }
    for (int64_t panel = whole; panel < end / Micro::kColumns; ++panel) {
      Reg<float> weight[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        const int64_t count = keys - panel * Micro::kColumns - v * kLanes;
        weight[v] = Reg<float>{};
        if (count <= 0) continue;
        const Reg<float> score = load_reg(scores + panel * kPanel + v * kLanes);
        const Reg<float> power = or_else(count, exponent.of(score), -kInf<float>);
        if constexpr (by_exponents) most[v] = raw_max(most[v], power);
        weight[v] = power_of_two<kTerms>(power);
      }
      put(weights + panel * kPanel, weight, sums, unrounded);
    }
#pragma GCC unroll 4
    for (int v = 1; v < kVectors; ++v) {
      sums[0] += sums[v];
      unrounded[0] += unrounded[v];
      most[0] = raw_max(most[0], most[v]);
    }
    if (limited && any_above(by_sums ? sums[0] : most[0], by_sums ? std::exp2(kRange) : kRange)) return false;
    running.sums = sums[0];
    if constexpr (kExact) running.exact = unrounded[0];
    return true;
  }

  // The weights of a row, as many bits of their sum as were asked for.
  static float total(const Running& running) { return total_of(kExact ? running.exact : running.sums); }

  // Of the first `keys` scores; NaN if one is.
  static float largest(const float* scores, int64_t keys) {
    Reg<float> most = splat_reg(-kInf<float>);
    for (int64_t key = 0; key < keys; key += kLanes) {
      const float* const from = scores + key / Micro::kColumns * kPanel + key % Micro::kColumns;
      const Reg<float> some = or_else(keys - key, load_reg(from), -kInf<float>);
      if (any_nan(some)) return std::numeric_limits<float>::quiet_NaN();
      most = raw_max(most, some);
    }
    return largest_of(most);
  }

  // scores * scale + mask for the first `keys` keys of a row; `fill` where a mask of booleans is false.
  template <class T>
  static void add_mask(float* scores, int64_t keys, float scale, const T* mask, float fill) {
    for (int64_t key = 0; key < keys; key += kLanes) {
      float* const at = scores + key / Micro::kColumns * kPanel + key % Micro::kColumns;
      const Reg<float> score = load_reg(at) * splat_reg(scale);
      Reg<float> value;
      if constexpr (std::is_same_v<T, bool>) {
        Mask<> allowed;
        load_unit(mask + key, first_lanes(keys - key).m[0], allowed);
        value = select(allowed, Vec<float>{{score}}, splat<1>(fill)).r[0];
      } else {
        value = score + load_floats(mask + key, keys - key);
      }
      std::memcpy(at, &value, sizeof(value));
    }
  }

  // Of the first `keys` weights of a row, those that are not kept become 0.
  static ICPU_INLINE void drop(Element* weights, int64_t keys, const bool* kept) {
    for (int64_t key = 0; key < keys; key += Micro::kColumns, weights += kPanel, kept += Micro::kColumns) {
      if constexpr (std::is_same_v<Element, float>) {
        for (int v = 0; v < kVectors; ++v) {
          float* const place = weights + v * Micro::kBlock * Micro::kStep;
          Mask<> some;
          load_unit(kept + v * kLanes, first_lanes(keys - key - v * kLanes).m[0], some);
          const Reg<float> value = select(some, Vec<float>{{load_reg(place)}}, splat<1>(0.0f)).r[0];
          std::memcpy(place, &value, sizeof(value));
        }
      } else {
#if defined(ICPU_AVX512_BF16)
        const auto left = static_cast<__mmask32>(keys - key < 32 ? (1u << (keys - key)) - 1 : ~0u);
        const __m256i bytes = _mm256_maskz_loadu_epi8(left, kept);
        const __m512i value = _mm512_maskz_mov_epi16(_mm256_test_epi8_mask(bytes, bytes), _mm512_load_si512(weights));
        _mm512_store_si512(weights, value);
#endif
      }
    }
  }

 private:
  // Stores the weights of one row and panel, and adds them to the sums as they are stored: the error of a rounded weight
  // then is in the divisor too, and cancels where one key has nearly all the weight.
  static ICPU_INLINE void put(Element* to, const Reg<float> (&weight)[kVectors], Reg<float> (&sums)[kVectors],
                              Reg<float> (&unrounded)[kVectors]) {
    if constexpr (std::is_same_v<Element, float>) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        std::memcpy(to + v * Micro::kBlock * Micro::kStep, &weight[v], sizeof(weight[v]));
        sums[v] += weight[v];
      }
    } else {
#if defined(ICPU_AVX512_BF16)
      const __m512bh rounded = _mm512_cvtne2ps_pbh(weight[1], weight[0]);
      _mm512_store_si512(to, (__m512i)rounded);
      sums[0] = _mm512_dpbf16_ps(sums[0], rounded, (__m512bh)_mm512_set1_epi16(0x3f80));
#endif
      for (int v = 0; kExact && v < kVectors; ++v) unrounded[v] += weight[v];
    }
  }
};

}  // namespace icpu::attention
