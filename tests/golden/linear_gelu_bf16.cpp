#include "gelu.h"
#include "../gemm/amx_bf16.h"
// Loops: i0 < block_width, i1 < block_height.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_6fd7d3888ef856344a830056(void* const* buffers, const int64_t* sizes) {
  icpu::bf16* const p0 = static_cast<icpu::bf16*>(buffers[0]);
  const icpu::bf16* const p1 = static_cast<const icpu::bf16*>(buffers[1]);
  const icpu::bf16* const p2 = static_cast<const icpu::bf16*>(buffers[2]);
  const icpu::bf16* const p3 = static_cast<const icpu::bf16*>(buffers[3]);
  const icpu::bf16* const a = p2;
  const int64_t rows = 9, columns = 40, depth = 64;
  const int64_t leading = 64;
  const auto pack = [&](const int64_t first, const int64_t height, const int64_t from, const int64_t part, icpu::gemm::AmxBf16::Element* out) ICPU_INLINE {
    icpu::gemm::AmxBf16::pack(a + first * leading + from, leading, height, part, out);
  };
  icpu::gemm::multiply<icpu::gemm::AmxBf16>({rows, columns, depth}, p3, icpu::most_threads(), pack, [&](const int64_t row, const int64_t height, const int64_t panel, const int64_t width, const float* block) ICPU_INLINE {
    icpu::for_blocks<2>(0, width, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v1 = icpu::load(p1 + panel * 32 + i0, lanes);
      const auto v2 = v1;
      for (int64_t i1 = 0; i1 < height; ++i1) {
        const auto v0 = icpu::load(block + i1 * 32 + i0, lanes);
        const auto v3 = v0 + v2;
        const auto v4 = icpu::round_bf16(v3);
        const auto v5 = icpu::gelu(v4);
        if (panel % 2 == 0) {
          icpu::fetch_to_write(p0, 320 + panel * 32 + row * 40 + i1 * 40 + i0, lanes);
          icpu::fetch_to_write(p0, 320 + panel * 32 + row * 40 + i1 * 40 + i0 + 32, lanes);
        }
        icpu::store(p0 + panel * 32 + row * 40 + i1 * 40 + i0, v5, lanes);
      }
    });
  });
  return 0;
}
