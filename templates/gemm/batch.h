// Products of a batch of matrices: C[n] = A[n] @ B[n].
//
// Preconditions: those of multiply.h for each product. The packed operands follow each other.
//   pack(n, row, rows, from, depth, out)   as multiply.h's pack, of A[n]
//   epilogue(row, height, panel, width, c) as multiply.h's epilogue, of all rows of the batch: row m of C[n] is n * rows + m
#pragma once

#include "multiply.h"

namespace icpu::gemm {

// From so many products for each thread on, one more or less for some makes little difference.
inline constexpr int64_t kEvenly = 8;

// Threads share the batch where each gets about as much of it, and else each product.
template <class Micro, class PackOf>
inline void multiply_batch(int64_t batch, const Sizes& g, const typename Micro::Weight* b, int limit,
                           const PackOf& pack, const Epilogue<typename Micro::Sum>& epilogue) {
  const int64_t apart = round_up(g.columns, Micro::kColumns) * round_up(g.depth, Micro::kStep);
  const auto some = [&](int64_t begin, int64_t end, int threads) {
    for (int64_t n = begin; n < end; ++n) {
      const auto pack_one = [&](int64_t row, int64_t rows, int64_t from, int64_t depth, typename Micro::Element* out)
                                ICPU_INLINE { pack(n, row, rows, from, depth, out); };
      const auto finish_one = [&](int64_t row, int64_t height, int64_t panel, int64_t width, const typename Micro::Sum* c)
                                  ICPU_INLINE { epilogue(n * g.rows + row, height, panel, width, c); };
      multiply<Micro>(g, b + n * apart, threads, pack_one, finish_one);
    }
  };
  const int threads = threads_for(batch * g.rows * g.columns * g.depth / 64, kThreadWork, limit);
  const bool even = batch % threads == 0 || batch >= kEvenly * threads;
  if (threads > 1 && !even) return some(0, batch, limit);
  parallel_for(batch, 1, threads, [&](int64_t begin, int64_t end) { some(begin, end, 1); });
}

}  // namespace icpu::gemm
