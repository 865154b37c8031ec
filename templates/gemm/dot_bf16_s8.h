// The micro kernel of bf16 matrices times int8 weights with the bf16 dot products of AVX-512.
//
// Preconditions: those of dot_bf16.h. B is packed as for it, in int8: every int8 is a bf16, exactly.
#pragma once

#include "dot_bf16.h"

namespace icpu::gemm {

struct DotBf16S8Products : DotBf16Products {
  using Weight = int8_t;

  static ICPU_INLINE __m512i line(const int8_t* b) {
    const auto half = [&](int first) ICPU_INLINE {
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + first))));
    };
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(half(16), half(0)));
  }
};

struct DotBf16S8 : Avx512<DotBf16S8Products> {
  // A whole block of rows streams B as fast as one row: B is half of what bf16 takes, and is not converted again.
  struct Few : Avx512<DotBf16S8Products>::Few {
    static constexpr int64_t kMost = kBlock;
  };
};

}  // namespace icpu::gemm
