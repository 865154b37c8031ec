// Loops: i0 < 24, i1 < 72, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_53eabf053dff53548f626620(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const float* const p4 = static_cast<const float*>(buffers[4]);
  const float* const p5 = static_cast<const float*>(buffers[5]);
  const int64_t rows = icpu::vectors_in(24);
  const int threads = icpu::threads_for(43200, 20480);
  icpu::parallel_for_rows(rows, 72, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0_start = row * icpu::kLanes;
    const int64_t i0_end = std::min<int64_t>(i0_start + icpu::kLanes, 24);
    icpu::for_vectors<1>(begin, end, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
      alignas(64) float tile_v11[icpu::kLanes * icpu::kLanes];
      alignas(64) float tile_s0[icpu::kLanes * icpu::kLanes];
      icpu::load_tile(p5 + i1 * 24 + i0_start, 24, i0_end - i0_start, lanes, tile_v11);
      for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
        const float v0 = icpu::load(p1 + i0);
        const float v2 = v0 + 1e-05f;
        const float v3 = std::sqrt(v2);
        const float v4 = float(1) / v3;
        const float v5 = icpu::load(p2 + i0);
        const float v6 = v4 * v5;
        const float v7 = icpu::load(p3 + i0);
        const float v8 = v7 * v6;
        const float v9 = icpu::load(p4 + i0);
        const float v10 = v9 - v8;
        const auto v11 = icpu::load(tile_v11 + (i0 - i0_start) * icpu::kLanes, icpu::Full<1>{});
        const auto v12 = v11 * lanes.vec(v6);
        const auto v13 = v12 + lanes.vec(v10);
        const auto v14 = icpu::relu(v13);
        icpu::store(tile_s0 + (i0 - i0_start) * icpu::kLanes, v14, icpu::Full<1>{});
      }
      icpu::store_tile(p0 + i1 * 24 + i0_start, 24, i0_end - i0_start, lanes, tile_s0);
    });
  });
  return 0;
}
