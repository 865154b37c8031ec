// Loops: i0 < n0, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_4b710b8e9b0fda078de0d7ed(void* const* buffers, const int64_t* sizes) {
  const icpu::bf16* const p0 = static_cast<const icpu::bf16*>(buffers[0]);
  icpu::bf16* const p1 = static_cast<icpu::bf16*>(buffers[1]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 30, 20480);
  icpu::parallel_for(n0, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_blocks<2>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      icpu::fetch(p0, 1024 + i0, lanes);
      const auto v0 = icpu::load(p0 + i0, lanes);
      const auto v1 = v0;
      const auto v3 = v1 * lanes.vec(0.70710677f);
      const auto v4 = icpu::erf(v3);
      const auto v6 = v1 * lanes.vec(0.5f);
      const auto v8 = v4 + lanes.vec(1.0f);
      const auto v9 = v6 * v8;
      const auto v10 = v9;
      icpu::fetch_to_write(p1, 1024 + i0, lanes);
      icpu::store_plain(p1 + i0, v10, lanes);
    });
  });
  return 0;
}
