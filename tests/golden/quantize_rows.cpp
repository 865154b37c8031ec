// Loops: i0 < 8, the first 1 shared among threads.
// Inner loops: r0 < 40, in 2 phases.
// Vectors: 16 lanes (avx512) along r0, lanes of one result.
extern "C" int64_t icpu_64cbd0649a80cbb25535a0d2(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  int8_t* const p1 = static_cast<int8_t*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const int threads = icpu::threads_for(12800, 20480);
  icpu::parallel_for(8, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      icpu::Max<icpu::value_t<float>> acc2[2];
      icpu::for_vectors<2>(0, 40, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v0 = icpu::load(p2 + i0 * 40 + r0, lanes);
        const auto v1 = icpu::abs(v0);
        acc2[part].add(v1, lanes);
      });
      const float v2 = icpu::total(acc2);
      const float v4 = v2 / 127.0f;
      icpu::for_vectors<1>(0, 40, [&](const int64_t r0, const auto lanes, const int) ICPU_INLINE {
        const auto v0 = icpu::load(p2 + i0 * 40 + r0, lanes);
        const auto v5 = v0 / lanes.vec(v4);
        const auto v6 = icpu::rint(v5);
        const auto v8 = icpu::at_least(v6, lanes.vec(-128.0f));
        const auto v9 = icpu::at_most(v8, lanes.vec(127.0f));
        const auto v10 = icpu::wrap<int8_t>(icpu::convert<int32_t>(v9));
        icpu::store(p1 + i0 * 40 + r0, v10, lanes);
      });
      icpu::store(p0 + i0, v4);
    }
  });
  return 0;
}
