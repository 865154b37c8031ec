"""Red zones: a kernel that writes out of bounds is caught and named, with its buffer; others run as ever."""

from __future__ import annotations

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from inductor_cpu import config
from inductor_cpu.ir.plan import (
    REDZONE,
    Alloc,
    ArenaRef,
    ExecutionPlan,
    Free,
    Guard,
    KernelCall,
    LoadInput,
    Slot,
    Unguard,
)
from inductor_cpu.runtime import executor as native
from tests.e2e.support import compile_counted
from tests.runtime.conftest import Load
from tests.runtime.support import ADD_ONE, F32, kernel

WILD = kernel("((float*)p[0])[n[0]] = 1.0f;", "wild")
"""Writes one float at index n[0] of its buffer."""

BYTES = 40


@pytest.fixture
def run(executor: ModuleType, load: Load) -> Any:
    addresses = load(WILD, ADD_ONE)

    def call(*instructions: Any, results: tuple[Any, ...] = (), inputs: tuple[Any, ...] = ()) -> list[Any]:
        plan = ExecutionPlan(4, 1, 1024, 0, (), instructions, results, REDZONE)
        return native.build(plan, addresses, executor)(list(inputs))

    return call


def wild(where: Slot | ArenaRef, index: int) -> KernelCall:
    return KernelCall(WILD.symbol, WILD.label, (where,), (index,))


compares_zones = pytest.mark.skipif(
    config.snapshot().cpp.sanitize, reason="AddressSanitizer watches the zones and reports what these kernels do"
)

OUTSIDE = [
    (BYTES // 4, "the kernel wild wrote 0 bytes after the end of the buffer buf0"),
    (BYTES // 4 + 5, "the kernel wild wrote 20 bytes after the end of the buffer buf0"),
    (BYTES // 4 + 21, "the kernel wild wrote 84 bytes after the end of the buffer buf0"),
    (-1, "the kernel wild wrote 1 bytes before the start of the buffer buf0"),
    (-16, "the kernel wild wrote 61 bytes before the start of the buffer buf0"),
]


@compares_zones
@pytest.mark.parametrize(("index", "message"), OUTSIDE)
def test_a_write_outside_of_a_buffer_of_the_arena_is_caught(run: Any, index: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message.replace("the kernel ", "")):
        run(Guard("buf0", 128, BYTES), wild(ArenaRef(128), index))


@compares_zones
@pytest.mark.parametrize(("index", "message"), OUTSIDE)
def test_a_write_outside_of_an_output_is_caught(run: Any, index: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message.replace("the kernel ", "")):
        run(Alloc(Slot(0), F32, (10,), (1,), "buf0"), wild(Slot(0), index), results=(Slot(0),))


@pytest.mark.parametrize("index", [0, 9])
def test_writes_inside_are_right(run: Any, index: int) -> None:
    out = Alloc(Slot(0), F32, (10,), (1,), "out")
    (result,) = run(
        Guard("buf0", 128, BYTES), wild(ArenaRef(128), index), out, wild(Slot(0), index), results=(Slot(0),)
    )
    assert result[index] == 1
    assert result.storage_offset() == 0
    assert result.untyped_storage().nbytes() == BYTES


def test_memory_that_is_guarded_no_longer_may_be_used_again(run: Any) -> None:
    run(
        Guard("first", 128, BYTES),
        Unguard(128),
        Guard("second", 256, BYTES),
        wild(ArenaRef(256), 0),
        wild(ArenaRef(128), 0),
    )
    x = torch.zeros(4)
    run(
        LoadInput(Slot(0), 0),
        Alloc(Slot(1), F32, (4,), (1,), "one"),
        Free((Slot(1),)),
        Alloc(Slot(1), F32, (4,), (1,), "two"),
        KernelCall(ADD_ONE.symbol, "add", (Slot(0), Slot(1)), (4,)),
        inputs=(x,),
    )


@compares_zones
def test_a_buffer_in_the_place_of_another_is_guarded_with_its_own_size(run: Any) -> None:
    run(Guard("first", 128, BYTES), Guard("second", 128, BYTES + 4), wild(ArenaRef(128), BYTES // 4))
    with pytest.raises(RuntimeError, match="the buffer second"):
        run(Guard("first", 128, BYTES + 4), Guard("second", 128, BYTES), wild(ArenaRef(128), BYTES // 4))


class Model(nn.Module):
    """Externs, reductions, in-place results, sizes that are not multiples of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.linear = nn.Linear(5, 7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x).relu().sin()
        z = (y.mean((2, 3)) * 2).softmax(1)
        return self.linear(z + y.sum((2, 3))).cumsum(1).exp(), y.transpose(1, 3) + 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_runs_right_with_red_zones(dynamic: bool, tmp_path: Path) -> None:
    model = Model().eval()
    with config.patch({"debug_redzones": True, "dump": str(tmp_path)}):
        compiled, _ = compile_counted(model, dynamic=dynamic)
        for size in (9, 13):
            x = torch.randn(2, 3, size, size)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    plans = "\n".join(path.read_text() for path in tmp_path.rglob("*codegen.txt"))
    guarded = [line.split()[-1] for line in plans.splitlines() if line.startswith("guard ")]
    freed = [line.split()[-1] for line in plans.splitlines() if line.startswith("unguard ")]
    assert guarded
    assert set(freed) == set(guarded)


def test_training_runs_right_with_red_zones() -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 3, 9, 9)
    double = copy.deepcopy(model).double()
    exact = torch.autograd.grad(sum(y.sum() for y in double(x.double())), list(double.parameters()))
    eager = torch.autograd.grad(sum(y.sum() for y in model(x)), list(model.parameters()))
    with config.patch(debug_redzones=True):
        compiled, _ = compile_counted(model)
        got = torch.autograd.grad(sum(y.sum() for y in compiled(x)), list(model.parameters()))
    for ours, theirs, value in zip(got, eager, exact, strict=True):
        allowed = 3 * (theirs - value).abs().max() + 1e-6 * value.abs().max()
        assert (ours - value).abs().max() <= allowed
