// Loops: i0 < n0, the first 1 shared among threads.
// Inner loops: r0 < 77, in 3 phases.
// Vectors: 16 lanes (avx512) along r0, lanes of one result.
extern "C" int64_t icpu_30d3e30dbfe6f25c5035deb2(void* const* buffers, const int64_t* sizes) {
  const float* const p0 = static_cast<const float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 3850, 20480);
  icpu::parallel_for(n0, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      alignas(64) float row3[80];
      icpu::NumberMax<icpu::value_t<float>> acc1[4];
      icpu::for_vectors<4>(0, 77, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v0 = icpu::load(p0 + i0 * 77 + r0, lanes);
        acc1[part].add(v0, lanes);
      });
      const float v1 = icpu::total(acc1);
      icpu::Sum<icpu::value_t<float>> acc4[4];
      icpu::for_vectors<4>(0, 77, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        icpu::fetch(p0, 539 + i0 * 77 + r0, lanes);
        const auto v0 = icpu::load(p0 + i0 * 77 + r0, lanes);
        const auto v2 = v0 - lanes.vec(v1);
        const auto v3 = icpu::exp(v2);
        icpu::store(row3 + r0, v3, icpu::Full<lanes.units>{});
        acc4[part].add(v3, lanes);
      });
      const float v4 = icpu::total(acc4);
      const float v5 = float(1) / v4;
      icpu::for_vectors<1>(0, 77, [&](const int64_t r0, const auto lanes, const int) ICPU_INLINE {
        const auto v3 = icpu::load(row3 + r0, icpu::Full<lanes.units>{});
        const auto v6 = icpu::quotient(v3, lanes.vec(v4), lanes.vec(v5));
        icpu::fetch_to_write(p1, 512 + i0 * 77 + r0, lanes);
        icpu::store(p1 + i0 * 77 + r0, v6, lanes);
      });
    }
  });
  return 0;
}
