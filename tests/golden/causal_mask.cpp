// Loops: i0 < 2, i1 < 19, i2 < 19, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i2, pointwise.
extern "C" int64_t icpu_cc65ccc8f7c9f1d84f2b01ed(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const int64_t* const p1 = static_cast<const int64_t*>(buffers[1]);
  const int64_t rows = 2;
  const int threads = icpu::threads_for(4332, 20480);
  icpu::parallel_for_rows(rows, 19, 1, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    for (int64_t i1 = begin; i1 < end; ++i1) {
      const int32_t v0 = int32_t(i1);
      icpu::for_vectors<1>(0, 19, [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
        const auto v1 = lanes.iota32(i2, 1);
        const auto v2 = lanes.vec(v0) >= v1;
        const auto v3 = icpu::load(p1 + i0 * 19 + i2, lanes);
        const auto v5 = v3 != lanes.vec(int64_t(0));
        const auto v6 = v2 & v5;
        const auto v9 = icpu::select(v6, lanes.vec(0.0f), lanes.vec(-1e+09f));
        icpu::store(p0 + i0 * 361 + i1 * 19 + i2, v9, lanes);
      });
    }
  });
  return 0;
}
