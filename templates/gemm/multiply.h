// C = A @ B by blocks: packing of A, the loops around a micro kernel, and the epilogue on each block of C while it is
// in the cache.
//
// Preconditions: B is packed in panels of Micro::kColumns columns; a panel holds its columns for all of the depth,
// rounded up to Micro::kStep with zeros, in the order in which the micro kernel reads them. `pack(row, out)` writes
// up to kBlock rows of A from `row` on, for all of the depth, in the micro kernel's order, zeros beyond the end. C exists
// only in blocks of float: `epilogue(row, height, panel, width, c)` gets each block once, complete, with leading
// dimension Micro::kColumns; its first column is panel * kColumns.
//
// A micro kernel is a class with
//   Element           the element type of the packed A and B
//   kBlock, kColumns  rows of a block of A, columns of a panel of B
//   kStep, kDepth     granularity of the depth, and how much of it a panel keeps in the L1 cache (a multiple)
//   Thread            an object that each thread holds while it multiplies
//   pack(a, lda, rows, depth, out), copy(from, count, to)
//                     rows of a row-major A into a block; at most kStep values of one
//   block(a, b, next, c, rows, depth, accumulate)
//                     c (+)= a @ b for one block and a part of the depth; `next` is what to prefetch of B
#pragma once

#include "base.h"
#include "parallel.h"

#include <algorithm>

namespace icpu::gemm {

inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// The packed rows of A that all panels of B read again and again stay in the L2 cache.
inline constexpr int64_t kPackedBytes = int64_t(1) << 20;

struct Sizes {
  int64_t rows, columns, depth;
};

// A thread's aligned memory. Each slot is one block.
template <class T, int slot>
inline T* aligned_scratch(int64_t count) {
  const auto address = reinterpret_cast<uintptr_t>(scratch<T, slot>(count + 64));
  return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

// One panel's columns of some blocks of rows: the depth is cut so that the panel's part stays in the L1 cache.
template <class Micro, class Epilogue>
inline void multiply_panel(const Sizes& g, const typename Micro::Element* a, int64_t first_block, int64_t blocks,
                           const typename Micro::Element* b, int64_t panel, float* c, const Epilogue& epilogue) {
  const int64_t depth = round_up(g.depth, Micro::kStep);
  const int64_t width = std::min<int64_t>(Micro::kColumns, g.columns - panel * Micro::kColumns);
  b += panel * depth * Micro::kColumns;
  for (int64_t k = 0; k < depth; k += Micro::kDepth, b += Micro::kDepth * Micro::kColumns) {
    const int64_t part = std::min<int64_t>(Micro::kDepth, depth - k);
    const int64_t ahead = part * Micro::kColumns;
    for (int64_t n = 0; n < blocks; ++n) {
      const int64_t row = (first_block + n) * Micro::kBlock;
      const int64_t rows = std::min<int64_t>(Micro::kBlock, g.rows - row);
      float* block = c + n * Micro::kBlock * Micro::kColumns;
      // The next part of B comes while this one is used: each block fetches its share.
      const int64_t share = round_up(ceil_div(ahead, blocks), 64);
      Micro::block(a + (n * depth + k) * Micro::kBlock, b, b + ahead + n * share, block, rows, part, k > 0);
      if (k + part == depth) epilogue(row, rows, panel, width, block);
    }
  }
}

template <class Micro, class Pack, class Epilogue>
inline void multiply(const Sizes& g, const typename Micro::Element* b, int limit, const Pack& pack,
                     const Epilogue& epilogue) {
  using Element = typename Micro::Element;
  const int threads = threads_for(g.rows * g.columns * g.depth / 64, 4000, limit);
  const int64_t panels = ceil_div(g.columns, Micro::kColumns);
  const int64_t block_size = round_up(g.depth, Micro::kStep) * Micro::kBlock;
  const int64_t all_blocks = ceil_div(g.rows, Micro::kBlock);
  const int64_t at_once = std::clamp<int64_t>(kPackedBytes / (block_size * int64_t(sizeof(Element))), 1, 32);
  Element* const a = aligned_scratch<Element, 16>(std::min(at_once, all_blocks) * block_size);
  for (int64_t first = 0; first < all_blocks; first += at_once) {
    const int64_t blocks = std::min(at_once, all_blocks - first);
    parallel_for(blocks, 1, blocks > 1 ? threads : 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) pack((first + n) * Micro::kBlock, a + n * block_size);
    });
    // Few panels: the rows are shared among threads too.
    const int64_t pieces = panels >= 4 * threads ? 1 : std::min<int64_t>(blocks, threads);
    parallel_for(panels * pieces, 1, threads, [&](int64_t begin, int64_t end) {
      const typename Micro::Thread thread;
      float* const c = aligned_scratch<float, 17>(blocks * Micro::kBlock * Micro::kColumns);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t piece = unit / panels;
        const int64_t from = blocks * piece / pieces, to = blocks * (piece + 1) / pieces;
        multiply_panel<Micro>(g, a + from * block_size, first + from, to - from, b, unit % panels, c, epilogue);
      }
    });
  }
}

}  // namespace icpu::gemm
