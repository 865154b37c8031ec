// Loops: i0 < 3, i1 < 162, the first 2 shared among threads.
// Vectors: 16 lanes (avx512) along i1, pointwise.
extern "C" int64_t icpu_1e970a16d140c9732b38aa57(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const uint8_t* const p1 = static_cast<const uint8_t*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const int64_t rows = 3;
  const int threads = icpu::threads_for(8262, 20480);
  icpu::parallel_for_rows(rows, 162, icpu::kLanes, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    const float v4 = icpu::load(p2 + i0);
    const float v6 = icpu::load(p3 + i0);
    icpu::for_vectors<1>(begin, end, [&](const int64_t i1, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::gather(p1 + i0 + i1 * 3, lanes.iota(0, 3), lanes);
      const auto v1 = icpu::convert<float>(v0);
      const auto v3 = v1 / lanes.vec(255.0f);
      const auto v5 = v3 - lanes.vec(v4);
      const auto v7 = v5 / lanes.vec(v6);
      icpu::scatter(p0 + i0 + i1 * 3, lanes.iota(0, 3), v7, lanes);
    });
  });
  return 0;
}
