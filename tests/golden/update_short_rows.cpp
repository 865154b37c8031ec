// Loops: i0 < 9, i1 < 104, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_d9a4251020f4f5db0530600f(void* const* buffers, const int64_t* sizes) {
  double* const p0 = static_cast<double*>(buffers[0]);
  const double* const p1 = static_cast<const double*>(buffers[1]);
  const double* const p2 = static_cast<const double*>(buffers[2]);
  const int64_t rows = 9;
  const int threads = icpu::threads_for(12168, 20480);
  icpu::parallel_for_rows(rows, 104, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    const int32_t v0 = int32_t(i0);
    const bool v2 = v0 >= 1;
    const bool v4 = v0 < 8;
    const bool v5 = v2 && v4;
    icpu::for_vectors<1>(begin, end, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
      const auto v6 = lanes.iota32(i1, 1);
      const auto v8 = v6 >= lanes.vec(12);
      const auto v10 = icpu::lane_mask<0xcccc>(lanes);
      const auto v13 = icpu::lane_mask<0x5555>(lanes);
      const auto v14 = lanes.vec(v5) & v8;
      const auto v15 = icpu::load_ordered<icpu::Order<0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3>>(p1 + -26 + (i1 / 4) + i0 * 23, 4, lanes, v14, lanes.vec(0.0));
      const auto v16 = icpu::load(p2 + i0 * 104 + i1, lanes);
      const auto v17 = v14 & v10;
      const auto v18 = v17 & v13;
      const auto v19 = icpu::select(v18, v15, v16);
      icpu::store(p0 + i0 * 104 + i1, v19, lanes);
    });
  });
  return 0;
}
