// Loops: i0 < n0, i1 < 768, the first 2 shared among threads.
// Vectors: 8 lanes (avx2) along i1, pointwise.
extern "C" int64_t icpu_423fb851bb86ba42cd30bde6(void* const* buffers, const int64_t* sizes) {
  const int64_t* const p0 = static_cast<const int64_t*>(buffers[0]);
  const bool* const p1 = static_cast<const bool*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  float* const p3 = static_cast<float*>(buffers[3]);
  const int64_t n0 = sizes[0];
  icpu::Status status;
  const int64_t rows = n0;
  const int threads = icpu::threads_for(n0 * 1536, 20480);
  icpu::parallel_for_rows(rows, 768, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    const int64_t v0 = icpu::load(p0 + i0);
    const int64_t v2 = icpu::check_index(v0, int64_t(1000), status);
    const bool v3 = icpu::load(p1 + i0);
    icpu::for_vectors<1, icpu::Ends::kWhole>(begin, end, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
      const auto v4 = v3 ? icpu::load(p2 + v2 * 768 + i1, lanes) : lanes.vec(0.0f);
      icpu::fetch_to_write(p3, 512 + i0 * 768 + i1, lanes);
      icpu::store(p3 + i0 * 768 + i1, v4, lanes);
    });
  });
  return status.bits();
}
