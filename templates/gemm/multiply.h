// C = A @ B by blocks: packing of A, the loops around a micro kernel, and the epilogue on each block of C while it is
// in the cache.
//
// Preconditions: B is packed in panels of Micro::kColumns columns; a panel holds its columns for all of the depth,
// rounded up to Micro::kStep with zeros, in the order in which the micro kernel reads them.
//   pack(row, rows, from, depth, out)
//     writes rows of A from `row` on, at most kBlock, and of each `depth` values from `from` on (a multiple of kStep), in
//     the micro kernel's order, zeros beyond the end.
//   epilogue(row, height, panel, width, c)
//     gets each block of C once, complete, with leading dimension Micro::kColumns; its first column is panel * kColumns.
// C exists only in blocks, of Micro::Sum.
//
// A micro kernel is a class with
//   Element, Weight, Sum   the element types of the packed A and B, and of C, which has 4 bytes
//   kBlock, kColumns  rows of a block of A, columns of a panel of B
//   kRows             what the height of a block is a multiple of
//   kStep, kDepth     granularity of the depth, and how much of it a panel keeps in the L1 cache (a multiple)
//   Thread            an object that each thread holds while it multiplies
//   pack(a, lda, rows, depth, out), copy(from, count, k, r, out)
//                     rows of a row-major A into a block; values of row r, from depth k on, into a block
//   block(thread, a, b, next, c, rows, depth, accumulate, lines)
//                     c (+)= a @ b for one block and a part of the depth, while `lines` cache lines of B are fetched
//                     from `next` on. Blocks with the same b follow each other.
//   Few               optional: how it streams B for a few rows, see few_rows.h
#pragma once

#include "base.h"
#include "parallel.h"

#include <algorithm>
#include <limits>

namespace icpu::gemm {

inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// The packed rows of A that all panels of B read again and again stay in the L2 cache.
inline constexpr int64_t kPackedBytes = int64_t(1) << 20;
inline constexpr int64_t kLine = 64;  // bytes of a cache line

struct Sizes {
  int64_t rows, columns, depth;
};

// A thread's aligned memory. Each slot is one block.
template <class T, int slot>
inline T* aligned_scratch(int64_t count) {
  const auto address = reinterpret_cast<uintptr_t>(scratch<T, slot>(count + 64));
  return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

// A reference to a function object. The loops below call through it, once for a block, so that a translation unit has
// them once for all of its kernels: three times as fast to compile.
template <class... Args>
class Callback {
 public:
  template <class F>
  Callback(const F& function)
      : object_(&function), call_([](const void* object, Args... args) { (*static_cast<const F*>(object))(args...); }) {}
  void operator()(Args... args) const { call_(object_, args...); }

 private:
  const void* object_;
  void (*call_)(const void*, Args...);
};

template <class Element>
using Pack = Callback<int64_t, int64_t, int64_t, int64_t, Element*>;
template <class Sum>
using Epilogue = Callback<int64_t, int64_t, int64_t, int64_t, const Sum*>;

// Blocks of `height` rows from `row` on, and a piece of the depth.
struct Piece {
  int64_t row, height, blocks;
  int64_t from, depth;
};

// One panel's columns of some blocks of rows: the depth is cut so that the panel's part stays in the L1 cache. With the
// last of the depth, blocks of c are complete and go to the epilogue.
template <class Micro>
inline void multiply_panel(typename Micro::Thread& thread, const Sizes& g, const Piece& piece,
                           const typename Micro::Element* a, const typename Micro::Weight* b, int64_t panel, typename Micro::Sum* c,
                           const Epilogue<typename Micro::Sum>& epilogue) {
  const int64_t depth = round_up(g.depth, Micro::kStep);
  const int64_t width = std::min<int64_t>(Micro::kColumns, g.columns - panel * Micro::kColumns);
  b += (panel * depth + piece.from) * Micro::kColumns;
  const typename Micro::Weight* const next_panel = b + depth * Micro::kColumns;
  for (int64_t k = 0; k < piece.depth; k += Micro::kDepth) {
    const int64_t part = std::min<int64_t>(Micro::kDepth, piece.depth - k);
    const bool first = piece.from + k == 0, last = piece.from + k + part == depth;
    // The next part of B comes while this one is used: each block fetches its share.
    const auto* const next = k + part < piece.depth ? b + part * Micro::kColumns : next_panel;
    const int64_t bytes = part * Micro::kColumns * int64_t(sizeof(*b));
    const int64_t lines = ceil_div(bytes, kLine * piece.blocks);
    for (int64_t n = 0; n < piece.blocks; ++n) {
      const int64_t row = piece.row + n * piece.height;
      const int64_t rows = std::min(piece.height, g.rows - row);
      auto* const block = c + n * Micro::kBlock * Micro::kColumns;
      Micro::block(thread, a + (n * piece.depth + k) * Micro::kBlock, b, next + n * lines * kLine / int64_t(sizeof(*b)), block,
                   rows, part, !first, lines);
      if (last) epilogue(row, rows, panel, width, block);
    }
    b += part * Micro::kColumns;
  }
}

// The rows in as few blocks as possible, and these about equally high.
struct Blocks {
  int64_t count, height;
};

template <class Micro>
inline Blocks blocks_of(const Sizes& g) {
  const int64_t count = ceil_div(g.rows, Micro::kBlock);
  const int64_t height = round_up(ceil_div(g.rows, std::max<int64_t>(count, 1)), Micro::kRows);
  return {ceil_div(g.rows, std::max<int64_t>(height, 1)), height};
}

// How many blocks of rows, and how much of the depth, are packed at once: what fits in the L2 cache.
struct Cut {
  int64_t blocks, depth;
};

// Either fewer rows, and B is read again for each part of them; or less of the depth, and C is kept for all panels, read
// and written again for each piece. The one that moves fewer bytes. Parts are about equally large.
template <class Micro>
inline Cut cut(const Sizes& g, int64_t blocks) {
  constexpr int64_t size = sizeof(typename Micro::Element), fitting = kPackedBytes / (Micro::kBlock * size), most = 32;
  const auto equal = [](int64_t total, int64_t at_most) {
    return ceil_div(total, ceil_div(total, std::max<int64_t>(at_most, 1)));
  };
  const int64_t depth = std::max<int64_t>(round_up(g.depth, Micro::kStep), Micro::kStep);
  blocks = std::max<int64_t>(blocks, 1);
  const Cut rows{equal(blocks, std::min(fitting / depth, most)), depth};
  const int64_t at_once = equal(blocks, most);
  const Cut pieces{at_once, round_up(equal(depth, fitting / at_once), Micro::kStep)};
  const auto read_again = [&](const Cut& c) { return (ceil_div(blocks, c.blocks) - 1) * depth * g.columns * size; };
  const int64_t kept = 2 * (ceil_div(depth, pieces.depth) - 1) * g.rows * g.columns * int64_t(sizeof(float));
  return read_again(rows) <= read_again(pieces) + kept ? rows : pieces;
}

// A product of few rows.
template <class Micro>
class Stream;

// The whole product.
template <class Micro>
[[gnu::noinline]] void multiply(const Sizes& g, const typename Micro::Weight* b, int limit,
                                const Pack<typename Micro::Element>& pack, const Epilogue<typename Micro::Sum>& epilogue) {
  using Element = typename Micro::Element;
  using Sum = typename Micro::Sum;
  if constexpr (requires { typename Micro::Few; }) {
    if (g.rows > 0 && g.rows <= Micro::Few::kMost) return Stream<Micro>(g, b, limit).run(pack, epilogue);
  }
  constexpr int64_t c_block = Micro::kBlock * Micro::kColumns;
  const int threads = threads_for(g.rows * g.columns * g.depth / 64, 4000, limit);
  const int64_t panels = ceil_div(g.columns, Micro::kColumns), depth = round_up(g.depth, Micro::kStep);
  const Blocks all = blocks_of<Micro>(g);
  const Cut once = cut<Micro>(g, all.count);
  Element* const a = aligned_scratch<Element, 16>(once.blocks * Micro::kBlock * once.depth);
  Sum* const kept = once.depth < depth ? aligned_scratch<Sum, 18>(panels * once.blocks * c_block) : nullptr;
  for (int64_t first = 0; first < all.count; first += once.blocks) {
    const int64_t blocks = std::min(once.blocks, all.count - first);
    // Few panels: the rows are shared among threads too.
    const int64_t shares = panels >= 4 * threads ? 1 : std::min<int64_t>(blocks, threads);
    for (int64_t from = 0; from < depth; from += once.depth) {
      const int64_t part = std::min(once.depth, depth - from), block_size = part * Micro::kBlock;
      parallel_for(blocks, 1, blocks > 1 ? threads : 1, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const int64_t row = (first + n) * all.height;
          pack(row, std::min(all.height, g.rows - row), from, std::min(part, g.depth - from), a + n * block_size);
        }
      });
      parallel_for(panels * shares, 1, threads, [&](int64_t begin, int64_t end) {
        typename Micro::Thread thread;
        Sum* const own = kept ? nullptr : aligned_scratch<Sum, 17>(blocks * c_block);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t share = unit / panels, panel = unit % panels;
          const int64_t start = blocks * share / shares, stop = blocks * (share + 1) / shares;
          Sum* const c = kept ? kept + (panel * blocks + start) * c_block : own;
          multiply_panel<Micro>(thread, g, {(first + start) * all.height, all.height, stop - start, from, part},
                                a + start * block_size, b, panel, c, epilogue);
        }
      });
    }
  }
}

}  // namespace icpu::gemm
