// Loops: i0 < 2, i1 < 9, i2 < 21, the first 3 shared among threads.
// Vectors: 16 lanes (avx512) along i2, pointwise.
extern "C" int64_t icpu_bfe75b8916c2efad43dacfd2(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const bool* const p1 = static_cast<const bool*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const int64_t rows = 2 * 9;
  const int threads = icpu::threads_for(1512, 20480);
  icpu::parallel_for_rows(rows, 21, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row / (9);
    const int64_t i1 = row % 9;
    icpu::for_vectors<1>(begin, end, [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0 * 21 + i2, lanes);
      const auto v2 = icpu::load(p2 + i0 * 189 + i1 * 21 + i2, lanes);
      const auto v3 = icpu::select(v0, lanes.vec(-1e+04f), v2);
      icpu::store(p0 + i0 * 189 + i1 * 21 + i2, v3, lanes);
    });
  });
  return 0;
}
