#include "scatters.h"
// Loops: i0 < n0, divided among threads by what they write.
// Vectors: 8 lanes (avx2) along i0, pointwise.
extern "C" int64_t icpu_08905b4c838d733affc1b495(void* const* buffers, const int64_t* sizes) {
  const int64_t* const p0 = static_cast<const int64_t*>(buffers[0]);
  const int64_t* const p1 = static_cast<const int64_t*>(buffers[1]);
  int64_t* const p2 = static_cast<int64_t*>(buffers[2]);
  const int64_t n0 = sizes[0];
  const int threads = icpu::threads_for(n0 * 10000000, 20480);
  icpu::parallel_copies(p2, 300, 16, n0, icpu::kLanes, threads, [&](const auto mine, int64_t* const p2, const int64_t begin, const int64_t end) {
    auto stores = icpu::stores_of<icpu::Adds>(mine, p2);
    icpu::for_vectors<1>(begin, end, [&](const int64_t i0, const auto lanes, const int) ICPU_INLINE {
      icpu::fetch(p0, 256 + i0, lanes);
      const auto v0 = icpu::load(p0 + i0, lanes);
      const auto wanted = mine.has(v0) & lanes.mask();
      if (icpu::any(wanted)) {
        icpu::fetch(p1, 256 + i0, lanes);
        const auto v1 = icpu::load(p1 + i0, lanes);
        stores.put(v0, v1, wanted, lanes);
      }
    });
  });
  return 0;
}
