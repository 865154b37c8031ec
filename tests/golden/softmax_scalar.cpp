// Loops: i0 < n0, the first 1 shared among threads.
// Inner loops: r0 < 77, in 3 phases.
// Scalar code.
extern "C" int64_t icpu_46c881ef184f00a5e77bc352(void* const* buffers, const int64_t* sizes) {
  const float* const p0 = static_cast<const float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 3850, 20480);
  icpu::parallel_for(n0, 1, threads, [&](const int64_t begin, const int64_t end) {
    for (int64_t i0 = begin; i0 < end; ++i0) {
      icpu::NumberMax<float> acc1;
      for (int64_t r0 = 0; r0 < 77; ++r0) {
        const float v0 = icpu::load(p0 + i0 * 77 + r0);
        acc1.add(v0);
      }
      const float v1 = acc1.result();
      icpu::Sum<float> acc4;
      for (int64_t r0 = 0; r0 < 77; ++r0) {
        const float v0 = icpu::load(p0 + i0 * 77 + r0);
        const float v2 = v0 - v1;
        const float v3 = std::exp(v2);
        acc4.add(v3);
      }
      const float v4 = acc4.result();
      const float v5 = float(1) / v4;
      for (int64_t r0 = 0; r0 < 77; ++r0) {
        const float v0 = icpu::load(p0 + i0 * 77 + r0);
        const float v2 = v0 - v1;
        const float v3 = std::exp(v2);
        const float v6 = v3 / v4;
        icpu::store(p1 + i0 * 77 + r0, v6);
      }
    }
  });
  return 0;
}
