// C = A @ B for a few rows: every value of B is used for a few products only, so B streams from memory, and nothing else
// may slow it down.
//
// Preconditions: those of multiply.h, and 1 to Micro::Few::kMost rows. B is one sequence of steps of its depth, panel
// after panel: each thread reads an equal part of it, from end to end, whatever the number of panels. A panel that two
// threads meet in is added up afterwards. Software prefetching was measured to gain nothing over the hardware's.
//
// The class Few of a micro kernel has
//   kMost             the most rows that it takes, at most Micro::kBlock
//   Thread            an object that each thread holds while it multiplies, made from the number of rows
//   panel(a, b, c, rows, depth)
//                     c = a @ b for one panel and `depth` values of the depth, a multiple of Micro::kStep
//   Rows              optional: what it makes of the packed rows, once for all threads, from (a, rows, depth). Then it has
//                     panel(made, k, b, c, rows, depth), for the depths from k on.
//   kMostOfLines      optional: up to so many rows where B is more than the L2 caches hold, panel_of_lines() is called in
//                     place of panel(), with the same arguments
#pragma once

#include "multiply.h"

namespace icpu::gemm {

// Lines of B that pay for one more thread (targets/blocking.py).
inline constexpr int64_t kStreamGrain = ICPU_GEMM_THREAD_LINES;

template <class Micro>
class Stream {
  using Element = typename Micro::Element;
  using Weight = typename Micro::Weight;
  using Sum = typename Micro::Sum;
  static constexpr int64_t kPanel = int64_t(Micro::kBlock) * Micro::kColumns;

 public:
  Stream(const Sizes& sizes, const Weight* b, int limit)
      : g_(sizes),
        b_(b),
        panels_(ceil_div(g_.columns, Micro::kColumns)),
        steps_(ceil_div(g_.depth, Micro::kStep)),
        threads_(threads_for(bytes() / kLine, kStreamGrain, limit)) {}

  void run(const Pack<Element>& pack, const Epilogue<Sum>& epilogue) const {
    Element* const a = scratch<Element, 16>(steps_ * Micro::kStep * Micro::kBlock);
    pack(0, g_.rows, 0, g_.depth, a);
    Sum* const pieces = scratch<Sum, 18>(threads_ > 1 ? 2 * threads_ * kPanel : 0);
    const auto multiply = [&](const auto& rows) {
      parallel_for(threads_, 1, threads_, [&](int64_t begin, int64_t end) {
        const typename Micro::Few::Thread thread(g_.rows);
        for (int64_t part = begin; part < end; ++part) multiply_part(part, rows, pieces + 2 * part * kPanel, epilogue);
      });
    };
    if constexpr (requires { typename Micro::Few::Rows; }) {
      multiply(typename Micro::Few::Rows(a, g_.rows, steps_ * Micro::kStep));
    } else {
      multiply(a);
    }
    if (threads_ > 1) add_pieces(pieces, epilogue);
  }

 private:
  static constexpr int64_t kStepOfB = int64_t(Micro::kStep) * Micro::kColumns;

  int64_t bytes() const { return panels_ * steps_ * kStepOfB * int64_t(sizeof(Weight)); }

  bool by_lines() const {
    if constexpr (requires { Micro::Few::kMostOfLines; }) {
      return g_.rows <= Micro::Few::kMostOfLines && bytes() > 2 * kPackedBytes * threads_;
    }
    return false;
  }

  // c = a @ b from a step on, for one panel.
  template <class Rows>
  void multiply_panel(const Rows& rows, int64_t k, const Weight* b, Sum* c, int64_t steps) const {
    const int64_t first = k * Micro::kStep, depth = steps * Micro::kStep;
    const auto with = [&](const auto& panel) ICPU_INLINE {
      if constexpr (std::is_pointer_v<Rows>) {
        panel(rows + first * Micro::kBlock, b, c, g_.rows, depth);
      } else {
        panel(rows, first, b, c, g_.rows, depth);
      }
    };
    if constexpr (requires { Micro::Few::kMostOfLines; }) {
      if (by_lines()) return with(Micro::Few::panel_of_lines);
    }
    with(Micro::Few::panel);
  }

  // The first step of a part.
  int64_t start(int64_t part) const { return panels_ * steps_ * part / threads_; }

  void finish(int64_t panel, const Sum* c, const Epilogue<Sum>& epilogue) const {
    epilogue(0, g_.rows, panel, std::min<int64_t>(Micro::kColumns, g_.columns - panel * Micro::kColumns), c);
  }

  // pieces: for the end of a panel that another part begins, and for the start of one that another part ends.
  // rows: packed, or what the micro kernel made of them.
  template <class Rows>
  void multiply_part(int64_t part, const Rows& rows, Sum* pieces, const Epilogue<Sum>& epilogue) const {
    alignas(64) Sum whole[kPanel];
    for (int64_t step = start(part), stop = start(part + 1); step < stop;) {
      const int64_t panel = step / steps_, k = step % steps_, count = std::min(steps_ - k, stop - step);
      Sum* const c = count == steps_ ? whole : k > 0 ? pieces : pieces + kPanel;
      multiply_panel(rows, k, b_ + step * kStepOfB, c, count);
      if (count == steps_) finish(panel, c, epilogue);
      step += count;
    }
  }

  void add_pieces(Sum* pieces, const Epilogue<Sum>& epilogue) const {
    Sum* sum = nullptr;
    for (int64_t part = 0; part < threads_; ++part, pieces += 2 * kPanel) {
      const int64_t first = start(part), stop = start(part + 1), panel = first / steps_;
      if (first % steps_ != 0) {
        for (int64_t i = 0; i < g_.rows * Micro::kColumns; ++i) sum[i] += pieces[i];
        if (stop >= (panel + 1) * steps_) finish(panel, sum, epilogue);
      }
      if (stop % steps_ != 0 && stop / steps_ * steps_ >= first) sum = pieces + kPanel;
    }
  }

  Sizes g_;
  const Weight* b_;
  int64_t panels_, steps_;
  int threads_;
};

}  // namespace icpu::gemm
