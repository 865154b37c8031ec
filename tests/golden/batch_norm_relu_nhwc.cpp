// Loops: i0 < 24, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_67d2e866cfc84f443d01b9a3(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int threads = icpu::threads_for(360, 20480);
  icpu::parallel_for(24, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0, lanes);
      const auto v2 = v0 + lanes.vec(1e-05f);
      const auto v3 = icpu::sqrt(v2);
      const auto v4 = icpu::reciprocal(v3);
      icpu::store(p0 + i0, v4, lanes);
    });
  });
  return 0;
}

// Loops: i0 < 72, i1 < 24, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_45e1880a899d463d7ecb26a6(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const float* const p4 = static_cast<const float*>(buffers[4]);
  const float* const p5 = static_cast<const float*>(buffers[5]);
  const int threads = icpu::threads_for(20736, 20480);
  icpu::parallel_for(72, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      icpu::for_vectors<1>(0, 24, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
        const auto v0 = icpu::load(p1 + i1, lanes);
        const auto v1 = icpu::load(p2 + i1, lanes);
        const auto v2 = v0 * v1;
        const auto v3 = icpu::load(p3 + i1, lanes);
        const auto v4 = v3 * v2;
        const auto v5 = icpu::load(p4 + i1, lanes);
        const auto v6 = v5 - v4;
        const auto v7 = icpu::load(p5 + i0 * 24 + i1, lanes);
        const auto v8 = v7 * v2;
        const auto v9 = v8 + v6;
        const auto v10 = icpu::relu(v9);
        icpu::store(p0 + i0 * 24 + i1, v10, lanes);
      });
    }
  });
  return 0;
}
