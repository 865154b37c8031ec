// Loops: i0 < 40, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_13b237e01ec1e16ed148006f(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const int64_t* const p1 = static_cast<const int64_t*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  icpu::Status status;
  const int threads = icpu::threads_for(240, 20480);
  icpu::parallel_for(40, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0, lanes);
      const auto v2 = icpu::check_element(v0, lanes.vec(int64_t(40)), lanes, status);
      const auto v3 = icpu::gather(p2, v2 + icpu::quotients(i0, 1, 5, lanes) * lanes.vec(int64_t(40)), lanes);
      icpu::store(p0 + i0, v3, lanes);
    });
  });
  return status.bits();
}
