// Loops: i0 < 2, i1 < 9, i2 < 32, the first 3 shared among threads.
// Vectors: 16 lanes (avx512) along i2, pointwise.
extern "C" int64_t icpu_aa81976c1be45fc11dca3124(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const int64_t rows = 2 * 9;
  const int threads = icpu::threads_for(7488, 20480);
  icpu::parallel_for_rows(rows, 32, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row / (9);
    const int64_t i1 = row % 9;
    icpu::for_vectors<1, icpu::Ends::kWhole>(begin, std::min<int64_t>(end, 16), [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0 * 288 + i1 * 32 + i2, lanes);
      const auto v1 = icpu::load(p2 + i1 * 32 + i2, lanes);
      const auto v2 = v0 * v1;
      const auto v6 = icpu::load(p1 + 16 + i0 * 288 + i1 * 32 + i2, lanes);
      const auto v7 = -v6;
      const auto v10 = icpu::select(true, v7, lanes.vec(0.0f));
      const auto v11 = icpu::load(p3 + i1 * 32 + i2, lanes);
      const auto v12 = v10 * v11;
      const auto v13 = v2 + v12;
      icpu::store(p0 + i0 * 288 + i1 * 32 + i2, v13, lanes);
    });
    icpu::for_vectors<1, icpu::Ends::kWhole>(std::max<int64_t>(begin, 16), end, [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0 * 288 + i1 * 32 + i2, lanes);
      const auto v1 = icpu::load(p2 + i1 * 32 + i2, lanes);
      const auto v2 = v0 * v1;
      const float v7 = -0.0f;
      const auto v9 = icpu::load(p1 + -16 + i0 * 288 + i1 * 32 + i2, lanes);
      const auto v10 = icpu::select(false, lanes.vec(v7), v9);
      const auto v11 = icpu::load(p3 + i1 * 32 + i2, lanes);
      const auto v12 = v10 * v11;
      const auto v13 = v2 + v12;
      icpu::store(p0 + i0 * 288 + i1 * 32 + i2, v13, lanes);
    });
  });
  return 0;
}
