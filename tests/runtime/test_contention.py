"""How long other programs are taken to want the cores, after parallel regions that waited for their threads or did not,
and the idle threads that make others sleep meanwhile."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inductor_cpu import paths
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.runtime.cache import content_key

MS = 1_000_000

_HEADER = f'#include "{paths.native_sources()}/contention.h"\n'


def source(label: str, body: str) -> KernelSource:
    """A kernel with arguments `void* const* p` and `const int64_t* n`, in which the header is known."""
    symbol = f"icpu_{content_key(body)[:16]}"
    arguments = "(void* const* p, const int64_t* n)"
    return KernelSource(symbol, label, f'{_HEADER}extern "C" int64_t {symbol}{arguments} {{ {body} return 0; }}')


#: p[0]: pairs of a time in ns and how long a region that ends then has waited, or -1 for none; p[1]: whether contention
#: is felt after each.
ANSWER = source(
    "answer",
    """
    using icpu::Contention;
    Contention contention;
    for (int64_t k = 0; k < n[0]; ++k) {
      const int64_t* const pair = static_cast<const int64_t*>(p[0]) + 2 * k;
      const Contention::Clock::time_point now{Contention::Time(pair[0])};
      if (pair[1] >= 0) contention.waited(Contention::Time(pair[1]), now);
      static_cast<int64_t*>(p[1])[k] = contention.is_felt(now);
    }
    """,
)

#: Contention is felt for 3 s from now on, and the crowd comes.
GATHER = source(
    "gather",
    """
    using icpu::Contention;
    static Contention contention;
    static icpu::Crowd crowd(contention);
    for (int k = 0; k < 3; ++k) {
      contention.waited(std::chrono::seconds(1), Contention::Clock::now());
      crowd.gather();
    }
    """,
)

Felt = Callable[..., list[bool]]


@pytest.fixture
def felt(load: Callable[..., dict[str, int]]) -> Felt:
    """Whether contention is felt after each event: a time in ms, or such a time and how many ms a region waited."""
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(load(ANSWER)[ANSWER.symbol])

    def answer(*events: float | tuple[float, float]) -> list[bool]:
        pairs = [event if isinstance(event, tuple) else (event, None) for event in events]
        numbers = [n for at, wait in pairs for n in (int(at * MS), -1 if wait is None else int(wait * MS))]
        given, found = (ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_int64 * len(pairs))()
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(given), ctypes.addressof(found))
        count = ctypes.c_int64(len(pairs))
        assert function(ctypes.addressof(pointers), ctypes.addressof(count)) == 0
        return [bool(k) for k in found]

    return answer


def test_threads_that_come_soon_are_no_contention(felt: Felt) -> None:
    assert felt(1, (2, 0), (3, 0.1), (4, 0.9), 5) == [False] * 5


def test_a_late_thread_is_contention_for_a_while(felt: Felt) -> None:
    assert felt((10, 4), 11, 209, 211) == [True, True, True, False]


def test_each_late_thread_makes_the_while_longer_up_to_some_seconds(felt: Felt) -> None:
    assert felt((10, 4), (300, 4), 1099, 1101) == [True, True, True, False]
    longest = felt((10, 4), (300, 4), (1200, 4), 4199, 4201, (5000, 4), 7999, 8001)
    assert longest == [True, True, True, True, False, True, True, False]


def test_regions_that_do_not_wait_end_it_by_and_by(felt: Felt) -> None:
    assert felt((10, 4), (300, 0), 399, 401) == [True, True, True, False]
    assert felt((10, 4), (300, 0), (500, 0), 549, 551, (600, 0)) == [True, True, True, True, False, False]
    assert felt((10, 4), (300, 0), (500, 0), (600, 0), (700, 4), 899, 901)[-3:] == [True, True, False]


def test_a_crowd_of_as_many_as_there_are_cores_is_there_while_contention_is_felt(
    load: Callable[..., dict[str, int]],
) -> None:
    gather = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(load(GATHER)[GATHER.symbol])
    for _ in range(2):
        assert gather(None, None) == 0
        _await_crowd(len(os.sched_getaffinity(0)))
        _await_crowd(0)


def _await_crowd(count: int) -> None:
    end = time.monotonic() + 20
    while (found := sum(_name(thread) == "icpu crowd" for thread in Path("/proc/self/task").iterdir())) != count:
        assert time.monotonic() < end, f"{found} threads, not {count}"
        time.sleep(0.005)


def _name(thread: Path) -> str:
    try:
        return (thread / "comm").read_text().strip()
    except OSError:  # it has ended
        return ""
