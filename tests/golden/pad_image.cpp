// Loops: i0 < 24, i1 < 12, i2 < 12, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i2, pointwise.
extern "C" int64_t icpu_b8bf7c1145a416a27ee2734a(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int64_t rows = 24;
  const int threads = icpu::threads_for(31104, 20480);
  icpu::parallel_for_rows(rows, 12, 1, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    for (int64_t i1 = begin; i1 < end; ++i1) {
      const int32_t v0 = int32_t(-1 + i1);
      const bool v2 = v0 >= 0;
      const bool v4 = v0 < 10;
      const bool v5 = v2 && v4;
      icpu::for_vectors<1>(0, 12, [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
        const auto v6 = lanes.iota32(-1 + i2, 1);
        const auto v7 = v6 >= lanes.vec(0);
        const auto v8 = v6 < lanes.vec(10);
        const auto v9 = lanes.vec(v5) & v7;
        const auto v10 = v9 & v8;
        const auto v11 = icpu::load(p1 + -11 + i0 * 100 + i1 * 10 + i2, lanes, v10, lanes.vec(0.0f));
        icpu::store(p0 + i0 * 144 + i1 * 12 + i2, v11, lanes);
      });
    }
  });
  return 0;
}
