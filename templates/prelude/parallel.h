// Sharing loops among the threads of the OpenMP pool that ATen uses too: those that the executor lends a kernel, or a
// parallel region of the kernel's own.
//
// Preconditions: -fopenmp and the same OpenMP runtime as torch. A body must not throw.
#pragma once

#include "base.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <utility>

// What the executor sets in each library of kernels (runtime/native/team.h): threads that wait for work while a graph
// runs. lend(threads, body, context) calls body(context, self) in the caller as number 0, and in as many of the numbers
// below `threads` as have a thread with nothing else to do; it returns whether it did. Without a body it returns how many
// threads there are, 0 if none may be had now.
extern "C" {
using icpu_Lend = int64_t (*)(int64_t threads, void (*body)(const void* context, int64_t self), const void* context);
__attribute__((weak)) icpu_Lend icpu_lend = nullptr;
}

namespace icpu {

inline int lent_threads() { return icpu_lend == nullptr ? 0 : static_cast<int>(icpu_lend(0, nullptr, nullptr)); }

// The most threads of a kernel: torch's number at the time of the call.
inline int most_threads() {
  const int lent = lent_threads();
  return lent > 0 ? lent : omp_get_max_threads();
}

// How many threads to use for `work`, at most `limit`, if each must get at least `grain`: an empty parallel region costs
// about 1 us.
inline int threads_for(int64_t work, int64_t grain, int limit) {
  if (work < 2 * grain || (omp_in_parallel() && lent_threads() == 0)) return 1;
  return static_cast<int>(std::min<int64_t>(limit, work / grain));
}
inline int threads_for(int64_t work, int64_t grain) {
  return work < 2 * grain ? 1 : threads_for(work, grain, most_threads());
}

// Stores around the cache (vec_memory.h) are seen before what follows.
inline void order_stores() { __builtin_ia32_sfence(); }

// A call of body(context, self, of) in some of `threads` threads; of: how many shares of the work a thread looks at.
struct Together {
  using Body = void (*)(const void* context, int64_t self, int64_t of);
  // Many threads need not look at all shares: each one's owner sees to it.
  static constexpr int64_t kNeighbours = 8;

  int64_t threads;
  Body body;
  const void* context;

  // Thread 0, which is there in any case, sees to the shares of those that are not.
  static void lent(const void* call, int64_t self) {
    const auto& [threads, body, context] = *static_cast<const Together*>(call);
    body(context, self, self == 0 ? threads : std::min(threads, kNeighbours));
    order_stores();
  }

  void run() const {
    if (icpu_lend != nullptr && icpu_lend(threads, lent, this) != 0) return;
    // Always the whole team, as ATen does: libgomp ends the threads that a smaller team does not need, and making them
    // again costs far more than letting them idle. It may be smaller than was thought.
#pragma omp parallel
    {
      const int64_t self = omp_get_thread_num();
      const int64_t of = omp_get_num_threads() < threads ? threads : std::min(threads, kNeighbours);
      if (self < threads) body(context, self, of);
      order_stores();
    }
  }
};

// Work that the threads of a region take piece by piece: each has an equal share, takes half of what is left of it at a
// time, and when nothing is left, half of what is left to another one, from the end. Cores are rarely equally fast for
// long: others use their memory, their other hardware thread or their time, and some have slower cores than others.
// (Blumofe and Leiserson, Scheduling Multithreaded Computations by Work Stealing, 1999; pieces that halve: Polychronopoulos
// and Kuck, Guided Self-Scheduling, 1987.)
class Work {
 public:
  // Of `total` points, in pieces whose bounds, the last end excepted, are multiples of `align`. most: pieces of a share.
  Work(int64_t total, int64_t align, int64_t threads, int64_t most)
      : total_(total),
        align_(align),
        units_((total + align - 1) / align),
        count_(threads),
        pieces_(std::clamp<int64_t>(units_ / threads, 1, most)),
        shares_(threads > 1 ? scratch<Share, 900>(threads) : &alone_) {
    for (int64_t n = 0; n < threads; ++n) shares_[n].left = pair(0, pieces_);
  }

  // Takes some of the work for a thread: false if nothing is left that it may take. of: how many shares it looks at.
  bool take(int64_t self, int64_t of, int64_t& begin, int64_t& end) {
    for (int64_t n = 0; n < of; ++n) {
      const int64_t owner = (self + n) % count_;
      int64_t first, last;
      while (take_from(shares_[owner], n > 0, first, last)) {
        begin = bound(owner * pieces_ + first);
        end = bound(owner * pieces_ + last);
        if (begin < end) return true;
      }
    }
    return false;
  }

 private:
  struct alignas(64) Share {
    uint64_t left;  // numbers of pieces: the first one, and that behind the last one. Atomic: <atomic> takes 0.5 s a unit
  };

  static uint64_t pair(uint64_t first, uint64_t last) { return first << 32 | last; }

  static bool take_from(Share& share, bool from_end, int64_t& first, int64_t& last) {
    uint64_t left = __atomic_load_n(&share.left, __ATOMIC_RELAXED), rest;
    do {
      first = int64_t(left >> 32);
      last = int64_t(left & 0xffffffff);
      if (first == last) return false;
      const int64_t taken = (last - first + 1) / 2;
      rest = from_end ? pair(first, last - taken) : pair(first + taken, last);
      (from_end ? first : last) = from_end ? last - taken : first + taken;
    } while (!__atomic_compare_exchange_n(&share.left, &left, rest, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
  }

  int64_t bound(int64_t piece) const { return std::min(units_ * piece / (count_ * pieces_) * align_, total_); }

  const int64_t total_, align_, units_, count_, pieces_;
  Share alone_;  // of one thread, which may be one of several that share other work
  Share* const shares_;
};

// What a thread takes of some work: a call gives it the bounds of the next part, until nothing is left.
struct Take {
  Work& work;
  int64_t self, of;
  bool operator()(int64_t& begin, int64_t& end) const { return work.take(self, of, begin, end); }
};

// Of a share of work: one is what a thread may wait for another at the end.
inline constexpr int64_t kPieces = 16;

// body(take) in each thread, for [0, total). most: pieces of a share.
template <class Body>
inline void parallel_work(int64_t total, int64_t align, int threads, int64_t most, const Body& body) {
  Work work(total, align, std::max(threads, 1), threads > 1 ? most : 1);
  if (threads <= 1) {
    body(Take{work, 0, 1});
    return order_stores();
  }
  const auto part = [&](int64_t self, int64_t of) { body(Take{work, self, of}); };
  const auto call = [](const void* context, int64_t self, int64_t of) {
    (*static_cast<const decltype(part)*>(context))(self, of);
  };
  Together{threads, call, &part}.run();
}

// body(begin, end) for parts of [0, total) whose bounds, the last end excepted, are multiples of `align`; at most `most` of
// a thread's share.
template <class Body>
inline void parallel_for(int64_t total, int64_t align, int threads, const Body& body, int64_t most = kPieces) {
  if (total > 0 && threads > 1) {
    return parallel_work(total, align, threads, most, [&](const Take& take) {
      for (int64_t begin, end; take(begin, end);) body(begin, end);
    });
  }
  if (total > 0) body(int64_t(0), total);
  order_stores();
}

// The same in one part for each thread, where more would take longer.
template <class Body>
inline void parallel_parts(int64_t total, int64_t align, int threads, const Body& body) {
  parallel_for(total, align, threads, body, 1);
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
