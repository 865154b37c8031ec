// Threads for the kernels of a call. They wait together in one parallel region of OpenMP, while the thread that calls
// runs one kernel after the other and lends them to each: who has nothing to do takes part.
//
// A region for each kernel would have to wait for all its threads at its end. Where another program wants a core, one of
// them does not run for some milliseconds, and each kernel would take so long. Nobody waits for a thread of a team that
// has not begun to work for a kernel: the others do its share (Work in templates/prelude/parallel.h).
//
// The region is opened only for kernels that share work: opening it wakes the threads, and it ends when all have come.
// Where that takes long because other programs want the cores, threads sleep at once when they have nothing to do.
#pragma once

#include "contention.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <omp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <immintrin.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <strings.h>
#include <exception>

namespace icpu {

class Team {
  using Body = void (*)(const void* context, int64_t self);

 public:
  // f() in this thread, with a team for its kernels. OpenMP's regions do not let errors out.
  template <class F>
  static void run(const F& f) {
    if (contention().is_felt(Contention::Clock::now())) crowd().gather();
    const bool contended = crowd().is_there();
    Team team;
    std::exception_ptr error;
    Contention::Clock::time_point done;
#pragma omp parallel
    {
      if (omp_get_thread_num() != 0) {
        team.work(static_cast<uint32_t>(omp_get_thread_num()), contended || waits_passively() ? 0 : kLooksAwake);
      } else {
        team.count_ = omp_get_num_threads();
        mine() = &team;
        try {
          f();
        } catch (...) {
          error = std::current_exception();
        }
        mine() = nullptr;
        done = Contention::Clock::now();
        team.tell(kEnd);
      }
    }
    const auto now = Contention::Clock::now();
    if (!contended) contention().waited(now - done, now);
    if (error) std::rethrow_exception(error);
  }

  // Whether this thread may have a team: it is in no parallel region.
  static bool may_run() { return !omp_in_parallel() && omp_get_max_threads() > 1; }

  // How often kernels of this thread have shared work, or wanted to.
  static int64_t& shared() {
    static thread_local int64_t count = 0;
    return count;
  }

  // Lets the library of a kernel know that threads may be had.
  static void lend_to(const void* kernel) {
    Dl_info library;
    if (dladdr(kernel, &library) == 0) return;
    void* const handle = dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) return;
    if (void* const place = dlsym(handle, "icpu_lend")) {
      __atomic_store_n(static_cast<decltype(&lend)*>(place), &lend, __ATOMIC_RELAXED);
    }
    dlclose(handle);
  }

 private:
  // What the threads see: the number of a piece of work, and how many of them may take part, which is 0 when there is
  // nothing to do.
  static constexpr uint32_t kThreads = 0xffff, kNext = kThreads + 1, kEnd = ~uint32_t{0};
  static constexpr uint64_t kInside = ~uint32_t{0};
  // Looks at it before a thread sleeps, 0.5 ms on a Zen 4, and before one that waits for others lets them have its core.
  static constexpr int kLooksAwake = 20000, kLooks = 2000;

  // What is known of the process's cores.
  static Contention& contention() {
    static Contention contention;
    return contention;
  }
  static Crowd& crowd() {
    static Crowd crowd(contention());
    return crowd;
  }

  static Team*& mine() {
    static thread_local Team* team = nullptr;
    return team;
  }

  // See icpu_lend in templates/prelude/parallel.h.
  static int64_t lend(int64_t threads, Body body, const void* context) {
    if (body != nullptr) ++shared();
    Team* const team = mine();
    if (team == nullptr || team->busy_) return 0;
    if (body == nullptr) return team->count_;
    team->share(threads, body, context);
    return 1;
  }

  void share(int64_t threads, Body body, const void* context) {
    busy_ = true;
    body_ = body;
    context_ = context;
    const uint32_t most = static_cast<uint32_t>(threads < count_ ? threads : count_);
    number_ += kNext;
    tell(number_ | most);
    body(context, 0);
    const uint64_t others = most - 1;
    const auto done = [](uint64_t counts) { return counts >> 32; };
    uint64_t counts = counts_.load();
    if (done(counts) + (counts & kInside) < others) {
      state_.store(number_);  // who has not begun finds nothing to do
      counts = wait_until([&](uint64_t now) { return (now & kInside) == 0; });
    } else if (done(counts) < others) {
      counts = wait_until([&](uint64_t now) { return done(now) == others; });
    }
    counts_.fetch_sub(done(counts) << 32);
    busy_ = false;
  }

  // Until all that work have done so: the counts then.
  template <class Until>
  uint64_t wait_until(const Until& until) {
    for (int looks = 0;;) {
      const uint64_t counts = counts_.load();
      if (until(counts)) return counts;
      if (++looks < kLooks) {
        _mm_pause();
      } else {
        sched_yield();
      }
    }
  }

  void tell(uint32_t state) {
    state_.store(state);
    if (sleeping_.load() > 0) syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  // looks: before it sleeps.
  void work(uint32_t self, int looks) {
    for (uint32_t seen = 0;;) {
      const uint32_t state = wait(seen, looks);
      if (state == kEnd) return;
      seen = state;
      if (self >= (state & kThreads)) continue;
      counts_.fetch_add(1);
      if (state_.load() != state) {  // too late
        counts_.fetch_sub(1);
        continue;
      }
      body_(context_, self);
      counts_.fetch_add((uint64_t{1} << 32) - 1);
    }
  }

  // Another state than the one that was seen.
  uint32_t wait(uint32_t seen, int looks) {
    for (int i = 0; i < looks; ++i) {
      if (const uint32_t state = state_.load(); state != seen) return state;
      _mm_pause();
    }
    sleeping_.fetch_add(1);
    uint32_t state;
    while ((state = state_.load()) == seen) syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    sleeping_.fetch_sub(1);
    return state;
  }

  // The user's wish that threads do not wait in loops, as OpenMP knows it.
  static bool waits_passively() {
    static const bool passively = [] {
      const char* const policy = std::getenv("OMP_WAIT_POLICY");
      return policy != nullptr && strcasecmp(policy, "passive") == 0;
    }();
    return passively;
  }

  int count_ = 0;
  bool busy_ = false;
  uint32_t number_ = 0;
  alignas(64) std::atomic<uint32_t> state_{0};
  Body body_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint64_t> counts_{0};  // of threads: in the lower half those at work, in the upper half the done
  alignas(64) std::atomic<int> sleeping_{0};
};

} // namespace icpu
