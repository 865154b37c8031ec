// Loops: i0 < 8, i1 < 5, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_58f454c6b3f8cb9df482c10d(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const int64_t* const p1 = static_cast<const int64_t*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  icpu::Status status;
  const int64_t rows = 8;
  const int threads = icpu::threads_for(240, 20480);
  icpu::parallel_for_rows(rows, 5, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    icpu::for_vectors<1>(begin, end, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0 * 5 + i1, lanes);
      const auto v2 = icpu::check_element(v0, lanes.vec(int64_t(40)), lanes, status);
      const auto v3 = icpu::gather(p2, v2 + lanes.vec(int64_t(i0 * 40)), lanes);
      icpu::store(p0 + i0 * 5 + i1, v3, lanes);
    });
  });
  return status.bits();
}
