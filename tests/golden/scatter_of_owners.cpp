#include "scatters.h"
// Loops: i0 < n0, divided among threads by what they write.
// Vectors: 16 lanes (avx512) along i0, pointwise.
extern "C" int64_t icpu_3ae543ab59ffd579c185e22a(void* const* buffers, const int64_t* sizes) {
  const int64_t* const p0 = static_cast<const int64_t*>(buffers[0]);
  const float* const p1 = static_cast<const float*>(buffers[1]);
  float* const p2 = static_cast<float*>(buffers[2]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 10000000, 20480);
  icpu::parallel_owners(p2, n0, 300, 2, 16, threads, [&](const auto mine, float* const p2, const int64_t begin, const int64_t end) {
    auto stores = icpu::stores_of<icpu::Adds>(mine, p2);
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      icpu::fetch(p0, 256 + i0, lanes);
      const auto v0 = icpu::load(p0 + i0, lanes);
      const auto wanted = mine.has(v0) & lanes.mask();
      if (icpu::any(wanted)) {
        icpu::fetch(p1, 512 + i0, lanes);
        const auto v1 = icpu::load(p1 + i0, lanes);
        stores.put(v0, v1, wanted, lanes);
      }
    });
  });
  return 0;
}
