// Loops: i0 < 24, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_279b30b979970d65d3c817cd(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const int threads = icpu::threads_for(408, 20480);
  icpu::parallel_for(24, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0, lanes);
      const auto v1 = icpu::load(p2 + i0, lanes);
      const auto v3 = v1 + lanes.vec(1e-05f);
      const auto v4 = icpu::sqrt(v3);
      const auto v5 = icpu::reciprocal(v4);
      const auto v6 = v5 * v0;
      icpu::store(p0 + i0, v6, lanes);
    });
  });
  return 0;
}

// Loops: i0 < 72, i1 < 24, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_21b328b451452b77fa839fbf(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const float* const p4 = static_cast<const float*>(buffers[4]);
  const int threads = icpu::threads_for(17280, 20480);
  icpu::parallel_for(72, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      icpu::for_vectors<1>(0, 24, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
        const auto v0 = icpu::load(p1 + i0 * 24 + i1, lanes);
        const auto v1 = icpu::load(p2 + i1, lanes);
        const auto v2 = v0 * v1;
        const auto v3 = icpu::load(p3 + i1, lanes);
        const auto v4 = v3 * v1;
        const auto v5 = icpu::load(p4 + i1, lanes);
        const auto v6 = v5 - v4;
        const auto v7 = v2 + v6;
        const auto v8 = icpu::relu(v7);
        icpu::store(p0 + i0 * 24 + i1, v8, lanes);
      });
    }
  });
  return 0;
}
