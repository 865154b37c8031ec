// C = A @ B where the rows of A are read where they lie: to pack them would take as long as some of the products.
//
// Preconditions: those of multiply.h; a micro kernel that takes Parts of its source's type (vectors.h).
#pragma once

#include "multiply.h"

namespace icpu::gemm {

// find(row, blocks, height, parts): the parts of so many blocks of `height` rows, from `row` on; those of a block follow each
// other. Rows after the last one are not read.
template <class T>
using Find = Callback<int64_t, int64_t, int64_t, typename Parts<T>::Part*>;

// What all blocks have: `count` parts of `length` values each, so many bytes of memory that these lie in, and rows as in Sizes.
struct PartsOfBlock {
  int64_t count, length, bytes, height = 0;
};

// The rows of a thread's blocks: its Rows, as Multiply wants them.
template <class Micro>
class RowsInPlace {
  using T = typename Micro::Source;
  static_assert(std::is_same_v<T, typename Micro::Element>);

 public:
  RowsInPlace(const PartsOfBlock& parts, const Find<T>& find)
      : all_(parts), depth_(round_up(parts.length, Micro::kPair)), find_(find) {}

  // One block at once, if its weights stay in the L1 cache; else as many as stay in the L2 cache.
  Cut cut(int64_t blocks, int64_t, int64_t columns) const {
    const int64_t depth = std::max<int64_t>(round_up(all_.count * depth_, Micro::kStep), Micro::kStep);
    if (depth <= Micro::kDepth && depth * columns * int64_t(sizeof(T)) <= kPackedBytes / 4) return {1, depth};
    const int64_t fitting = kPackedBytes / std::max<int64_t>(all_.bytes, 1);
    return {equal_parts(std::max<int64_t>(blocks, 1), std::clamp<int64_t>(fitting, 1, kMostBlocks)), depth};
  }

  void load(const Piece& piece) {
    parts_ = scratch<typename Parts<T>::Part, 16>(piece.blocks * all_.count);
    find_(piece.row, piece.blocks, piece.height, parts_);
  }

  // Block n of the piece, from depth k of it on.
  Parts<T> block(int64_t n, int64_t k) const {
    const int64_t part = all_.count > 1 ? k / depth_ : 0;
    return {parts_ + n * all_.count + part, k - part * depth_, all_.length};
  }

 private:
  const PartsOfBlock& all_;
  const int64_t depth_;  // of a part
  const Find<T>& find_;
  typename Parts<T>::Part* parts_ = nullptr;
};

// The whole product, of `rows` rows.
template <class Micro>
[[gnu::noinline]] void multiply_in_place(int64_t rows, int64_t columns, const PartsOfBlock& parts,
                                         const Find<typename Micro::Source>& find, const typename Micro::Weight* b, int limit,
                                         const Epilogue<typename Micro::Sum>& epilogue) {
  const Sizes g{rows, columns, parts.count * round_up(parts.length, Micro::kPair), parts.height};
  multiply_blocks<Micro>(g, b, limit, [&] { return RowsInPlace<Micro>(parts, find); }, epilogue);
}

// The whole product of a row-major matrix, with leading dimension `lda`.
template <class Micro>
inline void multiply_matrix_in_place(const Sizes& g, const typename Micro::Source* a, int64_t lda,
                                     const typename Micro::Weight* b, int limit,
                                     const Epilogue<typename Micro::Sum>& epilogue) {
  using T = typename Micro::Source;
  const PartsOfBlock parts{1, g.depth, Micro::kBlock * g.depth * int64_t(sizeof(T))};
  const auto find = [&](int64_t row, int64_t blocks, int64_t height, typename Parts<T>::Part* to) {
    for (int64_t n = 0; n < blocks; ++n) to[n] = {a + (row + n * height) * lda, lda};
  };
  multiply_in_place<Micro>(g.rows, g.columns, parts, Find<T>(find), b, limit, epilogue);
}

}  // namespace icpu::gemm
