// Loops: i0 < 23, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_7b8a73eeaf727a6acada41fd(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int threads = icpu::threads_for(368, 20480);
  icpu::parallel_for(23, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto record0 = icpu::load_records<4>(p1 + i0 * 4, lanes);
      const auto v0 = record0.part[0];
      const auto v3 = icpu::at_least(v0, lanes.vec(0.0f));
      const auto v4 = icpu::at_most(v3, lanes.vec(6.4e+02f));
      const auto v5 = record0.part[2];
      const auto v7 = icpu::at_least(v5, lanes.vec(0.0f));
      const auto v8 = icpu::at_most(v7, lanes.vec(4.8e+02f));
      const auto v9 = record0.part[1];
      const auto v10 = icpu::at_least(v9, lanes.vec(0.0f));
      const auto v11 = icpu::at_most(v10, lanes.vec(6.4e+02f));
      const auto v12 = record0.part[3];
      const auto v13 = icpu::at_least(v12, lanes.vec(0.0f));
      const auto v14 = icpu::at_most(v13, lanes.vec(4.8e+02f));
      icpu::store_records(p0 + i0 * 4, lanes, v4, v11, v8, v14);
    });
  });
  return 0;
}
