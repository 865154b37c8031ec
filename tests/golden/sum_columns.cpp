// Loops: i0 < 40, the first 1 shared among threads.
// Inner loops: r0 < 8, in 1 phase.
// Vectors: 16 lanes (avx512) along i0, lanes are results.
extern "C" int64_t icpu_83f98b0ce10367d12792b544(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int threads = icpu::threads_for(960, 20480);
  icpu::parallel_parts(40, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_blocks<2>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      auto acc1 = icpu::accumulator<icpu::Sum, float>(lanes);
      for (int64_t r0 = 0; r0 < 8; ++r0) {
        const auto v0 = icpu::load(p1 + i0 + r0 * 40, lanes);
        acc1.add(v0);
      }
      const auto v1 = acc1.result();
      icpu::store(p0 + i0, v1, lanes);
    });
  });
  return 0;
}
