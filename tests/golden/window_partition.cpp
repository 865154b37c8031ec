// Loops: i0 < 2, i1 < 196, i2 < 20, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i2, pointwise.
extern "C" int64_t icpu_55abad1774224126d9b08409(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int64_t rows = 2;
  const int threads = icpu::threads_for(15680, 20480);
  icpu::parallel_for_rows(rows, 196, 1, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    for (int64_t i1 = begin; i1 < end; ++i1) {
      icpu::for_vectors<1>(0, 20, [&](const int64_t i2, const auto lanes, const int) ICPU_INLINE {
        const auto v0 = icpu::load(p1 + ((3 + (((i1 % 49)) / 7) + (i1 / 98) * 7) % 14) * 280 + ((3 + (((i1 % 98)) / 49) * 7 + (i1 % 7)) % 14) * 20 + i0 * 3920 + i2, lanes);
        icpu::store(p0 + i0 * 3920 + i1 * 20 + i2, v0, lanes);
      });
    }
  });
  return 0;
}
