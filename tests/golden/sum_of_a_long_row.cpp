// Loops: i0 < n0.
// Inner loops: r0 < 50000, in 1 phase.
// Vectors: 8 lanes (avx2) along r0, lanes of one result.
extern "C" int64_t icpu_cc366767c859cb90532c888a(void* const* buffers, const int64_t* sizes) {
  const float* const p0 = static_cast<const float*>(buffers[0]);
  float* const p1 = static_cast<float*>(buffers[1]);
  const int64_t n0 = sizes[0];
  for (int64_t i0 = 0; i0 < n0; ++i0) {
    icpu::CarriedSum<icpu::value_t<float>> acc1[4];
    icpu::in_stretches<4>(0, 50000, [&](const int64_t from, const int64_t to) ICPU_INLINE {
      icpu::for_vectors<4, icpu::Ends::kWhole>(from, to, [&](const int64_t r0, const auto lanes, const int part) ICPU_INLINE {
        icpu::fetch(p0, 512 + i0 * 50000 + r0, lanes);
        const auto v0 = icpu::load(p0 + i0 * 50000 + r0, lanes);
        acc1[part].add(v0, lanes);
      });
    }, acc1);
    const float v1 = icpu::total(acc1);
    icpu::store(p1 + i0, v1);
  }
  return 0;
}
