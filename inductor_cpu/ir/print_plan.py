"""The text of execution plans."""

from __future__ import annotations

from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.plan import (
    Alloc,
    ArenaRef,
    ArenaView,
    Compute,
    ExecutionPlan,
    ExternCall,
    Free,
    Guard,
    KernelCall,
    KernelSource,
    LoadInput,
    LoadInt,
    Reg,
    Restride,
    SizeOf,
    Slot,
    SlotRef,
    StridedView,
    StrideOf,
    Unguard,
)
from inductor_cpu.ir.show import dtype_name, list_of, show


@show.register
def _(value: Expr) -> str:
    return repr(value)


@show.register
def _(value: Slot) -> str:
    return f"t{value.index}"


@show.register
def _(value: Reg) -> str:
    return f"r{value.index}"


@show.register
def _(value: ArenaRef) -> str:
    return f"arena+{show(value.offset)}"


@show.register
def _(value: SlotRef) -> str:
    return f"{show(value.slot)}+{show(value.offset)}"


@show.register
def _(value: LoadInput) -> str:
    return f"{show(value.slot)} = input {value.position}"


@show.register
def _(value: LoadInt) -> str:
    return f"{show(value.reg)} = input {value.position}"


@show.register
def _(value: SizeOf) -> str:
    return f"{show(value.reg)} = size({show(value.slot)}, {value.dim})"


@show.register
def _(value: StrideOf) -> str:
    return f"{show(value.reg)} = stride({show(value.slot)}, {value.dim})"


@show.register
def _(value: Compute) -> str:
    return f"{show(value.reg)} = {value.op}({show(value.left)}, {show(value.right)})"


def _shape(value: Alloc | ArenaView | StridedView | Restride) -> str:
    return f"[{list_of(value.sizes)}; {list_of(value.strides)}]"


@show.register
def _(value: Alloc) -> str:
    return f"{show(value.slot)} = alloc {dtype_name(value.dtype)}{_shape(value)}"


@show.register
def _(value: ArenaView) -> str:
    return f"{show(value.slot)} = arena+{show(value.offset)} as {dtype_name(value.dtype)}{_shape(value)}"


@show.register
def _(value: StridedView) -> str:
    return f"{show(value.slot)} = {show(value.base)}+{show(value.offset)}{_shape(value)}"


@show.register
def _(value: KernelCall) -> str:
    ints = f"; {list_of(value.ints)}" if value.ints else ""
    return f"kernel {value.label}({list_of(value.pointers)}{ints})  # {value.symbol}"


@show.register
def _(value: ExternCall) -> str:
    args = ", ".join([*map(show, value.args), *(f"{key}={show(item)}" for key, item in value.kwargs)])
    outputs = ", ".join("_" if output is None else show(output) for output in value.outputs)
    return f"{outputs} = {value.label}({args})  # {value.reason}"


@show.register
def _(value: Restride) -> str:
    dtype = "" if value.dtype is None else dtype_name(value.dtype)
    return f"restride {show(value.slot)} to {dtype}{_shape(value)}"


@show.register
def _(value: Guard) -> str:
    return f"guard {value.label}: {show(value.bytes)} bytes at arena+{show(value.offset)}"


@show.register
def _(value: Unguard) -> str:
    return f"unguard arena+{show(value.offset)}"


@show.register
def _(value: Free) -> str:
    return f"free {list_of(value.slots)}"


@show.register
def _(value: KernelSource) -> str:
    return f"// {value.label}\n{value.code}"


@show.register
def _(value: ExecutionPlan) -> str:
    lines = [f"plan: {value.slots} slots, {value.registers} registers"]
    for slot, tensor in value.constants:
        lines.append(f"{show(slot)} = constant {dtype_name(tensor.dtype)}[{list_of(tensor.shape)}]")
    for position, instruction in enumerate(value.instructions):
        if position == value.arena_at:
            lines.append(f"arena {show(value.arena_bytes)} bytes")
        lines.append(show(instruction))
    return "\n".join([*lines, f"return {list_of(value.results)}"]) + "\n"
