"""The same plan, run by readable Python. Tests compare the native executor with it; nothing else uses it."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from inductor_cpu.ir import plan as p
from inductor_cpu.ir.strided import with_strides

_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
}
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))


class ReferenceRun:
    """One call of `plan` with `inputs`. `run` returns the results as a list."""

    def __init__(self, plan: p.ExecutionPlan, addresses: Mapping[str, int], inputs: list[Any]) -> None:
        self.plan = plan
        self.addresses = addresses
        self.inputs = inputs
        self.slots: list[torch.Tensor | None] = [None] * plan.slots
        self.registers = [0] * plan.registers
        self.arena = torch.empty(0, dtype=torch.uint8)
        for slot, tensor in plan.constants:
            self.slots[slot.index] = tensor

    @torch.no_grad()
    def run(self) -> list[Any]:
        """Every instruction in order, then the results."""
        for position, instruction in enumerate(self.plan.instructions):
            if position == self.plan.arena_at:
                self.arena = torch.empty(self.value(self.plan.arena_bytes), dtype=torch.uint8)
            getattr(self, f"run_{type(instruction).__name__}")(instruction)
        return [self.leaf(result) for result in self.plan.results]

    def value(self, number: p.IntLike) -> int:
        return self.registers[number.index] if isinstance(number, p.Reg) else number

    def values(self, numbers: tuple[p.IntLike, ...]) -> list[int]:
        return [self.value(number) for number in numbers]

    def tensor(self, slot: p.Slot) -> torch.Tensor:
        tensor = self.slots[slot.index]
        assert tensor is not None, f"slot {slot.index} is empty"
        return tensor

    def leaf(self, value: Any) -> Any:
        """`value` with slots and registers replaced by what they hold."""
        if isinstance(value, p.Slot):
            return self.slots[value.index]
        if isinstance(value, p.Reg):
            return self.registers[value.index]
        if isinstance(value, (tuple, list)):
            return type(value)(self.leaf(item) for item in value)
        if isinstance(value, dict):
            return {key: self.leaf(item) for key, item in value.items()}
        return value

    def address(self, pointer: p.Slot | p.SlotRef | p.ArenaRef) -> int:
        """Where a pointer of a kernel points."""
        if isinstance(pointer, p.Slot):
            return self.tensor(pointer).data_ptr()
        start = self.tensor(pointer.slot) if isinstance(pointer, p.SlotRef) else self.arena
        return start.data_ptr() + self.value(pointer.offset)

    def run_LoadInput(self, i: p.LoadInput) -> None:  # noqa: N802  (named after the instruction)
        self.slots[i.slot.index] = self.inputs[i.position]

    def run_LoadInt(self, i: p.LoadInt) -> None:  # noqa: N802
        self.registers[i.reg.index] = int(self.inputs[i.position])

    def run_SizeOf(self, i: p.SizeOf) -> None:  # noqa: N802
        self.registers[i.reg.index] = self.tensor(i.slot).size(i.dim)

    def run_StrideOf(self, i: p.StrideOf) -> None:  # noqa: N802
        self.registers[i.reg.index] = self.tensor(i.slot).stride(i.dim)

    def run_Compute(self, i: p.Compute) -> None:  # noqa: N802
        self.registers[i.reg.index] = _ARITHMETIC[i.op](self.value(i.left), self.value(i.right))

    def run_Alloc(self, i: p.Alloc) -> None:  # noqa: N802
        self.slots[i.slot.index] = torch.empty_strided(self.values(i.sizes), self.values(i.strides), dtype=i.dtype)

    def run_ArenaView(self, i: p.ArenaView) -> None:  # noqa: N802
        start = self.value(i.offset)
        whole = self.arena[start : start + (self.arena.numel() - start) // i.dtype.itemsize * i.dtype.itemsize]
        self.slots[i.slot.index] = whole.view(i.dtype).as_strided(self.values(i.sizes), self.values(i.strides))

    def run_StridedView(self, i: p.StridedView) -> None:  # noqa: N802
        base = self.tensor(i.base)
        offset = base.storage_offset() + self.value(i.offset)
        self.slots[i.slot.index] = base.as_strided(self.values(i.sizes), self.values(i.strides), offset)

    def run_KernelCall(self, i: p.KernelCall) -> None:  # noqa: N802
        addresses = [self.address(x) for x in i.pointers]
        ints = self.values(i.ints)
        kernel = _KERNEL(self.addresses[i.symbol])
        status = kernel((ctypes.c_void_p * len(addresses))(*addresses), (ctypes.c_int64 * len(ints))(*ints))
        if status & 1:
            raise IndexError(f"index out of range in {i.label}")
        if status & 4:
            raise RuntimeError(f"index or value out of range in {i.label}")
        if status & 2:
            raise RuntimeError("ZeroDivisionError")

    def run_ExternCall(self, i: p.ExternCall) -> None:  # noqa: N802
        result = i.target(*self.leaf(i.args), **{name: self.leaf(value) for name, value in i.kwargs})
        flat = _flatten(result) if not (result is None and not i.outputs) else []
        assert len(flat) == len(i.outputs), f"{i.label}: {len(flat)} results for {len(i.outputs)} outputs"
        for output, value in zip(i.outputs, flat, strict=True):
            if isinstance(output, p.Slot):
                self.slots[output.index] = value
            elif isinstance(output, p.Reg):
                self.registers[output.index] = int(value)

    def run_Restride(self, i: p.Restride) -> None:  # noqa: N802
        given, sizes, strides = self.tensor(i.slot), self.values(i.sizes), self.values(i.strides)
        if i.dtype is None and list(given.shape) != sizes:
            return
        assert list(given.shape) == sizes, f"an operator returned sizes {list(given.shape)} for {sizes}"
        if i.dtype is not None and given.dtype != i.dtype:
            given = self.slots[i.slot.index] = given.to(i.dtype)
        same = all(n <= 1 or a == b for n, a, b in zip(given.shape, given.stride(), strides, strict=True))
        if not same or given.is_conj() or given.is_neg():
            self.slots[i.slot.index] = with_strides(given, strides)

    def run_Guard(self, i: p.Guard) -> None:  # noqa: N802
        """Nothing: the executor checks red zones."""

    def run_Unguard(self, i: p.Unguard) -> None:  # noqa: N802
        """Nothing: the executor checks red zones."""

    def run_Free(self, i: p.Free) -> None:  # noqa: N802
        constants = {slot for slot, _ in self.plan.constants}  # these live as long as the plan
        for slot in set(i.slots) - constants:
            self.slots[slot.index] = None


def _flatten(value: Any) -> list[Any]:
    return [x for item in value for x in _flatten(item)] if isinstance(value, (tuple, list)) else [value]
