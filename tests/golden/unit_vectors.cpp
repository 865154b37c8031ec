// Loops: i0 < 23, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_ff5dd1edc51da194cfb57acc(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const int threads = icpu::threads_for(2208, 20480);
  icpu::parallel_for(23, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto record1 = icpu::load_records<3>(p1 + i0 * 3, lanes);
      const auto v1 = record1.part[0];
      const auto v2 = v1 * v1;
      const auto v3 = lanes.vec(0.0f) + v2;
      const auto v4 = record1.part[1];
      const auto v5 = v4 * v4;
      const auto v6 = v3 + v5;
      const auto v7 = record1.part[2];
      const auto v8 = v7 * v7;
      const auto v9 = v6 + v8;
      const auto v10 = icpu::sqrt(v9);
      const auto v11 = v1 / v10;
      const auto v12 = v4 / v10;
      const auto v13 = v7 / v10;
      icpu::store_records(p0 + i0 * 3, lanes, v11, v12, v13);
    });
  });
  return 0;
}
