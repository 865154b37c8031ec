// Loops: i0 < 8, the first 1 shared among threads.
// Inner loops: r0 < 40, in 3 phases.
// Vectors: 16 lanes (avx512) along r0, lanes of one result.
extern "C" int64_t icpu_ea5fbb9b34122b382a02b6ce(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const int threads = icpu::threads_for(23040, 20480);
  icpu::parallel_for(8, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      alignas(64) float row4[48];
      icpu::Sum<icpu::value_t<float>> acc1[2];
      icpu::for_vectors<2>(0, 40, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v0 = icpu::load(p1 + i0 * 40 + r0, lanes);
        acc1[part].add(v0, lanes);
      });
      const float v1 = icpu::total(acc1);
      const float v3 = v1 / 4e+01f;
      icpu::Sum<icpu::value_t<float>> acc6[2];
      icpu::for_vectors<2>(0, 40, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v0 = icpu::load(p1 + i0 * 40 + r0, lanes);
        const auto v4 = v0 - lanes.vec(v3);
        icpu::store(row4 + r0, v4, icpu::Full<lanes.units>{});
        const auto v5 = v4 * v4;
        acc6[part].add(v5, lanes);
      });
      const float v6 = icpu::total(acc6);
      const float v7 = v6 / 4e+01f;
      const float v9 = v7 + 1e-05f;
      const float v10 = std::sqrt(v9);
      const float v11 = float(1) / v10;
      icpu::for_vectors<1>(0, 40, [&](const int64_t r0, const auto lanes, const int) ICPU_INLINE {
        const auto v4 = icpu::load(row4 + r0, icpu::Full<lanes.units>{});
        const auto v12 = v4 * lanes.vec(v11);
        const auto v13 = icpu::load(p2 + r0, lanes);
        const auto v14 = icpu::load(p3 + r0, lanes);
        const auto v15 = v12 * v13;
        const auto v16 = v15 + v14;
        icpu::store(p0 + i0 * 40 + r0, v16, lanes);
      });
    }
  });
  return 0;
}
