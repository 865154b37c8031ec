// Loops: i0 < 486, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_d9fb508fcd5f4be389b6a617(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const uint8_t* const p1 = static_cast<const uint8_t*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  alignas(64) float period4[67];
  icpu::repeat(p2, 3, period4);
  alignas(64) float period6[67];
  icpu::repeat(p3, 3, period6);
  const int threads = icpu::threads_for(8262, 20480);
  icpu::parallel_for(486, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_blocks<4>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0, lanes);
      const auto v1 = icpu::convert<float>(v0);
      const auto v3 = v1 / lanes.vec(255.0f);
      const auto v4 = icpu::load(period4 + i0 % 3, lanes);
      const auto v5 = v3 - v4;
      const auto v6 = icpu::load(period6 + i0 % 3, lanes);
      const auto v7 = v5 / v6;
      icpu::store(p0 + i0, v7, lanes);
    });
  });
  return 0;
}
