#include "../gemm/vnni_avx512.h"
// Loops: i0 < block_height, i1 < block_width.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_c4c4a4c044c0ec2b9f5cc704(void* const* buffers, const int64_t* sizes) {
  uint8_t* const p0 = static_cast<uint8_t*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const uint8_t* const p2 = static_cast<const uint8_t*>(buffers[2]);
  const int8_t* const p3 = static_cast<const int8_t*>(buffers[3]);
  const uint8_t* const a = p2;
  const int64_t rows = 9, columns = 40, depth = 64;
  const int64_t leading = 64;
  const auto pack = [&](const int64_t first, const int64_t height, const int64_t from, const int64_t part, icpu::gemm::VnniU8::Element* out) ICPU_INLINE {
    icpu::gemm::VnniU8::pack(a + first * leading + from, leading, height, part, out);
  };
  icpu::gemm::multiply<icpu::gemm::VnniU8>({rows, columns, depth}, p3, icpu::most_threads(), pack, [&](const int64_t row, const int64_t height, const int64_t panel, const int64_t width, const int32_t* block) ICPU_INLINE {
    for (int64_t i0 = 0; i0 < height; ++i0) {
      icpu::for_blocks<4>(0, width, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
        const auto v0 = icpu::load(block + i0 * 48 + i1, lanes);
        const auto v1 = icpu::convert<float>(v0);
        const auto v2 = icpu::load(p1 + panel * 48 + i1, lanes);
        const auto v3 = v1 * v2;
        const auto v4 = icpu::relu(v3);
        const auto v6 = v4 * lanes.vec(2e+01f);
        const auto v7 = icpu::rint(v6);
        const auto v9 = v7 + lanes.vec(3.0f);
        const auto v12 = icpu::at_least(v9, lanes.vec(0.0f));
        const auto v13 = icpu::at_most(v12, lanes.vec(255.0f));
        const auto v14 = icpu::wrap<uint8_t>(icpu::convert<int32_t>(v13));
        icpu::store(p0 + panel * 48 + row * 40 + i0 * 40 + i1, v14, lanes);
      });
    }
  });
  return 0;
}
