// Loops: i0 < n1.
// Inner loops: r0 < n0, in 1 phase.
// Vectors: 16 lanes (avx512) along i0, lanes are results.
extern "C" int64_t icpu_8041de4dd0f17c7a76d38cfa(void* const* buffers, const int64_t* sizes) {
  const float* const p0 = static_cast<const float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  const int64_t n0 = sizes[0];
  const int64_t n1 = sizes[1];
  icpu::for_blocks<4>(0, n1, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
    auto acc1 = icpu::accumulator<icpu::CascadeSum, float>(lanes);
    for (int64_t r0 = 0; r0 < n0; ++r0) {
      const auto v0 = icpu::load(p0 + i0 + n1 * r0, lanes);
      acc1.add(v0);
    }
    const auto v1 = acc1.result();
    icpu::store(p1 + i0, v1, lanes);
  });
  return 0;
}
