"""`show`: readable text of any IR value, and what its parts share.

The text of a type is registered in `print_program.py` and `print_plan.py`; `printer.py` is `show` with all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

import torch

from inductor_cpu.ir.index import Sym

_SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float8_e4m3fn: "f8_e4m3fn",
    torch.float8_e5m2: "f8_e5m2",
    torch.float8_e4m3fnuz: "f8_e4m3fnuz",
    torch.float8_e5m2fnuz: "f8_e5m2fnuz",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}


def dtype_name(dtype: torch.dtype) -> str:
    """A short name: f32, bf16, i64, bool, ..."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


@singledispatch
def show(value: Any) -> str:
    """Text for people of a Program, LoopNest, Kernel, Schedule, ExecutionPlan or anything inside them."""
    if isinstance(value, (tuple, list)):
        return f"({list_of(value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return str(value) if isinstance(value, torch._ops.OpOverload) or callable(value) else repr(value)


def list_of(values: Iterable[Any]) -> str:
    """Values with commas between them."""
    return ", ".join(map(show, values))


def loops_of(loops: Sequence[Sym]) -> str:
    """Loops and their sizes."""
    return ", ".join(f"{loop} < {loop.size}" for loop in loops)


def origins_of(origins: Sequence[str]) -> str:
    """Which nodes of the graph something comes from, as a comment."""
    return f"  # from {', '.join(origins)}" if origins else ""
