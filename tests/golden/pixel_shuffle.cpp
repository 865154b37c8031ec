// Loops: i0 < 6, i1 < 20, i2 < 20, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i2, pointwise.
extern "C" int64_t icpu_a263a9f4ead44bfd2049d618(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int64_t rows = 6;
  const int threads = icpu::threads_for(4800, 20480);
  icpu::parallel_for_rows(rows, 20, 1, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    for (int64_t i1 = begin; i1 < end; ++i1) {
      icpu::for_vectors<1>(0, 20, [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
        const auto v0 = icpu::gather(p1, icpu::quotients(i2, 1, 2, lanes) * lanes.vec(int64_t(-199)) + lanes.iota(i2, 1) * lanes.vec(int64_t(100)) + lanes.vec(int64_t(-(i1 / 2) * 390 + i0 * 400 + i1 * 200)), lanes);
        icpu::store(p0 + i0 * 400 + i1 * 20 + i2, v0, lanes);
      });
    }
  });
  return 0;
}
