// Loops: i0 < 40, i1 < 33, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_f9b6439238f6f602f50eb02b(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const int threads = icpu::threads_for(5280, 20480);
  icpu::parallel_for(40, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0_start = begin; i0_start < end; i0_start += icpu::kLanes) {
      const int64_t i0_end = std::min<int64_t>(i0_start + icpu::kLanes, end);
      icpu::for_vectors<1>(0, 33, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
        icpu::with_tile<true>(i0_start, i0_end, lanes, [&](const auto tile_rows) ICPU_INLINE {
          alignas(64) float tile_v0[icpu::kLanes * icpu::kLanes];
          icpu::load_tile(p1 + i1 * 40 + i0_start, 40, tile_rows, lanes, tile_v0);
          tile_rows.each([&](const int64_t in_tile) ICPU_INLINE {
            const int64_t i0 = i0_start + in_tile;
            const auto v0 = icpu::tile_row(tile_v0, in_tile);
            const auto v1 = icpu::load(p2 + i0 * 33 + i1, lanes);
            const auto v2 = v0 + v1;
            icpu::store(p0 + i0 * 33 + i1, v2, lanes);
          });
        });
      });
    }
  });
  return 0;
}
