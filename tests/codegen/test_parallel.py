"""How the prelude shares work among threads: each point once, and nobody waits for a slow thread's share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from ctypes import c_int64, c_void_p
from functools import cache

import pytest
import torch

from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.runtime.toolchain import find_toolchain

from .harness import FUNCTION, Function, addresses_of, target

THREADS = 3

_CODE = """
namespace {
// Each point of [begin, end) is one of the counts, a thousand times where bounds are no multiples of `align`.
void count(int64_t* counts, int64_t begin, int64_t end, int64_t total, int64_t align) {
  const bool whole = begin % align == 0 && (end % align == 0 || end == total);
  for (int64_t i = begin; i < end; ++i) __atomic_fetch_add(counts + i, whole ? 1 : 1000, __ATOMIC_RELAXED);
}

// n: total, align, threads, 0 for parts that halve and 1 for one part a thread. p[1]: calls.
int64_t points(void* const* p, const int64_t* n) {
  auto *const counts = static_cast<int64_t*>(p[0]), *const calls = static_cast<int64_t*>(p[1]);
  const auto body = [&](int64_t begin, int64_t end) {
    count(counts, begin, end, n[0], n[1]);
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
  };
  if (n[3]) icpu::parallel_parts(n[0], n[1], int(n[2]), body);
  else icpu::parallel_for(n[0], n[1], int(n[2]), body);
  return 0;
}

// n: rows, size, align, threads.
int64_t rows(void* const* p, const int64_t* n) {
  icpu::parallel_for_rows(n[0], n[1], n[2], int(n[3]), [&](int64_t row, int64_t begin, int64_t end) {
    count(static_cast<int64_t*>(p[0]) + row * n[1], begin, end, n[1], n[2]);
  });
  return 0;
}

// The points of n[0] rows x n[1], rows by n[2] threads, and each row by one thread that takes its pieces, too.
int64_t nested(void* const* p, const int64_t* n) {
  icpu::parallel_for(n[0], 1, int(n[2]), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      icpu::parallel_work(n[1], 1, 1, icpu::kPieces, [&](const icpu::Take& take) {
        int64_t* const counts = static_cast<int64_t*>(p[0]) + row * n[1];
        for (int64_t begin, end; take(begin, end);) count(counts, begin, end, n[1], 1);
      });
    }
  });
  return 0;
}

// The first thread that begins waits, in its first part, until the others have done all that is left. The points of its
// part; those that were missing after ten seconds, below 0.
int64_t one_waits(void* const* p, const int64_t* n) {
  int64_t done = 0, of_first = 0;
  bool begun = false;
  icpu::parallel_for(n[0], 1, int(n[1]), [&](int64_t begin, int64_t end) {
    if (!__atomic_exchange_n(&begun, true, __ATOMIC_RELAXED)) {
      of_first = end - begin;
      const double until = omp_get_wtime() + 10;
      while (__atomic_load_n(&done, __ATOMIC_RELAXED) < n[0] - of_first) {
        if (omp_get_wtime() > until) break;
      }
      const int64_t missing = n[0] - of_first - __atomic_load_n(&done, __ATOMIC_RELAXED);
      if (missing > 0) of_first = -missing;
    }
    __atomic_fetch_add(&done, end - begin, __ATOMIC_RELAXED);
  });
  return of_first;
}
}  // namespace

// n: which of these, and its sizes.
extern "C" int64_t share_work(void* const* p, const int64_t* n) {
  return (n[0] == 0 ? points : n[0] == 1 ? rows : n[0] == 2 ? nested : one_waits)(p, n + 1);
}
"""

_NAMES = ("points", "rows", "nested", "one_waits")


@cache
def _function() -> Function:
    source = KernelSource("share_work", "share_work", _CODE)
    return FUNCTION(addresses_of([source], target("scalar"), find_toolchain())["share_work"])


def _call(name: str, *sizes: int, buffers: tuple[torch.Tensor, ...] = ()) -> int:
    pointers = (c_void_p * max(len(buffers), 1))(*[buffer.data_ptr() for buffer in buffers])
    return _function()(pointers, (c_int64 * (len(sizes) + 1))(_NAMES.index(name), *sizes))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def _points(total: int, align: int, threads: int, parts: int = 0) -> tuple[list[int], int]:
    counts, calls = torch.zeros(max(total, 1), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    _call("points", total, align, threads, parts, buffers=(counts, calls))
    return counts[:total].tolist(), int(calls)


def test_each_point_is_met_once_in_parts_that_begin_at_multiples() -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    for _ in range(300):
        total, align = draw.choice((0, 1, 7, 64, 1000)) + draw.randrange(9), draw.choice((1, 8, 16))
        threads, parts = draw.randint(1, THREADS), draw.randrange(2)
        case = f"seed {seed}: {total} points by {align}, {threads} threads, parts {parts}"
        assert _points(total, align, threads, parts)[0] == [1] * total, case


def test_a_team_that_is_smaller_than_was_thought_does_everything() -> None:
    assert _points(10000, 8, threads=40)[0] == [1] * 10000


def test_parts_of_threads_are_not_divided() -> None:
    assert _points(10000, 8, threads=THREADS)[1] > THREADS
    assert _points(10000, 8, threads=THREADS, parts=1)[1] <= THREADS


@pytest.mark.parametrize(("rows", "size", "align"), [(1, 100, 8), (7, 19, 8), (50, 3, 1), (3, 0, 8), (0, 5, 1)])
def test_each_point_of_rows_is_met_once(rows: int, size: int, align: int) -> None:
    counts = torch.zeros(max(rows * size, 1), dtype=torch.int64)
    _call("rows", rows, size, align, THREADS, buffers=(counts,))
    assert counts[: rows * size].tolist() == [1] * (rows * size)


def test_work_of_one_thread_within_shared_work_is_its_own() -> None:
    counts = torch.zeros(500 * 7, dtype=torch.int64)
    _call("nested", 500, 7, THREADS, buffers=(counts,))
    assert counts.tolist() == [1] * len(counts)


@pytest.mark.parametrize("threads", [2, THREADS])
def test_others_do_what_a_slow_thread_has_not_begun(threads: int) -> None:
    total = 3200
    assert 0 < _call("one_waits", total, threads) <= total / threads / 2 + 1
