"""Every kernel of the corpus: with --benchmark-disable compiled and checked against eager, else timed in turns with
stock Inductor's, with a call that has nearly nothing to compute, and with a bare loop that moves the same bytes. All
with one thread, or as many as --threads says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import count
from types import FunctionType
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from bench_suites.backends import compiler
from bench_suites.kernels.bandwidth import Traffic, probe, seconds
from bench_suites.kernels.check import difference, exact, outcome
from bench_suites.kernels.row import Inputs, KernelRow, Size, size_of
from bench_suites.kernels.table import FAMILIES, Variant, variants
from bench_suites.suites.case import tensors

WARM_ROUNDS = 2
SECONDS = 0.5  # of each kernel
ROUNDS = (7, 100)
CALLS = 16  # of a kernel with all data in the cache, one after the other

NUMBERS = count()

CASES = [pytest.param(variant, id=f"{family}-{variant.name}") for family in FAMILIES for variant in variants(family)]


@pytest.fixture(autouse=True, scope="session")
def _memory_is_kept() -> None:
    """The C library keeps the memory of results between calls: else most of a large kernel's time, whoever compiled it,
    is the system's work to map fresh pages."""
    library = ctypes.CDLL(None)
    mmap_max, trim_threshold = -4, -1
    library.mallopt(mmap_max, 0)
    library.mallopt(trim_threshold, 2**31 - 1)


@pytest.fixture(autouse=True)
def _threads_without_gradients(pytestconfig: pytest.Config) -> Iterator[None]:
    torch._dynamo.reset()
    torch.set_num_threads(pytestconfig.getoption("threads"))
    with torch.no_grad():
        yield


def compiled(name: str, function: Callable[..., Any], eager_random: bool = False) -> Callable[..., Any]:
    """The function by a backend. Dynamo keeps backends by code, and the sizes that it saw change by its name: a second
    size of one name would make the next kernel one for all sizes. So each gets code of a name of its own."""

    def call(*inputs: torch.Tensor) -> Any:
        return function(*inputs)

    code = call.__code__.replace(co_name=f"{call.__name__}_{next(NUMBERS)}")
    own = FunctionType(code, call.__globals__, closure=call.__closure__)
    return compiler(name, lambda report: None, dynamic=False, eager_random=eager_random)(own)


def traffic(row: KernelRow, inputs: Inputs, results: Inputs) -> Traffic:
    """What the kernel must move at least."""
    others = {*row.unread, *row.updated}
    return Traffic(
        read=tuple(t for number, t in enumerate(inputs) if number not in others),
        updated=tuple(inputs[number] for number in row.updated),
        gathered=row.gathered(inputs),
        written=size_of(results) + row.written(inputs),
    )


@pytest.mark.parametrize("variant", CASES)
def test_kernel(variant: Variant, benchmark: BenchmarkFixture) -> None:
    row = variant.row
    inputs, cached = row.build(variant.dtype, Size.FULL), row.build(variant.dtype, Size.CACHED)
    icpu, stock = (compiled(name, row.function) for name in ("icpu", "inductor"))
    if benchmark.disabled:
        check(variant, inputs, compiled("icpu", row.function, eager_random=True) if row.random else icpu)
        icpu(*inputs)
        stock(*inputs)
        compiled("icpu", row.function)(*cached)
        return
    tiny, call, near = (
        row.build(variant.dtype, Size.TINY),
        compiled("icpu", row.function),
        compiled("icpu", row.function),
    )
    icpu(*inputs)
    call(*tiny)
    moved = traffic(row, inputs, tuple(tensors(stock(*inputs))))
    moved_near = traffic(row, cached, tuple(tensors(near(*cached))))
    move = probe(moved)
    times: dict[str, list[float]] = {name: [] for name in ("stock", "call", "moving", "plain", "near", "near_call")}

    def run() -> None:
        icpu(*inputs)  # its results go at once, as the others' do: kept for a round, they would need twice the memory

    loops = [("plain", move.plain), ("moving", move.fastest)]

    def others() -> None:
        # A bare loop, a kernel, the other bare loop, the other kernel: each finds in the caches what one of the other
        # sort has left there, and its own results of before as long ago.
        loops.reverse()
        (first, move_first), (second, move_second) = loops
        times[first].append(seconds(move_first))
        times["stock"].append(seconds(lambda: stock(*inputs)))
        times["call"].append(seconds(lambda: call(*tiny)))
        times[second].append(seconds(move_second))
        if row.streaming:
            times["near"].append(steady(lambda: near(*cached)))
            times["near_call"].append(steady(lambda: call(*tiny)))

    round_time = min(seconds(run) + seconds(lambda: stock(*inputs)) + 2 * seconds(move.fastest) for _ in "ab")
    rounds = min(max(int(SECONDS / round_time), ROUNDS[0]), ROUNDS[1])
    benchmark.pedantic(run, setup=others, rounds=rounds, iterations=1, warmup_rounds=WARM_ROUNDS)
    least = {name: min(values[-rounds:]) for name, values in times.items() if values}
    computing = None
    if row.streaming:
        computing = (least.pop("near") - least.pop("near_call")) * moved.bytes / moved_near.bytes
    benchmark.extra_info |= {"name": variant.name, **least, "computing": computing, "moved": moved.bytes}


def steady(function: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls, after one that has fetched the data into the caches."""
    function()
    return min(seconds(function) for _ in range(CALLS))


def check(variant: Variant, inputs: Inputs, icpu: Callable[..., Any]) -> None:
    """That icpu's function is as accurate as eager."""
    function = variant.row.function
    wrong = difference(outcome(icpu, inputs), outcome(function, inputs), exact(function, inputs))
    assert wrong is None, wrong
