"""The execution plan: what the native executor runs for one graph. Data, not code.

A plan works on three stores, all private to one call:

* slots: tensors (inputs, constants, extern results, outputs, views made for extern calls);
* registers: int64 values (size symbols and what is computed from them);
* one arena: the memory of every intermediate buffer, a single block of `arena_bytes`.

Wherever an int is expected, a `Reg` may stand for it (`IntLike`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import torch

REDZONE = 64
"""Bytes of a red zone (`ExecutionPlan.redzone`), which keep the alignment of a buffer."""


@dataclass(frozen=True)
class Slot:
    """A tensor slot, by number."""

    index: int


@dataclass(frozen=True)
class Reg:
    """An int64 register, by number."""

    index: int


IntLike = Union[int, Reg]


@dataclass(frozen=True)
class ArenaRef:
    """A pointer into the arena: `offset` bytes from its start."""

    offset: IntLike


@dataclass(frozen=True)
class SlotRef:
    """A pointer into the memory of the tensor in `slot`: `offset` bytes from its first element."""

    slot: Slot
    offset: IntLike


@dataclass(frozen=True)
class LoadInput:
    """slot <- graph input number `position`, a tensor."""

    slot: Slot
    position: int


@dataclass(frozen=True)
class LoadInt:
    """reg <- graph input number `position`, a Python int (or bool)."""

    reg: Reg
    position: int


@dataclass(frozen=True)
class SizeOf:
    """reg <- size of dimension `dim` of the tensor in `slot`."""

    reg: Reg
    slot: Slot
    dim: int


@dataclass(frozen=True)
class StrideOf:
    """reg <- stride, in elements, of dimension `dim` of the tensor in `slot`."""

    reg: Reg
    slot: Slot
    dim: int


@dataclass(frozen=True)
class Compute:
    """reg <- left op right, with op one of add, sub, mul, floordiv, mod, min, max (Python's floor semantics),
    eq, ne, lt, le (0 or 1)."""

    reg: Reg
    op: str
    left: IntLike
    right: IntLike


@dataclass(frozen=True)
class Alloc:
    """slot <- a new uninitialised CPU tensor; sizes and strides in elements. Used for outputs.

    `label` is for people."""

    slot: Slot
    dtype: torch.dtype
    sizes: tuple[IntLike, ...]
    strides: tuple[IntLike, ...]
    label: str = ""


@dataclass(frozen=True)
class ArenaView:
    """slot <- a tensor over arena memory at `offset` bytes; it must not outlive the call."""

    slot: Slot
    offset: IntLike
    dtype: torch.dtype
    sizes: tuple[IntLike, ...]
    strides: tuple[IntLike, ...]


@dataclass(frozen=True)
class StridedView:
    """slot <- a view of `base` (same storage); `offset` in elements, added to base's own storage offset."""

    slot: Slot
    base: Slot
    sizes: tuple[IntLike, ...]
    strides: tuple[IntLike, ...]
    offset: IntLike


@dataclass(frozen=True)
class KernelCall:
    """Call `int64_t symbol(void* const* pointers, const int64_t* ints)`; a Slot gives its tensor's data pointer.

    The kernel returns 0, or a sum of 1 (a data-dependent index was out of range: the executor raises IndexError,
    "index out of range in <label>"), 4 (an index or a value, as a RuntimeError) and 2 (an integer division by zero:
    RuntimeError, "ZeroDivisionError"). `label` is what the profiler shows."""

    symbol: str
    label: str
    pointers: tuple[Slot | SlotRef | ArenaRef, ...]
    ints: tuple[IntLike, ...]


@dataclass(frozen=True)
class ExternCall:
    """Call an operator through the dispatcher.

    `target` is an OpOverload (or any Python callable, for higher-order operators). `args` and `kwargs` are nested
    tuples, lists and dicts of constants, Slots and Regs. `outputs` matches the operator's results in order: a Slot
    (tensor), a Reg (int or bool result), or None (dropped). A result that is itself a list of tensors is flattened
    into consecutive outputs. `reason` says why ATen is called."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outputs: tuple[Slot | Reg | None, ...]
    label: str
    reason: str


@dataclass(frozen=True)
class Restride:
    """If the tensor in `slot` has other strides than these (in dimensions larger than 1) or is not materialised
    (lazy conj/neg bit), replace it by a copy that has them. Kernels rely on the strides of extern results.

    dtype: what kernels and views take it for; other sizes are an error then, and another dtype is converted. None:
    only operators and the caller get it, and what does not have these sizes stays as the operator made it."""

    slot: Slot
    sizes: tuple[IntLike, ...]
    strides: tuple[IntLike, ...]
    dtype: torch.dtype | None = None


@dataclass(frozen=True)
class Guard:
    """From now on the red zones before and after arena memory (`bytes` at `offset`) are checked after each call of a
    kernel or an operator. What was guarded at that offset is guarded no longer. `label` names it in the error."""

    label: str
    offset: IntLike
    bytes: IntLike


@dataclass(frozen=True)
class Unguard:
    """The red zones of the memory at this offset of the arena are checked no longer."""

    offset: IntLike


@dataclass(frozen=True)
class Free:
    """Drop the tensors in these slots."""

    slots: tuple[Slot, ...]


Instruction = Union[
    LoadInput,
    LoadInt,
    SizeOf,
    StrideOf,
    Compute,
    Alloc,
    ArenaView,
    StridedView,
    KernelCall,
    ExternCall,
    Restride,
    Guard,
    Unguard,
    Free,
]


@dataclass(frozen=True)
class ExecutionPlan:
    """`results` are what the graph returns, in order: Slot (tensor), Reg (int), or None / a Python constant.

    `constants` are tensors put into their slots before the first instruction. `arena_bytes` is evaluated after
    the instructions before `arena_at` ran (sizes must be known), i.e. the arena is acquired at that position.

    `redzone`: bytes of guard memory before and after what `Alloc` and `Guard` name; 0 for none."""

    slots: int
    registers: int
    arena_bytes: IntLike
    arena_at: int
    constants: tuple[tuple[Slot, torch.Tensor], ...]
    instructions: tuple[Instruction, ...]
    results: tuple[Any, ...]
    redzone: int = 0


@dataclass(frozen=True)
class Instance:
    """A function template with its arguments, which kernels with different text call: it can be compiled once for all.

    headers: what declares it, relative to the folder of the prelude; declaration: its C++, without `template` before
    and a semicolon behind it. The function is not inline: C++ compiles inline ones in each unit again."""

    headers: tuple[str, ...]
    declaration: str


@dataclass(frozen=True)
class KernelSource:
    """One C++ kernel. `symbol` is `icpu_` and a content hash, so equal kernels share a symbol; `code` is the complete
    definition of that extern "C" function, with the headers that it needs besides the prelude; `label` is for people;
    `instances` are of the templates that it calls."""

    symbol: str
    label: str
    code: str
    instances: tuple[Instance, ...] = ()
