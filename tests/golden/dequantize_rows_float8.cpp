// Loops: i0 < 8, i1 < 40, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_0ae367463ba8548b1cd42e11(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const icpu::f8_e4m3fn* const p1 = static_cast<const icpu::f8_e4m3fn*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const int64_t rows = 8;
  const int threads = icpu::threads_for(1280, 20480);
  icpu::parallel_for_rows(rows, 40, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    const float v2 = icpu::load(p2 + i0);
    icpu::for_vectors<1>(begin, end, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0 * 40 + i1, lanes);
      const auto v1 = v0;
      const auto v3 = v1 * lanes.vec(v2);
      icpu::store(p0 + i0 * 40 + i1, v3, lanes);
    });
  });
  return 0;
}
