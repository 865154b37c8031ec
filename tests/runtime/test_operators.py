"""The operators library: plans that were loaded before it is there use it from their next call on."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from inductor_cpu.ir.plan import LoadInput, Slot
from inductor_cpu.runtime import executor as native
from inductor_cpu.runtime.cache import open_cache
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain
from tests.runtime.support import Runner, aten, copy_of_executor, extern, make_plan

X, OUT, ONE = Slot(0), Slot(1), Slot(21)
RELU = make_plan(LoadInput(X, 0), extern(aten.relu.default, X, out=(OUT,)), results=(OUT,))


@pytest.fixture
def lonely(toolchain: Toolchain, tmp_path: Path) -> Runner:
    """Runs plans by an executor that has no operators library yet."""
    return Runner(copy_of_executor(toolchain, tmp_path), {})


@pytest.fixture
def operators(toolchain: Toolchain) -> ModuleType:
    return native._load("operators", native.build_operators(open_cache(), toolchain, ProcessGroup()))


def test_a_plan_says_why_it_calls_operators_as_python_until_it_takes_up_the_library(
    lonely: Runner, operators: ModuleType
) -> None:
    plan, x = lonely.load(RELU), torch.randn(5)
    (row,) = native.describe(plan)
    assert (row.path, row.why_python) == ("python", native.NOT_BUILT)
    assert torch.equal(plan([x])[0], x.relu())
    lonely.module.use_operators(operators.prepare)
    assert torch.equal(plan([x])[0], x.relu())
    (row,) = native.describe(plan)
    assert (row.path, row.why_python) == ("native", "")


def test_what_has_no_native_form_stays_python_with_the_library(lonely: Runner, operators: ModuleType) -> None:
    generator = torch.Generator().manual_seed(7)
    call = extern(aten.randn.generator, [4], generator=generator, out=(OUT,))
    plan = lonely.load(make_plan(call, results=(OUT,)))
    lonely.module.use_operators(operators.prepare)
    assert torch.equal(plan([])[0], torch.randn(4, generator=torch.Generator().manual_seed(7)))
    (row,) = native.describe(plan)
    assert row.path == "python"
    assert "Generator" in row.why_python


def test_threads_call_a_plan_while_the_library_arrives(lonely: Runner, operators: ModuleType) -> None:
    calls = [extern(aten.add.Tensor, Slot(k), ONE, out=(Slot(k + 1),)) for k in range(20)]
    plan = lonely.load(
        make_plan(LoadInput(X, 0), *calls, results=(Slot(20),), slots=22, constants=((ONE, torch.ones(3)),))
    )
    wrong, running, arrived = [], threading.Barrier(5), threading.Event()

    def work(seed: int) -> None:
        x = torch.full((3,), float(seed))
        running.wait()
        for call in range(400):
            if not torch.equal(plan([x])[0], x + 20):
                wrong.append(call)
            if call == 200:
                arrived.wait()

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    running.wait()
    lonely.module.use_operators(operators.prepare)
    arrived.set()
    for worker in workers:
        worker.join()
    assert wrong == []
    assert {row.path for row in native.describe(plan)} == {"native"}


def test_only_an_operators_library_is_taken_for_one(lonely: Runner) -> None:
    with pytest.raises(ValueError, match="PyCapsule"):
        lonely.module.use_operators(None)


def test_modes_of_the_program_see_what_its_operator_does_and_not_the_operator(either: Runner) -> None:
    seen: list[object] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with torch.library._scoped_library("icpu_modes", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: torch.add(x, x), "CPU")
        call = extern(torch.ops.icpu_modes.twice.default, X, out=(OUT,))
        plan, x = either.load(make_plan(LoadInput(X, 0), call, results=(OUT,))), torch.ones(2)
        with Mode():
            (result,) = plan([x])
    assert torch.equal(result, x + x)
    assert seen == [torch.add]
