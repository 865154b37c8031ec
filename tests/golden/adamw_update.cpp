// Loops: i0 < 320, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_fe1bea99b4ba71cf606175a5(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  float* const p2 = static_cast<float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const float* const p4 = static_cast<const float*>(buffers[4]);
  const float v3 = std::abs(0.1f);
  const bool v5 = v3 < 0.5f;
  const float v7 = 0.1f - 1.0f;
  const float v8 = v5 ? 0.1f : v7;
  const float v22 = icpu::load(p4);
  const float v23 = std::pow(0.9f, v22);
  const float v24 = 1.0f - v23;
  const float v25 = float(1) / v24;
  const float v26 = v25 * 0.001f;
  const float v29 = std::pow(0.999f, v22);
  const float v30 = 1.0f - v29;
  const float v31 = std::sqrt(v30);
  const int threads = icpu::threads_for(43200, 20480);
  icpu::parallel_for(320, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1, icpu::Ends::kWhole>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0, lanes);
      const auto v1 = icpu::load(p3 + i0, lanes);
      const auto v9 = v1 - v0;
      const auto v10 = icpu::select(v5, v0, v1);
      const auto v11 = icpu::fma(lanes.vec(v8), v9, v10);
      const auto v12 = icpu::load(p2 + i0, lanes);
      const auto v14 = v12 * lanes.vec(0.999f);
      const auto v16 = lanes.vec(0.001f) * v1;
      const auto v17 = icpu::fma(v16, v1, v14);
      const auto v18 = icpu::load(p0 + i0, lanes);
      const auto v20 = v18 * lanes.vec(0.99999f);
      const auto v27 = lanes.vec(v26) * v11;
      const auto v28 = icpu::sqrt(v17);
      const auto v32 = v28 / lanes.vec(v31);
      const auto v34 = v32 + lanes.vec(1e-08f);
      const auto v35 = v27 / v34;
      const auto v36 = v20 - v35;
      icpu::store(p0 + i0, v36, lanes);
      icpu::store(p1 + i0, v11, lanes);
      icpu::store(p2 + i0, v17, lanes);
    });
  });
  return 0;
}

// Loops: none.
// Scalar code: it has no loop.
extern "C" int64_t icpu_d325a1105c165fd0a0bb34a1(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  const float v0 = icpu::load(p1);
  const float v2 = v0 + 1.0f;
  icpu::store(p0, v2);
  return 0;
}
