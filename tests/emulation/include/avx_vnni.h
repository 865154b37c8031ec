// The dot product of bytes that came after AVX2: see avx512.h.
#pragma once

#include "lanes.h"

#undef _mm256_dpbusd_avx_epi32

namespace icpu {
[[gnu::noinline]] inline __m256i _mm256_dpbusd_avx_epi32(__m256i sum, __m256i a, __m256i b) {
  const auto x = emulated::lanes<uint32_t>(sum), y = emulated::lanes<uint32_t>(a), z = emulated::lanes<uint32_t>(b);
  return emulated::each<__m256i, uint32_t>([&](int i) { return emulated::dot_of_bytes<uint8_t>(x[i], y[i], z[i]); });
}
}  // namespace icpu
