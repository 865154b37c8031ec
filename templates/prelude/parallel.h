// Sharing loops among the threads of the OpenMP pool that ATen uses too.
//
// Preconditions: -fopenmp and the same OpenMP runtime as torch. A body must not throw.
#pragma once

#include "base.h"

#include <omp.h>

#include <algorithm>

namespace icpu {

// How many threads to use for `work`, at most `limit` (torch's number at the time of the call), if each must get at
// least `grain`: an empty parallel region costs about 1 us.
inline int threads_for(int64_t work, int64_t grain, int limit = omp_get_max_threads()) {
  if (work < 2 * grain || omp_in_parallel()) return 1;
  return static_cast<int>(std::min<int64_t>(limit, work / grain));
}

// Stores around the cache (vec_memory.h) are seen before what follows.
inline void order_stores() { __builtin_ia32_sfence(); }

// body(begin, end) for chunks of [0, total) whose bounds, the last end excepted, are multiples of `align`.
template <class Body>
inline void parallel_for(int64_t total, int64_t align, int threads, const Body& body) {
  if (threads <= 1) {
    if (total > 0) body(int64_t(0), total);
    order_stores();
    return;
  }
  const int64_t units = (total + align - 1) / align;
  // Always the whole team, as ATen does: libgomp ends the threads that a smaller team does not need, and making them
  // again costs far more than letting them idle.
#pragma omp parallel
  {
    const int64_t count = std::min(omp_get_num_threads(), threads);
    const int64_t self = omp_get_thread_num();
    const int64_t begin = std::min(units * self / count * align, total);
    const int64_t end = std::min(units * (self + 1) / count * align, total);
    if (self < count && begin < end) body(begin, end);
    order_stores();
  }
}

// The points of rows x size, shared among threads: body(row, begin, end) for pieces of rows, begin a multiple of
// `align`.
template <class Body>
inline void parallel_for_rows(int64_t rows, int64_t size, int64_t align, int threads, const Body& body) {
  const int64_t units = (size + align - 1) / align;
  if (units == 0) return;
  parallel_for(rows * units, 1, threads, [&](int64_t begin, int64_t end) {
    int64_t row = begin / units;
    int64_t first = begin % units;
    for (int64_t left = end - begin; left > 0; ++row, first = 0) {
      const int64_t taken = std::min(units - first, left);
      body(row, first * align, std::min((first + taken) * align, size));
      left -= taken;
    }
  });
}

}  // namespace icpu
