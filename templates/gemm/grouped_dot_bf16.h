// Convolutions of groups of channels in bf16 with the dot products of AVX-512: two channels a lane, added in float.
//
// Preconditions: those of grouped.h, and avx512_bf16; groups have an even number of channels.
#pragma once

#include "grouped.h"

namespace icpu::gemm {

struct LanesByDotBf16 {
  using Source = bf16;
  using Weight = bf16;
  static constexpr int kPair = 2;

  template <class Lanes>
  static ICPU_INLINE Reg<float> line(const bf16* weights, const Lanes& lanes) {
    return load(reinterpret_cast<const float*>(weights), lanes).r[0];
  }
  static ICPU_INLINE Reg<float> dot(Reg<float> sum, Reg<float> value, Reg<float> line) {
    return _mm512_dpbf16_ps(sum, (__m512bh)value, (__m512bh)line);
  }

  // Pairs as they are.
  template <class Lanes>
  static ICPU_INLINE void copy(const bf16* channels, const Lanes& lanes, float* values) {
    store(values, load(reinterpret_cast<const float*>(channels), lanes), lanes);
  }
};
template <int... shape>
using GroupsDotBf16 = Groups<LanesByDotBf16, shape...>;

}  // namespace icpu::gemm
