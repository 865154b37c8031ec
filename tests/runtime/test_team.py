"""Threads that the executor lends to kernels: who takes part, what errors do, and that numbers stay the same."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch

from inductor_cpu.ir.plan import Alloc, ExecutionPlan, KernelCall, KernelSource, LoadInput, Slot
from inductor_cpu.runtime.cache import content_key
from inductor_cpu.runtime.executor import RunnablePlan
from inductor_cpu.runtime.toolchain import Toolchain
from tests.runtime.support import Runner, aten, extern, make_plan

#: Where a kernel writes into p[0]: whether threads were lent, how many there are, whether a body was lent some, too;
#: then how often each thread took part.
LENT, THREADS, NESTED, FIRST = 0, 1, 2, 3
MOST, NUMBERS = 64, 3 + 64

_BODY = """
extern "C" {
using icpu_Lend = int64_t (*)(int64_t, void (*)(const void*, int64_t), const void*);
__attribute__((weak)) icpu_Lend icpu_lend = nullptr;
}
extern "C" int64_t SYMBOL(void* const* p, const int64_t* n) {
  int64_t* const out = static_cast<int64_t*>(p[0]);
  out[0] = out[1] = out[2] = -1;
  if (icpu_lend == nullptr) return 0;
  out[1] = icpu_lend(0, nullptr, nullptr);
  out[0] = icpu_lend(n[0], [](const void* numbers, int64_t self) {
    int64_t* const out = (int64_t*)numbers;
    __atomic_add_fetch(out + 3 + self, 1, __ATOMIC_RELAXED);
    if (self == 0) out[2] = icpu_lend(2, [](const void*, int64_t) {}, nullptr);
    const auto until = omp_get_wtime() + 0.001;  // time for the others to come
    while (omp_get_wtime() < until) {}
  }, out);
  return n[1];
}
"""
_SYMBOL = f"icpu_{content_key(_BODY)[:16]}"
SHARE = KernelSource(_SYMBOL, "share", _BODY.replace("SYMBOL", _SYMBOL))


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """More than the number of kernels' threads, on machines with fewer cores, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def load_plan(executor: ModuleType, load: Callable[..., dict[str, int]]) -> Callable[[ExecutionPlan], RunnablePlan]:
    return Runner(executor, load(SHARE)).load


def zeros() -> torch.Tensor:
    return torch.zeros(NUMBERS, dtype=torch.int64)


def sharing(threads: int, results: int, status: int = 0) -> ExecutionPlan:
    """So many kernels one after the other, each of which writes into an input."""
    inputs = [LoadInput(Slot(k), k) for k in range(results)]
    calls = [KernelCall(SHARE.symbol, "share", (Slot(k),), (threads, status)) for k in range(results)]
    return make_plan(*inputs, *calls, results=())


def call(plan: RunnablePlan, results: int) -> list[list[int]]:
    tensors = [zeros() for _ in range(results)]
    plan(list(tensors))
    return [t.tolist() for t in tensors]


def test_threads_are_lent_from_the_second_call_on(load_plan: Callable[[ExecutionPlan], RunnablePlan]) -> None:
    plan = load_plan(sharing(2, 3))
    assert [(r[LENT], r[THREADS]) for r in call(plan, 3)] == [(0, 0)] * 3
    for _ in range(20):
        assert [(r[LENT], r[THREADS]) for r in call(plan, 3)] == [(1, 3)] * 3


def test_the_caller_takes_part_and_each_other_thread_at_most_once(
    load_plan: Callable[[ExecutionPlan], RunnablePlan],
) -> None:
    plan, came = load_plan(sharing(2, 3)), 0
    call(plan, 3)
    for _ in range(50):
        for result in call(plan, 3):
            assert result[FIRST] == 1
            assert result[FIRST + 1] in (0, 1)
            assert not any(result[FIRST + 2 :])
            came += result[FIRST + 1]
    assert came > 0


def test_more_threads_than_there_are_are_not_waited_for(load_plan: Callable[[ExecutionPlan], RunnablePlan]) -> None:
    plan = load_plan(sharing(40, 2))
    call(plan, 2)
    for _ in range(20):
        for result in call(plan, 2):
            assert result[LENT] == 1
            assert not any(result[FIRST + 3 :])


def test_what_runs_in_a_thread_that_was_lent_gets_none(load_plan: Callable[[ExecutionPlan], RunnablePlan]) -> None:
    plan = load_plan(sharing(2, 2))
    call(plan, 2)
    assert [result[NESTED] for result in call(plan, 2)] == [0, 0]


def test_a_kernel_alone_has_a_parallel_region_of_its_own(load_plan: Callable[[ExecutionPlan], RunnablePlan]) -> None:
    plan = load_plan(sharing(2, 1))
    for _ in range(3):
        assert call(plan, 1)[0][LENT] == 0


def test_one_thread_has_nobody_to_lend(load_plan: Callable[[ExecutionPlan], RunnablePlan]) -> None:
    torch.set_num_threads(1)
    plan = load_plan(sharing(2, 2))
    for _ in range(3):
        assert [result[LENT] for result in call(plan, 2)] == [0, 0]


def test_an_error_of_a_kernel_leaves_the_region_and_later_calls_work(
    load_plan: Callable[[ExecutionPlan], RunnablePlan],
) -> None:
    """A kernel that returns 1 has met a bad index."""
    plan, good = load_plan(sharing(2, 2, status=1)), load_plan(sharing(2, 2))
    call(good, 2)
    tensors = [zeros(), zeros()]
    for _ in range(3):
        with pytest.raises(IndexError, match="index out of range in share"):
            plan(list(tensors))
    assert [result[LENT] for result in call(good, 2)] == [1, 1]


def test_operators_between_kernels_run_outside_of_the_region(
    load_plan: Callable[[ExecutionPlan], RunnablePlan], toolchain: Toolchain
) -> None:
    """They have parallel regions of their own; inside of another one they would have one thread."""
    share = [KernelCall(SHARE.symbol, "share", (Slot(k),), (2, 0)) for k in range(4)]
    openmp = ctypes.CDLL(None if toolchain.openmp is None else str(toolchain.openmp))
    seen: list[int] = []
    plan = load_plan(
        make_plan(
            *(LoadInput(Slot(k), k) for k in range(4)),
            *share[:2],
            extern(aten.relu.default, Slot(0), out=(Slot(4),)),
            extern(lambda x: seen.append(openmp.omp_in_parallel()) or x.clone(), Slot(4), out=(Slot(5),)),
            Alloc(Slot(6), torch.int64, (1,), (1,)),
            *share[2:],
            results=(Slot(5),),
        )
    )  # fmt: skip
    call(plan, 4)
    assert [result[LENT] for result in call(plan, 4)] == [1] * 4
    assert seen == [0, 0]


@torch.no_grad()
def test_the_caller_does_the_shares_of_threads_that_are_not_there() -> None:
    """Kernels for 40 threads, where there are three."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, 1).cumsum(0), x.sum(1)

    x = torch.rand(1600, 1600)
    compiled = torch.compile(function, backend="icpu", options={"cpp.threads": 40})
    first = compiled(x)
    torch.testing.assert_close(first, function(x))
    for _ in range(3):
        assert all(map(torch.equal, compiled(x), first))


#: A graph of many kernels, called by two threads at once, with more threads than cores, beside a process that computes.
_PROGRAM = """
import sys, threading, torch
torch.set_num_threads(4)
torch.manual_seed(0)

def function(x):
    for _ in range(3):
        x = torch.softmax(torch.softmax(x, 1), 0) @ x.relu()
    return x, x.sum(), torch.zeros(7, 300).index_add(0, torch.arange(300) % 7, x)

x = torch.randn(300, 300)
compiled = torch.compile(function, backend="icpu")
with torch.no_grad():
    first = compiled(x)
    torch.testing.assert_close(first, function(x), rtol=1e-4, atol=1e-4)
faults = []

@torch.no_grad()
def call():
    for _ in range(5):
        if not all(map(torch.equal, compiled(x), first)):
            faults.append("other numbers")

threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(", ".join(faults) or 0)
"""


#: Computes until it is killed, or the test is.
_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    pass
"""


def test_numbers_are_the_same_with_threads_that_wait_in_loops_and_come_late() -> None:
    """All other tests have threads that sleep while they wait."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "active"}
    with subprocess.Popen([sys.executable, "-c", _BUSY], start_new_session=True) as busy:
        try:
            subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=True, timeout=300)
        finally:
            busy.kill()
