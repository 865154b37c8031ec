// C = A @ B by blocks: packing of A, the loops around a micro kernel, and the epilogue on each block of C while it is
// in the cache.
//
// Preconditions: B is packed in panels of Micro::kColumns columns; a panel holds its columns for all of the depth,
// rounded up to Micro::kStep with zeros, in the order in which the micro kernel reads them.
//   pack(row, rows, from, depth, out)
//     writes rows of A from `row` on, at most kBlock, and of each `depth` values from `from` on (a multiple of kStep), in
//     the micro kernel's order, zeros beyond the end.
//   epilogue(row, height, panel, width, c)
//     gets rows of C, each once and complete, with leading dimension Micro::kColumns; their first column is
//     panel * kColumns.
// C exists only in blocks, of Micro::Sum.
//
// A micro kernel is a class with
//   Element, Weight, Sum   the element types of the packed A and B, and of C, which has 4 bytes
//   kBlock, kColumns  rows of a block of A, columns of a panel of B
//   kRows             what the height of a block is a multiple of
//   kStep, kDepth     granularity of the depth, and how much of it a panel keeps in the L1 cache (a multiple)
//   kOverlaps         whether the vector units are idle while it multiplies
//   Thread            an object that each thread holds while it multiplies
//   pack(a, lda, rows, depth, out)
//                     rows of a row-major A into a block
//   copy(from, count, k, r, out)
//                     optional, where neighbours of a row are neighbours in a block: values of row r, from depth k on, into
//                     a block
//   block(thread, a, b, c, rows, depth, accumulate, meanwhile)
//                     c (+)= a @ b for one block and a part of the depth. Blocks with the same b follow each other. Calls
//                     meanwhile(step) in each step, or meanwhile.fetch(lines) for all meanwhile.lines() if it does not overlap
//   record(from, count, out)
//                     optional, where a step of a packed block is a record for each row, of kStep elements: the record of
//                     `count` neighbouring values, at most kStep, zeros after them. block() then takes Shifted rows too
//   kPair             optional: a finer granularity, of what block() multiplies at the end of the depth
//   kNarrows          optional: narrow_block() is block() for the first `width` columns of a panel, in less time for fewer
//   kConverts         optional: block() converts B first, once for all blocks that follow each other
//   Next              optional: block() takes one more argument, what the next call multiplies, and loads the first step of
//                     it before it stores C
//   Few               optional: how it streams B for a few rows, see few_rows.h
#pragma once

#include "base.h"
#include "parallel.h"

#include <immintrin.h>

#include <algorithm>
#include <limits>

namespace icpu::gemm {

inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// From targets/blocking.py: bytes of packed rows of A that all panels of B read again and again, to stay in the L2 cache;
// bytes of a block that stays in the L1 cache; the most blocks at once; the multiplications, in 64s, that pay for one
// more thread.
inline constexpr int64_t kPackedBytes = ICPU_GEMM_PACKED_BYTES;
inline constexpr int64_t kBlockBytes = ICPU_GEMM_BLOCK_BYTES;
inline constexpr int64_t kMostBlocks = ICPU_GEMM_MOST_BLOCKS;
inline constexpr int64_t kThreadWork = ICPU_GEMM_THREAD_WORK;
inline constexpr int64_t kLine = 64;  // bytes of a cache line

// height: of a block of rows; 0 for about equally high ones, as few as possible.
struct Sizes {
  int64_t rows, columns, depth, height = 0;
};

// A reference to a function object. The loops below call through it, for some rows of a block, so that they are compiled
// once for all kernels: as an `Instance` (ir/plan.py), or once in a translation unit.
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

// How many steps of a product go by until some more rows of the block before it are finished: few rows at a time take long,
// as vectors are slow just behind tiles; many hold up the tiles.
inline constexpr int64_t kFinishSteps = 8;

// The epilogue of a block, some rows at a time: while the tiles multiply the next block, the vector units finish this one.
template <class Sum>
class Finish {
 public:
  explicit Finish(const Epilogue<Sum>& epilogue) : epilogue_(epilogue) {}

  // A complete block, to be finished within so many steps.
  void start(int64_t row, int64_t height, int64_t panel, int64_t width, int64_t columns, const Sum* c, int64_t steps) {
    left_ = height;
    end_ = row + height;
    c_end_ = c + height * columns;
    panel_ = panel;
    width_ = width;
    columns_ = columns;
    share_ = ceil_div(height, std::max<int64_t>(steps / kFinishSteps, 1));
  }

  ICPU_INLINE void operator()() {
    if (left_ > 0) some(std::min(share_, left_));
  }

  void rest() {
    if (left_ > 0) some(left_);
  }

 private:
  // Changes one number only: it is read again soon, behind the stores of tiles that are not complete yet.
  ICPU_INLINE void some(int64_t height) {
    epilogue_(end_ - left_, height, panel_, width_, c_end_ - left_ * columns_);
    left_ -= height;
  }

  const Epilogue<Sum>& epilogue_;
  int64_t left_ = 0, end_ = 0, panel_ = 0, width_ = 0, columns_ = 0, share_ = 0;
  const Sum* c_end_ = nullptr;
};

// Brings the part of B that is multiplied next into the L2 cache, while the current one is used. A core waits for a few
// lines at a time only. So the lines are asked for in turns from several places: the hardware's prefetcher then runs ahead
// of each of them, and most are there already.
class Fetch {
 public:
  static constexpr int64_t kPlaces = 8;

  // Lines from `begin` to `end` of a part with so many.
  Fetch(const void* part, int64_t lines, int64_t begin, int64_t end)
      : part_(static_cast<const char*>(part)), apart_(ceil_div(lines, kPlaces)), at_(begin), end_(end) {}

  int64_t lines() const { return int64_t(end_ - at_); }

  ICPU_INLINE void some(int64_t count) {
#pragma GCC unroll 1
    for (const uint64_t stop = std::min(at_ + count, end_); at_ < stop; ++at_) {
      _mm_prefetch(part_ + (at_ % kPlaces * apart_ + at_ / kPlaces) * kLine, _MM_HINT_T1);
    }
  }

  // The next line of each place.
  ICPU_INLINE void one_of_each() {
    if (at_ >= end_) return;
    const char* line = part_ + at_ / kPlaces * kLine;
#pragma GCC unroll 8
    for (int64_t place = 0; place < kPlaces; ++place, line += apart_ * kLine) _mm_prefetch(line, _MM_HINT_T1);
    at_ += kPlaces;
  }

 private:
  const char* part_;
  uint64_t apart_, at_, end_;
};

// What is done between the steps of a product.
template <class Sum>
class Meanwhile {
 public:
  Meanwhile(const Fetch& fetch, int64_t steps, Finish<Sum>& finish)
      : fetch_(fetch), lines_of_step_(ceil_div(fetch.lines(), steps)), finish_(finish) {}

  int64_t lines() const { return fetch_.lines(); }
  ICPU_INLINE void fetch(int64_t lines) { fetch_.some(lines); }

  ICPU_INLINE void operator()(uint64_t step) {
    for (due_ += lines_of_step_; due_ >= Fetch::kPlaces; due_ -= Fetch::kPlaces) fetch_.one_of_each();
    if (step % kFinishSteps == kFinishSteps - 1) finish_();
  }

 private:
  Fetch fetch_;
  int64_t lines_of_step_, due_ = Fetch::kPlaces - 1;  // the last few lines count as many
  Finish<Sum>& finish_;
};

// As many parts of about the same size as parts of at most `most` would be: the size.
inline constexpr int64_t equal_parts(int64_t total, int64_t most) {
  return ceil_div(total, ceil_div(total, std::max<int64_t>(most, 1)));
}

// The rows of a block where each step has its own place: `offsets`, in elements, from `row` on.
template <class Element>
struct Shifted {
  const Element* row;
  const int64_t* offsets;
};

// The rows of a block where they lie: their depth comes in parts of `length` values, each of which takes whole groups of a
// micro kernel's pairs, and has its place, with rows `apart` from each other. from: of the first part, what is multiplied
// first.
template <class Element>
struct Parts {
  struct Part {
    const Element* at;
    int64_t apart;
  };
  const Part* part;
  int64_t from, length;
};

// Where a step of a block of records is.
template <class Micro>
ICPU_INLINE const typename Micro::Element* step_of(const typename Micro::Element* a, int64_t step) {
  return a + step * Micro::kBlock * Micro::kStep;
}

template <class Micro>
ICPU_INLINE const typename Micro::Element* step_of(const Shifted<typename Micro::Element>& a, int64_t step) {
  return a.row + a.offsets[step];
}

// Blocks of `height` rows from `row` on, and a piece of the depth, of which a panel's `part` stays in the L1 cache.
// fetches: whether B is not in the L2 cache yet.
struct Piece {
  int64_t row, height, blocks;
  int64_t from, depth, part;
  bool fetches;
};

// Whether a micro kernel loads the first step of the next block before it stores a block, and the rows are packed.
template <class Micro, class Rows>
concept LoadsNext = requires(const Rows& rows) {
  typename Micro::Next;
  requires std::is_pointer_v<decltype(rows.block(0, 0))>;
};

// One panel's columns of some blocks of rows, part after part of the depth. `block_of` tells where each block of C is. With
// the last of the depth they are complete, and `finish` gets them. No division here: a block of little depth is multiplied
// in the time of a few.
template <class Micro, class Rows, class BlockOf>
inline void multiply_panel(typename Micro::Thread& thread, const Sizes& g, const Piece& piece, const Rows& a,
                           const typename Micro::Weight* b, int64_t panel, const BlockOf& block_of,
                           Finish<typename Micro::Sum>& finish) {
  const int64_t depth = round_up(g.depth, Micro::kStep);
  const int64_t width = std::min<int64_t>(Micro::kColumns, g.columns - panel * Micro::kColumns);
  b += (panel * depth + piece.from) * Micro::kColumns;
  const typename Micro::Weight* const next_panel = b + depth * Micro::kColumns;
  for (int64_t k = 0; k < piece.depth; k += piece.part) {
    const int64_t part = std::min<int64_t>(piece.part, piece.depth - k);
    const bool first = piece.from + k == 0, last = piece.from + k + part == depth;
    int64_t used = part;
    if constexpr (requires { Micro::kPair; }) {
      used = std::min<int64_t>(part, round_up(g.depth - piece.from - k, Micro::kPair));
    }
    // Each block fetches its share of the next part of B.
    const auto* const next = k + part < piece.depth ? b + part * Micro::kColumns : next_panel;
    const int64_t steps = part / Micro::kStep, lines = ceil_div(part * Micro::kColumns * int64_t(sizeof(*b)), kLine);
    const int64_t share = piece.fetches ? ceil_div(lines, piece.blocks) : 0, stop = piece.fetches ? lines : 0;
    for (int64_t n = 0; n < piece.blocks; ++n) {
      const int64_t row = piece.row + n * piece.height;
      const int64_t rows = std::min(piece.height, g.rows - row);
      auto* const c = block_of(n);
      const Fetch fetch(next, lines, std::min(n * share, stop), std::min((n + 1) * share, stop));
      Meanwhile meanwhile(fetch, Micro::kOverlaps ? steps : 1, finish);
      if constexpr (requires { Micro::kNarrows; }) {
        Micro::narrow_block(thread, a.block(n, k), b, c, rows, width, used, !first, meanwhile);
      } else if constexpr (LoadsNext<Micro, Rows>) {
        typename Micro::Next after;
        if (n + 1 < piece.blocks) {
          after = {a.block(n + 1, k), b};
        } else if (k + part < piece.depth) {
          after = {a.block(0, k + part), next};
        }
        Micro::block(thread, a.block(n, k), b, c, rows, used, !first, meanwhile, after);
      } else {
        Micro::block(thread, a.block(n, k), b, c, rows, used, !first, meanwhile);
      }
      if (!last) continue;
      finish.rest();
      finish.start(row, rows, panel, width, Micro::kColumns, c, Micro::kOverlaps ? steps : 1);
      if constexpr (!Micro::kOverlaps) finish.rest();
    }
    b += part * Micro::kColumns;
  }
}

struct Blocks {
  int64_t count, height;
};

template <class Micro>
inline Blocks blocks_of(const Sizes& g) {
  if (g.height > 0) return {ceil_div(g.rows, g.height), g.height};
  const int64_t count = ceil_div(g.rows, Micro::kBlock);
  const int64_t height = round_up(ceil_div(g.rows, std::max<int64_t>(count, 1)), Micro::kRows);
  return {ceil_div(g.rows, std::max<int64_t>(height, 1)), height};
}

// How many blocks of rows, and how much of the depth, are packed at once: what fits in the L2 cache.
struct Cut {
  int64_t blocks, depth;
};

// The blocks of rows of a thread, packed: as many as stay in the L2 cache at once.
template <class Micro>
class PackedRows {
  using Element = typename Micro::Element;

 public:
  PackedRows(const Sizes& g, const Pack<Element>& pack) : g_(g), pack_(pack) {}

  // Either fewer rows, and B is read again for each part of them; or less of the depth, and C is kept for all panels, read
  // and written again for each piece. The one that moves fewer bytes. Parts are about equally large. When a block stays in
  // the L1 cache and all of B in the L2 cache, one block at once: the epilogue is then what takes longest, and whole rows
  // of its operands and results follow each other in memory.
  Cut cut(int64_t blocks, int64_t height, int64_t columns) const {
    constexpr int64_t size = sizeof(Element), fitting = kPackedBytes / (Micro::kBlock * size), most = kMostBlocks;
    const int64_t depth = std::max<int64_t>(round_up(g_.depth, Micro::kStep), Micro::kStep);
    blocks = std::max<int64_t>(blocks, 1);
    if constexpr (!requires { Micro::kConverts; }) {
      if (Micro::kBlock * depth * size <= kBlockBytes && depth * columns * size <= kPackedBytes / 4) return {1, depth};
    }
    const Cut rows{equal_parts(blocks, std::min(fitting / depth, most)), depth};
    const int64_t at_once = equal_parts(blocks, most);
    const Cut pieces{at_once, round_up(equal_parts(depth, fitting / at_once), Micro::kStep)};
    const auto read_again = [&](const Cut& c) { return (ceil_div(blocks, c.blocks) - 1) * depth * columns * size; };
    const int64_t kept = 2 * (ceil_div(depth, pieces.depth) - 1) * blocks * height * columns * int64_t(sizeof(float));
    return read_again(rows) <= read_again(pieces) + kept ? rows : pieces;
  }

  // Packs the rows of a piece.
  void load(const Piece& piece) {
    depth_ = piece.depth;
    a_ = scratch<Element, 16>(piece.blocks * Micro::kBlock * depth_);
    for (int64_t n = 0; n < piece.blocks; ++n) {
      const int64_t row = piece.row + n * piece.height;
      const int64_t rows = std::min(piece.height, g_.rows - row), depth = std::min(depth_, g_.depth - piece.from);
      pack_(row, rows, piece.from, depth, a_ + n * depth_ * Micro::kBlock);
    }
  }

  // Block n of the piece, from depth k of it on.
  const Element* block(int64_t n, int64_t k) const { return a_ + (n * depth_ + k) * Micro::kBlock; }

 private:
  const Sizes& g_;
  const Pack<Element>& pack_;
  int64_t depth_ = 0;
  Element* a_ = nullptr;
};

// How threads share C: a grid of rows and columns. Each packs the rows that it needs itself: fetching what another thread
// has packed takes longer.
struct Grid {
  int64_t rows, columns;
};

// The fastest grid of at most so many threads, in units of a block's product with a panel: packing a block takes about two,
// fetching a panel about three.
inline Grid grid_of(int64_t blocks, int64_t panels, int64_t threads) {
  Grid best{1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t rows = 1; rows <= std::min(threads, blocks); ++rows) {
    const Grid grid{rows, std::min(threads / rows, panels)};
    const int64_t height = ceil_div(blocks, grid.rows), width = ceil_div(panels, grid.columns);
    const int64_t cost = height * width + 2 * height + 3 * width;
    if (cost < least) {
      best = grid;
      least = cost;
    }
  }
  return best;
}

// What one thread computes: blocks of rows, and panels, from `begin` to `end`.
struct Range {
  int64_t begin, end;
};

inline Range share_of(int64_t total, int64_t part, int64_t parts) {
  return {total * part / parts, total * (part + 1) / parts};
}

// Some pieces of one share: of groups of blocks that are whole, or of one group.
struct Pieces {
  Range blocks, panels;
  int64_t count;
  bool first;  // group of the share
};

// C in shares, one a thread, and these in pieces, of which threads take some at a time: groups of blocks of rows that are
// packed at once, and of each group parts of the panels.
class SharesOfC {
 public:
  // at_once: blocks of a group; parts: of the panels, at most.
  SharesOfC(const Blocks& all, int64_t panels, const Grid& grid, int64_t at_once, int64_t parts)
      : blocks_(all.count),
        panels_(panels),
        grid_(grid),
        groups_(ceil_div(ceil_div(blocks_, grid.rows), at_once)),
        parts_(std::clamp<int64_t>(std::min(parts, kPieces / groups_), 1, ceil_div(panels, grid.columns))) {}

  int64_t count() const { return grid_.rows * grid_.columns * groups_ * parts_; }

  // run(pieces) for all that a thread takes.
  template <class Run>
  void each(const Take& take, const Run& run) const {
    for (int64_t begin, end; take(begin, end);) {
      while (begin < end) {
        const Pieces some = pieces(begin, end);
        if (some.panels.begin < some.panels.end) run(some);
        begin += some.count;
      }
    }
  }

 private:
  // As many pieces from number `at` on as belong together, and come before number `end`.
  Pieces pieces(int64_t at, int64_t end) const {
    const int64_t share = at / (groups_ * parts_), group = at / parts_ % groups_, part = at % parts_;
    const Range blocks = share_of(blocks_, share / grid_.columns, grid_.rows);
    const Range panels = share_of(panels_, share % grid_.columns, grid_.columns);
    const int64_t count = std::min(parts_ > 1 ? parts_ - part : groups_ - group, end - at);
    const int64_t groups = parts_ > 1 ? 1 : count, some = parts_ > 1 ? count : 1;
    return {within(blocks, group, groups, groups_), within(panels, part, some, parts_), count, group == 0};
  }

  static Range within(const Range& whole, int64_t first, int64_t count, int64_t parts) {
    const int64_t size = whole.end - whole.begin;
    return {whole.begin + size * first / parts, whole.begin + size * (first + count) / parts};
  }

  int64_t blocks_, panels_;
  Grid grid_;
  int64_t groups_, parts_;
};

// In the place of `Meanwhile` where there is nothing to do between steps.
struct NoFetch {
  int64_t lines() const { return 0; }
  void fetch(int64_t) const {}
};

// Some blocks of rows where each meets all panels before the next one, and neither the depth nor B is more than a cache
// holds: nothing but products and epilogues. Of a depth of 16 the rest would take as long as these.
template <class Micro, class Rows>
inline void multiply_shallow(const Sizes& g, const typename Micro::Weight* b, const Blocks& all, const Pieces& pieces,
                             Rows& rows, const Epilogue<typename Micro::Sum>& epilogue) {
  const int64_t depth = round_up(g.depth, Micro::kStep);
  int64_t used = depth;
  if constexpr (requires { Micro::kPair; }) used = round_up(g.depth, Micro::kPair);
  auto* const c = scratch<typename Micro::Sum, 17>(Micro::kBlock * Micro::kColumns);
  typename Micro::Thread thread;
  NoFetch nothing;
  for (int64_t n = pieces.blocks.begin; n < pieces.blocks.end; ++n) {
    const int64_t row = n * all.height, height = std::min(all.height, g.rows - row);
    rows.load({row, all.height, 1, 0, depth, depth, false});
    const typename Micro::Weight* at = b + pieces.panels.begin * depth * Micro::kColumns;
    for (int64_t panel = pieces.panels.begin; panel < pieces.panels.end; ++panel, at += depth * Micro::kColumns) {
      const int64_t width = std::min<int64_t>(Micro::kColumns, g.columns - panel * Micro::kColumns);
      if constexpr (requires { Micro::kNarrows; }) {
        Micro::narrow_block(thread, rows.block(0, 0), at, c, height, width, used, false, nothing);
      } else {
        Micro::block(thread, rows.block(0, 0), at, c, height, used, false, nothing);
      }
      epilogue(row, height, panel, width, c);
    }
  }
}

// How a product is cut for its threads, which have about `width` panels each.
template <class Micro>
struct Plan {
  Sizes g;
  Blocks all;
  Cut once;
  bool keeps;  // sums of some of the depth, for all panels
  bool stays;  // B in the L2 cache, once it is read
  bool shallow;

  template <class Rows>
  Plan(const Sizes& sizes, const Blocks& blocks, int64_t height, int64_t width, const Rows& rows)
      : g(sizes), all(blocks), once(rows.cut(height, all.height, width * Micro::kColumns)) {
    const int64_t depth = round_up(g.depth, Micro::kStep);
    keeps = once.depth < depth;
    stays = depth * width * Micro::kColumns * int64_t(sizeof(typename Micro::Weight)) <= kPackedBytes;
    shallow = !Micro::kOverlaps && once.blocks == 1 && !keeps && stays && depth <= Micro::kDepth;
  }
};

// What a thread does with its pieces of a product. Rows: PackedRows, or a class with the same members.
template <class Micro, class Rows>
class Multiply {
  using Sum = typename Micro::Sum;
  using Weight = typename Micro::Weight;

 public:
  Multiply(const Plan<Micro>& plan, const Weight* b, Rows rows, const Epilogue<Sum>& epilogue)
      : p_(plan), b_(b), rows_(std::move(rows)), epilogue_(epilogue) {}

  void run(const Pieces& pieces) {
    if constexpr (!Micro::kOverlaps) {
      if (p_.shallow) return multiply_shallow<Micro>(p_.g, b_, p_.all, pieces, rows_, epilogue_);
    }
    multiply(pieces);
  }

 private:
  void multiply(const Pieces& pieces) {
    constexpr int64_t c_block = Micro::kBlock * Micro::kColumns;
    const Cut& once = p_.once;
    const int64_t depth = round_up(p_.g.depth, Micro::kStep), width = pieces.panels.end - pieces.panels.begin;
    // A block that waits to be finished keeps its place while the next one is multiplied.
    const int64_t places = p_.keeps ? width * once.blocks : depth <= Micro::kDepth ? 2 : once.blocks + 1;
    Sum* const c = scratch<Sum, 17>(places * c_block);
    typename Micro::Thread thread;
    Finish<Sum> finish(epilogue_);
    for (int64_t first = pieces.blocks.begin; first < pieces.blocks.end; first += once.blocks) {
      const int64_t count = std::min(once.blocks, pieces.blocks.end - first);
      for (int64_t from = 0; from < depth; from += once.depth) {
        const int64_t deep = std::min(once.depth, depth - from);
        const int64_t part = round_up(equal_parts(deep, Micro::kDepth), Micro::kStep);
        const bool fetches = !p_.stays || (pieces.first && first == pieces.blocks.begin);
        const Piece piece{first * p_.all.height, p_.all.height, count, from, deep, part, fetches};
        load(piece);
        const auto around = [&](int64_t at) ICPU_INLINE { return places == 2 ? at & 1 : at < places ? at : at - places; };
        int64_t place = 0;
        for (int64_t panel = pieces.panels.begin; panel < pieces.panels.end; ++panel, place = around(place + count)) {
          const auto block_of = [&](int64_t n) ICPU_INLINE { return c + around(place + n) * c_block; };
          multiply_panel<Micro>(thread, p_.g, piece, rows_, b_, panel, block_of, finish);
        }
      }
      finish.rest();
    }
  }

  // Packs the rows of a piece, unless they are: other panels may have met them before.
  void load(const Piece& piece) {
    if (piece.row == row_ && piece.blocks == blocks_ && !p_.keeps) return;
    row_ = piece.row;
    blocks_ = piece.blocks;
    rows_.load(piece);
  }

  const Plan<Micro>& p_;
  const Weight* const b_;
  Rows rows_;
  const Epilogue<Sum>& epilogue_;
  int64_t row_ = -1, blocks_ = 0;  // that are packed
};

// Everything by blocks, shared among threads. rows(): the Rows of a thread.
template <class Micro, class MakeRows>
inline void multiply_blocks(const Sizes& g, const typename Micro::Weight* b, int limit, const MakeRows& rows,
                            const Epilogue<typename Micro::Sum>& epilogue) {
  if (g.rows <= 0 || g.columns <= 0) return;
  const int threads = threads_for(g.rows * g.columns * g.depth / 64, kThreadWork, limit);
  const int64_t panels = ceil_div(g.columns, Micro::kColumns);
  const Blocks all = blocks_of<Micro>(g);
  const Grid grid = grid_of(all.count, panels, threads);
  const Plan<Micro> plan(g, all, ceil_div(all.count, grid.rows), ceil_div(panels, grid.columns), rows());
  // Whoever keeps sums packs rows again for each part of the panels. One thread takes everything anyway.
  const SharesOfC shares(all, panels, grid, plan.once.blocks, plan.keeps || threads == 1 ? 1 : panels);
  parallel_work(shares.count(), 1, threads, kPieces, [&](const Take& take) {
    Multiply multiply(plan, b, rows(), epilogue);
    shares.each(take, [&](const Pieces& pieces) { multiply.run(pieces); });
  });
}

// A product of few rows.
template <class Micro>
class Stream;

// The whole product.
template <class Micro>
[[gnu::noinline]] void multiply(const Sizes& g, const typename Micro::Weight* b, int limit,
                                const Pack<typename Micro::Element>& pack, const Epilogue<typename Micro::Sum>& epilogue) {
  if constexpr (requires { typename Micro::Few; }) {
    if (g.rows > 0 && g.rows <= Micro::Few::kMost) return Stream<Micro>(g, b, limit).run(pack, epilogue);
  }
  multiply_blocks<Micro>(g, b, limit, [&] { return PackedRows<Micro>(g, pack); }, epilogue);
}

}  // namespace icpu::gemm
