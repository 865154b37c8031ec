// Loops: i0 < n0, the first 1 shared among threads.
// Inner loops: r0 < 19, in 3 phases.
// Vectors: 8 lanes (avx2) along i0, lanes are results.
extern "C" int64_t icpu_6113360e143950aff11e68cc(void* const* buffers, const int64_t* sizes) {
  const float* const p0 = static_cast<const float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 950, 20480);
  icpu::parallel_parts(n0, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_blocks<4>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      auto acc1 = icpu::accumulator<icpu::NumberMax, float>(lanes);
      for (int64_t r0 = 0; r0 < 19; ++r0) {
        const auto v0 = icpu::load(p0 + i0 + n0 * r0, lanes);
        acc1.add(v0);
      }
      const auto v1 = acc1.result();
      auto acc4 = icpu::accumulator<icpu::Sum, float>(lanes);
      for (int64_t r0 = 0; r0 < 19; ++r0) {
        const auto v0 = icpu::load(p0 + i0 + n0 * r0, lanes);
        const auto v2 = v0 - v1;
        const auto v3 = icpu::exp(v2);
        acc4.add(v3);
      }
      const auto v4 = acc4.result();
      const auto v5 = icpu::reciprocal(v4);
      for (int64_t r0 = 0; r0 < 19; ++r0) {
        icpu::fetch(p0, 32 + i0 + n0 * r0, lanes);
        const auto v0 = icpu::load(p0 + i0 + n0 * r0, lanes);
        const auto v2 = v0 - v1;
        const auto v3 = icpu::exp(v2);
        const auto v6 = icpu::quotient(v3, v4, v5);
        icpu::store(p1 + i0 + n0 * r0, v6, lanes);
      }
    });
  });
  return 0;
}
