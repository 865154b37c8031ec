// Loops: i0 < n0, the first 1 shared among threads.
// Inner loops: r0 < 67, in 3 phases.
// Vectors: 16 lanes (avx512) along r0, lanes of one result.
extern "C" int64_t icpu_6a3684e13b82c3e0700465bb(void* const* buffers, const int64_t* sizes) {
  const icpu::bf16* const p0 = static_cast<const icpu::bf16*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  icpu::bf16* const p2 = static_cast<icpu::bf16*>(buffers[2]);
  float* const p3 = static_cast<float*>(buffers[3]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 670, 20480);
  icpu::parallel_for(n0, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      alignas(64) float row1[80];
      icpu::Sum<icpu::value_t<float>> acc3[4];
      icpu::for_vectors<4>(0, 67, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        icpu::fetch(p0, 1024 + i0 * 67 + r0, lanes);
        const auto v0 = icpu::load(p0 + i0 * 67 + r0, lanes);
        const auto v1 = v0;
        icpu::store(row1 + r0, v1, icpu::Full<lanes.units>{});
        acc3[part].add(v1, lanes);
      });
      const float v3 = icpu::total(acc3);
      const float v4 = v3 / 67.0f;
      icpu::Sum<icpu::value_t<float>> acc7[4];
      icpu::for_vectors<4>(0, 67, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v1 = icpu::load(row1 + r0, icpu::Full<lanes.units>{});
        const auto v5 = v1 - lanes.vec(v4);
        const auto v6 = v5 * v5;
        acc7[part].add(v6, lanes);
      });
      const float v7 = icpu::total(acc7);
      const float v8 = v7 / 67.0f;
      const float v10 = v8 + 1e-05f;
      const float v11 = icpu::rsqrt(v10);
      icpu::for_blocks<2>(0, 67, [&](const int64_t r0, const auto lanes, const int) ICPU_INLINE {
        const auto v1 = icpu::load(row1 + r0, icpu::Full<lanes.units>{});
        const auto v5 = v1 - lanes.vec(v4);
        const auto v12 = icpu::load(p1 + r0, lanes);
        const auto v13 = v5 * lanes.vec(v11);
        const auto v14 = v13 * v12;
        const auto v15 = v14;
        icpu::fetch_to_write(p2, 1024 + i0 * 67 + r0, lanes);
        icpu::store(p2 + i0 * 67 + r0, v15, lanes);
      });
      icpu::store(p3 + i0, v4);
    }
  });
  return 0;
}
