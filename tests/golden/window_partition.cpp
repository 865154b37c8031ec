// Loops: i0 < 2, i1 < 2, i2 < 2, i3 < 7, i4 < 7, i5 < 20, the first 4 shared among threads.
// Vectors: 16 lanes (avx512) along i5, pointwise.
extern "C" int64_t icpu_97afb9736f4a7ea6134a3445(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int64_t rows = 2 * 2 * 2;
  const int threads = icpu::threads_for(15680, 20480);
  icpu::parallel_for_rows(rows, 7, 1, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row / (2 * 2);
    const int64_t i1 = row / (2) % 2;
    const int64_t i2 = row % 2;
    for (int64_t i3 = begin; i3 < end; ++i3) {
      for (int64_t i4 = 0; i4 < 7; ++i4) {
        icpu::for_vectors<1>(0, 20, [&](const int64_t i5, const auto lanes, const int) ICPU_INLINE {
          const auto v0 = icpu::load(p1 + ((3 + i1 * 7 + i3) % 14) * 280 + ((3 + i2 * 7 + i4) % 14) * 20 + i0 * 3920 + i5, lanes);
          icpu::copy(p0 + i0 * 3920 + i1 * 1960 + i2 * 980 + i3 * 140 + i4 * 20 + i5, p1 + ((3 + i1 * 7 + i3) % 14) * 280 + ((3 + i2 * 7 + i4) % 14) * 20 + i0 * 3920 + i5, lanes);
        });
      }
    }
  });
  return 0;
}
