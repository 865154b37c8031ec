// Loops: i0 < 2, i1 < 9, the first 2 shared among threads.
// Inner loops: r0 < 40, in 3 phases.
// Vectors: 16 lanes (avx512) along r0, lanes of one result.
extern "C" int64_t icpu_5a9918d014da66ea7f85085b(void* const* buffers, const int64_t* sizes) {
  float* const p0 = static_cast<float*>(buffers[0]);
  const int64_t* const p1 = static_cast<const int64_t*>(buffers[1]);
  const float* const p2 = static_cast<const float*>(buffers[2]);
  const float* const p3 = static_cast<const float*>(buffers[3]);
  const float* const p4 = static_cast<const float*>(buffers[4]);
  icpu::Status status;
  const int64_t rows = 2;
  const int threads = icpu::threads_for(60480, 20480);
  icpu::parallel_for_rows(rows, 9, 1, threads, [&](const int64_t row, const int64_t begin, const int64_t end) {
    const int64_t i0 = row;
    for (int64_t i1 = begin; i1 < end; ++i1) {
      const int64_t v0 = icpu::load(p1 + i0 * 9 + i1);
      const bool v3 = v0 < int64_t(0);
      const int64_t v4 = v3 ? int64_t(50) : v0;
      const int64_t v5 = icpu::check_index(v4, int64_t(50), status);
      alignas(64) float row8[48];
      alignas(64) float row12[48];
      icpu::Sum<icpu::value_t<float>> acc9[2];
      icpu::for_vectors<2>(0, 40, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v6 = icpu::load(p2 + v5 * 40 + r0, lanes);
        const auto v7 = icpu::load(p3 + i1 * 40 + r0, lanes);
        const auto v8 = v6 + v7;
        icpu::store(row8 + r0, v8, icpu::Full<lanes.units>{});
        acc9[part].add(v8, lanes);
      });
      const float v9 = icpu::total(acc9);
      const float v11 = v9 / 4e+01f;
      icpu::Sum<icpu::value_t<float>> acc14[2];
      icpu::for_vectors<2>(0, 40, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        const auto v8 = icpu::load(row8 + r0, icpu::Full<lanes.units>{});
        const auto v12 = v8 - lanes.vec(v11);
        icpu::store(row12 + r0, v12, icpu::Full<lanes.units>{});
        const auto v13 = v12 * v12;
        acc14[part].add(v13, lanes);
      });
      const float v14 = icpu::total(acc14);
      const float v15 = v14 / 4e+01f;
      const float v17 = v15 + 1e-05f;
      const float v18 = std::sqrt(v17);
      const float v19 = float(1) / v18;
      icpu::for_vectors<1>(0, 40, [&](const int64_t r0, const auto lanes, const int) ICPU_INLINE {
        const auto v12 = icpu::load(row12 + r0, icpu::Full<lanes.units>{});
        const auto v20 = v12 * lanes.vec(v19);
        const auto v21 = icpu::load(p4 + r0, lanes);
        const auto v22 = v20 * v21;
        icpu::store(p0 + i0 * 360 + i1 * 40 + r0, v22, lanes);
      });
    }
  });
  return status.bits();
}
