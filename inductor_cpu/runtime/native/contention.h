// Whether other programs want the cores, as the ends of parallel regions tell: a region ends when all its threads have
// come, and one that has to wait for a core comes milliseconds late. That happens to threads that wait in loops, since
// they use up the time that they need later.
#pragma once

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>

namespace icpu {

// Once felt, it is taken to last for a while. Then one region tries again: if it waits, the next while is longer, else
// shorter, until the shortest one is over and all regions try. Any threads may ask and tell.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::duration;

  // To wake a thread that sleeps takes a tenth of it.
  static constexpr Time kLate = std::chrono::milliseconds(1);
  static constexpr Time kShortest = std::chrono::milliseconds(50), kLongest = std::chrono::seconds(3);

  bool is_felt(Clock::time_point now) const { return ticks(now) < until_.load(std::memory_order_relaxed); }

  // A region that ends now, while it is not felt, has waited so long for its threads to come.
  void waited(Time time, Clock::time_point now) {
    int64_t lasts = lasts_.load(std::memory_order_relaxed);
    if (time >= kLate) {
      lasts = lasts == 0 ? 4 * kShortest.count() : std::min<int64_t>(4 * lasts, kLongest.count());
    } else if (lasts == 0) {
      return;
    } else {
      lasts = lasts / 2 < kShortest.count() ? 0 : lasts / 2;
    }
    lasts_.store(lasts, std::memory_order_relaxed);
    until_.store(lasts == 0 ? 0 : ticks(now) + lasts, std::memory_order_relaxed);
  }

 private:
  static int64_t ticks(Clock::time_point now) { return now.time_since_epoch().count(); }

  std::atomic<int64_t> lasts_{0}, until_{0}; // in ticks of the clock
};

// Idle threads of OpenMP, as many as there are cores, for as long as contention is felt. Where libgomp has more threads
// than cores, all of them that wait do so in loops for microseconds, not milliseconds, and sleep then. It asks at each
// wait, and nothing else that is public tells it once a process runs (GOMP_SPINCOUNT in libgomp's manual).
class Crowd {
 public:
  explicit Crowd(const Contention& contention) : contention_(contention) {}

  // Gathers them if they are not there. Must live as long as the process.
  void gather() {
    if (there_.load(std::memory_order_relaxed) || there_.exchange(true)) return;
    try {
      std::thread(&Crowd::stay, this).detach();
    } catch (const std::system_error&) {
      there_.store(false); // no more threads may be had: those that wait go on doing so in loops
    }
  }

  // Until shortly after contention is felt no more: a region that tries without it has to wait for that.
  bool is_there() const { return there_.load(std::memory_order_relaxed); }

 private:
  static constexpr auto kLook = std::chrono::milliseconds(20);

  void stay() {
    pthread_setname_np(pthread_self(), "icpu crowd"); // theirs, too, in what lists threads
#pragma omp parallel num_threads(omp_get_num_procs())
    {
      asm volatile(""); // the compiler leaves out a region with nothing to do
    }
    while (contention_.is_felt(Contention::Clock::now())) std::this_thread::sleep_for(kLook);
    there_.store(false); // they end with the thread that has called them
  }

  const Contention& contention_;
  std::atomic<bool> there_{false};
};

} // namespace icpu
