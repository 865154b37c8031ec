// Loops: i0 < 320, the first 1 shared among threads.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_2c8ea7ec0048595c1a140384(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  float* const p2 = static_cast<float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const float* const p4 = static_cast<const float*>(buffers[4]);
  const float v3 = std::abs(0.1f);
  const bool v5 = v3 < 0.5f;
  const float v10 = 1.0f - 0.1f;
  const float v25 = icpu::load(p4);
  const float v26 = std::pow(0.9f, v25);
  const float v27 = 1.0f - v26;
  const float v28 = float(1) / v27;
  const float v29 = v28 * 0.001f;
  const float v32 = std::pow(0.999f, v25);
  const float v33 = 1.0f - v32;
  const float v34 = std::sqrt(v33);
  const int threads = icpu::threads_for(44160, 20480);
  icpu::parallel_for(320, icpu::kLanes, threads, [&](const int64_t begin, const int64_t end) {
    icpu::for_vectors<1, icpu::Ends::kWhole>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      const auto v0 = icpu::load(p1 + i0, lanes);
      const auto v1 = icpu::load(p3 + i0, lanes);
      const auto v6 = v1 - v0;
      const auto v7 = lanes.vec(0.1f) * v6;
      const auto v8 = v0 + v7;
      const auto v11 = v6 * lanes.vec(v10);
      const auto v12 = v1 - v11;
      const auto v13 = v5 ? v8 : v12;
      const auto v14 = icpu::load(p2 + i0, lanes);
      const auto v16 = v14 * lanes.vec(0.999f);
      const auto v18 = lanes.vec(0.001f) * v1;
      const auto v19 = v18 * v1;
      const auto v20 = v16 + v19;
      const auto v21 = icpu::load(p0 + i0, lanes);
      const auto v23 = v21 * lanes.vec(0.99999f);
      const auto v30 = lanes.vec(v29) * v13;
      const auto v31 = icpu::sqrt(v20);
      const auto v35 = v31 / lanes.vec(v34);
      const auto v37 = v35 + lanes.vec(1e-08f);
      const auto v38 = v30 / v37;
      const auto v39 = v23 - v38;
      icpu::store(p0 + i0, v39, lanes);
      icpu::store(p1 + i0, v13, lanes);
      icpu::store(p2 + i0, v20, lanes);
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
