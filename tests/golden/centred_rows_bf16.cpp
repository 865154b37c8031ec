// Loops: i0 < n0.
// Inner loops: r0 < 100, in 3 phases.
// Vectors: 8 lanes (avx2) along r0, lanes of one result.
extern "C" int64_t icpu_10446d694760bc8e5400ee3e(void* const* buffers, const int64_t* sizes) {
  const icpu::bf16* const p0 = static_cast<const icpu::bf16*>(buffers[0]);
  icpu::bf16* const p1 = static_cast<icpu::bf16*>(buffers[1]);
  float* const p2 = static_cast<float*>(buffers[2]);
  const int64_t n0 = sizes[0];
  for (int64_t i0 = 0; i0 < n0; ++i0) {
    alignas(64) float row5[104];
    icpu::Sum<icpu::value_t<float>> acc2[4];
    icpu::for_alternating<4>(0, 100, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
      const auto v0 = icpu::load(p0 + i0 * 100 + r0, lanes);
      const auto v1 = v0;
      icpu::add_units(acc2, part, v1, lanes);
    });
    const float v2 = icpu::total(acc2);
    const float v4 = v2 / 1e+02f;
    icpu::Sum<icpu::value_t<float>> acc7[4];
    icpu::NumberMax<icpu::value_t<float>> acc8[4];
    icpu::for_alternating<4>(0, 100, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
      icpu::fetch(p0, 1100 + i0 * 100 + r0, lanes);
      const auto v0 = icpu::load(p0 + i0 * 100 + r0, lanes);
      const auto v1 = v0;
      const auto v5 = v1 - lanes.vec(v4);
      icpu::store(row5 + r0, v5, icpu::Full<lanes.units>{});
      const auto v6 = v5 * v5;
      icpu::add_units(acc7, part, v6, lanes);
      icpu::add_units(acc8, part, v1, lanes);
    });
    const float v7 = icpu::total(acc7);
    const float v8 = icpu::total(acc8);
    icpu::for_alternating<2>(0, 100, [&](const int64_t r0, const auto lanes, const int) ICPU_INLINE {
      const auto v5 = icpu::load(row5 + r0, icpu::Full<lanes.units>{});
      const auto v9 = v5 * lanes.vec(v7);
      const auto v10 = v9;
      icpu::fetch_to_write(p1, 1024 + i0 * 100 + r0, lanes);
      icpu::store_plain(p1 + i0 * 100 + r0, v10, lanes);
    });
    icpu::store(p2 + i0, v8);
  }
  return 0;
}
