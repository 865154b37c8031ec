"""Kernels and plans for the tests of the runtime."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from inductor_cpu.ir.plan import ExecutionPlan, ExternCall, IntLike, KernelSource, Slot
from inductor_cpu.runtime import executor as native
from inductor_cpu.runtime.cache import content_key, open_cache
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.reference import ReferenceRun
from inductor_cpu.runtime.toolchain import Toolchain

# A prelude that compiles in no time: what the runtime does is not about its content.
PRELUDE = "#pragma once\n#include <stdint.h>\n#include <omp.h>\n#include <unistd.h>\n#define PRELUDE_WAS_HERE 1\n"


def kernel(body: str, label: str = "test_kernel") -> KernelSource:
    """A kernel with arguments `void* const* p` and `const int64_t* n`."""
    symbol = f"icpu_{content_key(body)[:16]}"
    return KernelSource(
        symbol, label, f'extern "C" int64_t {symbol}(void* const* p, const int64_t* n) {{ {body} return 0; }}'
    )


ADD_ONE = kernel("for (int64_t i = 0; i < n[0]; ++i) ((float*)p[1])[i] = ((const float*)p[0])[i] + 1.0f;", "add_one")
SCALE = kernel("for (int64_t i = 0; i < n[0]; ++i) ((float*)p[1])[i] = ((const float*)p[0])[i] * n[1];", "scale")
THREADS = kernel("*(int64_t*)p[0] = omp_get_max_threads();", "threads")
SLEEP = kernel("usleep(n[0]);", "sleep")


aten = torch.ops.aten
F32 = torch.float32
FIRST = Slot(1)


def make_plan(
    *instructions: Any,
    results: tuple[Any, ...],
    slots: int = 8,
    registers: int = 8,
    arena_bytes: IntLike = 0,
    arena_at: int = 0,
    constants: tuple[tuple[Slot, torch.Tensor], ...] = (),
) -> ExecutionPlan:
    return ExecutionPlan(slots, registers, arena_bytes, arena_at, constants, instructions, results)


def extern(target: Any, *args: Any, out: Any = (FIRST,), **kwargs: Any) -> ExternCall:
    return ExternCall(target, args, tuple(kwargs.items()), tuple(out), str(target), "test")


def copy_of_executor(toolchain: Toolchain, folder: Path) -> ModuleType:
    """The executor once more, from a file of its own, and without an operators library."""
    copy = folder / "executor.so"
    shutil.copy(native.build_executor(open_cache(), toolchain, ProcessGroup()), copy)
    return native._load("executor", copy)


class Runner:
    """Runs plans by the native executor and checks the reference against it."""

    def __init__(self, module: ModuleType, addresses: dict[str, int]) -> None:
        self.module, self.addresses = module, addresses

    def load(self, plan: ExecutionPlan, profile: bool = False) -> native.RunnablePlan:
        return native.build(plan, self.addresses, self.module, profile)

    def __call__(self, plan: ExecutionPlan, *inputs: Any) -> list[Any]:
        got = self.load(plan)(list(inputs))
        expected = ReferenceRun(plan, self.addresses, list(inputs)).run()
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert type(a) is type(b)
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
                assert a.stride() == b.stride()
            else:
                assert a == b
        return got
