// Matrix products in vector registers: `rows` rows by `vectors` vectors of columns of C stay in registers. How A is packed
// is in avx2.h and avx512.h.
//
// Preconditions: those of Products; the packed B is aligned to a vector. A group is the neighbours in depth that a lane
// takes at once, 4 bytes or one value. The packed A is a sequence of columns of `rows` groups, the packed B one of rows of
// groups for all columns of a panel.
//
// Products is a class with
//   Source, Element, Weight, Sum   the types of A as it is and packed, of B, and of C
//   kPair, kLanes                  depths of a group, groups in a vector
//   kShifted                       whether the packed A is larger than A by kShift, which the sums must lose again
//   line(b)                        a vector of groups of B
//   spread(a)                      one group of A in all lanes
//   spread_first(a)                optional, for Parts where a group is a pair: the same of one value and zero
//   dot(sum, a, b)                 sum + the products of both
//
// steps_of_turn: groups of the depth in a turn of the loop. Where another program's thread shares the core, and with it the
// decoded instructions, two take less time than one; where they need more registers than there are, much more.
#pragma once

#include "few_rows.h"

#include <immintrin.h>

namespace icpu::gemm {

template <class Products, int rows_of_block, int vectors, int depth_of_panel, int steps_of_turn = 1>
struct Vectors {
  using Source = typename Products::Source;
  using Element = typename Products::Element;
  using Weight = typename Products::Weight;
  using Sum = typename Products::Sum;
  static constexpr int kPair = Products::kPair;
  static constexpr int kLanes = Products::kLanes;
  static constexpr int kBlock = rows_of_block;
  static constexpr int kRows = 1;
  static constexpr int kColumns = vectors * kLanes;
  static constexpr int kStep = 16 * kPair;
  static constexpr int kDepth = depth_of_panel;
  static constexpr bool kOverlaps = false;
  static constexpr bool kNarrows = true;
  static_assert(kDepth % kStep == 0);

  typedef Sum Sums __attribute__((vector_size(4 * kLanes), may_alias));

  // What the sums of a shifted A lose is the same for all blocks of rows that meet the same part of B: the first one
  // finds it out.
  struct Thread {
    const Weight* of = nullptr;
    int64_t depth = 0;
    Sums shift[vectors];
  };

  // Few rows take the same loop, without fetching: B streams from memory.
  struct Few {
    static constexpr int64_t kMost = 4;
    static_assert(kMost <= kBlock);

    struct Thread {
      explicit Thread(int64_t) {}
    };

    static void panel(const Element* a, const Weight* b, Sum* c, int64_t rows, int64_t depth) {
      NoFetch nothing;
      Vectors::Thread thread;
      for (int64_t k = 0; k < depth; k += kDepth) {
        multiply(thread, a + k * kBlock, b + k * kColumns, c, rows, std::min<int64_t>(kDepth, depth - k), k > 0, nothing);
      }
    }
  };

  template <class Rows, class Meanwhile>
  static void block(Thread& thread, const Rows& a, const Weight* b, Sum* c, int64_t rows, int64_t depth, bool accumulate,
                    Meanwhile& meanwhile) {
    multiply(thread, a, b, c, rows, depth, accumulate, meanwhile);
  }

  // The same for the first `width` columns of a panel. Blocks that are lower by more than one row are few: they
  // compute whole panels.
  template <class Rows, class Meanwhile>
  static void narrow_block(Thread& thread, const Rows& a, const Weight* b, Sum* c, int64_t rows, int64_t width,
                           int64_t depth, bool accumulate, Meanwhile& meanwhile) {
    if (rows < kBlock - 1 || width > (vectors - 1) * kLanes) {
      return multiply(thread, a, b, c, rows, depth, accumulate, meanwhile);
    }
    const auto narrow = [&]<int R, int... n>(std::integral_constant<int, R>, std::integer_sequence<int, n...>) ICPU_INLINE {
      ((ceil_div(width, kLanes) == n + 1 ? multiply_rows<R, n + 1, false>(thread, a, b, c, depth, accumulate, meanwhile)
                                     : void()),
       ...);
    };
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((rows == kBlock - n ? narrow(std::integral_constant<int, kBlock - n>{}, std::make_integer_sequence<int, vectors - 1>{})
                           : void()),
       ...);
    }(std::make_integer_sequence<int, 2>{});
  }

 private:
  static constexpr int64_t kLinesAtOnce = 16, kLeastPiece = 16;

  template <class Rows, class Meanwhile>
  static ICPU_INLINE void multiply(Thread& thread, const Rows& a, const Weight* b, Sum* c, int64_t rows, int64_t depth,
                                   bool accumulate, Meanwhile& meanwhile) {
    if constexpr (Products::kShifted) {
      if (rows == kBlock && b == thread.of && depth == thread.depth) {
        return multiply_rows<kBlock, vectors, true>(thread, a, b, c, depth, accumulate, meanwhile);
      }
    }
    [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
      ((rows == n + 1 ? multiply_rows<n + 1, vectors, false>(thread, a, b, c, depth, accumulate, meanwhile) : void()), ...);
    }(std::make_integer_sequence<int, kBlock>{});
  }

  // The products of one group of each row, in all lanes of value(r), and of a row of groups of B.
  template <bool known, int R, int V, class Value>
  static ICPU_INLINE void add_step(Sums (&sum)[R][V], Sums (&shift)[V], const Weight* b, const Value& value) {
    decltype(Products::line(b)) line[V];
#pragma GCC unroll 3
    for (int j = 0; j < V; ++j) line[j] = Products::line(b + kLanes * kPair * j);
    if constexpr (Products::kShifted && !known) {
#pragma GCC unroll 3
      for (int j = 0; j < V; ++j) shift[j] = Products::dot(shift[j], Products::shift(), line[j]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto group = value(r);
#pragma GCC unroll 3
      for (int j = 0; j < V; ++j) sum[r][j] = Products::dot(sum[r][j], group, line[j]);
    }
  }

  // The products of the next of the depth, of B up to `stop`: a and b move on.
  template <bool known, int R, int V>
  static ICPU_INLINE void add_products(Sums (&sum)[R][V], Sums (&shift)[V], const Element*& a, const Weight*& b,
                                       const Weight* stop) {
    const auto step = [&] ICPU_INLINE {
      add_step<known>(sum, shift, b, [&](int r) ICPU_INLINE { return Products::spread(a + r * kPair); });
      a += kBlock * kPair;
      b += kColumns * kPair;
    };
    if constexpr (steps_of_turn > 1) {
#pragma GCC unroll 1
      for (const Weight* const last = stop - (steps_of_turn - 1) * kColumns * kPair; b < last;) {
        [&]<int... n>(std::integer_sequence<int, n...>) ICPU_INLINE {
          ((void(n), step()), ...);
        }(std::make_integer_sequence<int, steps_of_turn>{});
      }
    }
#pragma GCC unroll 1
    while (b < stop) step();
  }

  // The same of rows where they lie, a part at a time.
  template <bool known, int R, int V>
  static ICPU_INLINE void add_products(Sums (&sum)[R][V], Sums (&shift)[V], Parts<Element>& a, const Weight*& b,
                                       const Weight* stop) {
    const int64_t size = round_up(a.length, kPair), whole = a.length / kPair * kPair;
    while (b < stop) {
      const int64_t apart = a.part->apart, end = std::min<int64_t>(size, a.from + (stop - b) / kColumns);
      const Element *at = a.part->at + a.from, *const last = a.part->at + std::min(whole, end);
      const auto step = [&](const auto& spread) ICPU_INLINE {
        const Element* row = at;
        add_step<known>(sum, shift, b, [&](int r) ICPU_INLINE {
          if (r > 0) row += apart;
          if (r % 3 == 0) asm("" : "+r"(row));  // else the compiler keeps the places of all rows, for too few registers
          return spread(row);
        });
        b += kColumns * kPair;
      };
#pragma GCC unroll 1
      for (; at < last; at += kPair) step(Products::spread);
      if constexpr (kPair > 1) {
        if (whole < end) step(Products::spread_first);
      }
      a = end < size ? Parts<Element>{a.part, end, a.length} : Parts<Element>{a.part + 1, 0, a.length};
    }
  }

  // R rows by V vectors. The loop over the depth stays small, so that it runs from the buffer of decoded instructions; lines
  // of B are fetched between pieces of it: not too many at once, and in few pieces, as each end is a branch mispredicted.
  // known: whether `thread` has what the sums lose.
  template <int R, int V, bool known, class Rows, class Meanwhile>
  static void multiply_rows(Thread& thread, const Rows& rows, const Weight* b, Sum* c, int64_t depth, bool accumulate,
                            Meanwhile& meanwhile) {
    const int64_t steps = depth / kPair, lines = meanwhile.lines();
    int64_t piece = steps, lines_of_piece = 0;
    if (lines > 0) {
      piece = std::max(ceil_div(steps, ceil_div(lines, kLinesAtOnce)), kLeastPiece);
      lines_of_piece = ceil_div(lines * piece, steps);
    }
    Sums sum[R][V], shift[V];
#pragma GCC unroll 3
    for (int j = 0; j < V; ++j) shift[j] = known ? thread.shift[j] : Sums{};
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < V; ++j) sum[r][j] = Sums{};
    }
    Rows a = rows;
    const Weight *const first = b, *const end = b + depth * kColumns;
    while (b < end) {
      meanwhile.fetch(lines_of_piece);
      add_products<known>(sum, shift, a, b, std::min(b + piece * kPair * kColumns, end));
    }
    if constexpr (Products::kShifted && !known && V == vectors) {
      thread.of = first;
      thread.depth = depth;
#pragma GCC unroll 3
      for (int j = 0; j < V; ++j) thread.shift[j] = shift[j];
    }
    // Each part of the depth has a sum of its own: chains of additions stay short, and their errors small.
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < V; ++j) {
        auto* const to = reinterpret_cast<Sums*>(c + r * kColumns + kLanes * j);
        if constexpr (Products::kShifted) sum[r][j] -= shift[j];
        *to = accumulate ? *to + sum[r][j] : sum[r][j];
      }
    }
  }
};

}  // namespace icpu::gemm
