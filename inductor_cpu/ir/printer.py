"""Readable text of every IR value: `show`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import singledispatch
from textwrap import indent
from typing import Any

import torch

from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel, Product, Schedule, Scored, Strips
from inductor_cpu.ir.loop_nest import (
    Buffer,
    Cast,
    Const,
    Index,
    Instr,
    Load,
    LoopNest,
    Reduce,
    Scalar,
    Scan,
    Store,
    View,
)
from inductor_cpu.ir.nodes import (
    Attention,
    AttentionBackward,
    Extern,
    Gemm,
    InputSpec,
    Patches,
    Program,
    Ranking,
    SizeBinding,
)
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
        return f"({_list(value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return str(value) if isinstance(value, torch._ops.OpOverload) or callable(value) else repr(value)


def _list(values: Iterable[Any]) -> str:
    return ", ".join(map(show, values))


def _loops(loops: Sequence[Sym]) -> str:
    return ", ".join(f"{loop} < {loop.size}" for loop in loops)


def _from(origins: Sequence[str]) -> str:
    return f"  # from {', '.join(origins)}" if origins else ""


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


# -- bodies ----------------------------------------------------------------------------------------------------------
def _mask(mask: int | None) -> str:
    return "" if mask is None else f" if %{mask}"


@show.register
def _(value: Const) -> str:
    return f"const {dtype_name(value.dtype)} {value.value!r}"


@show.register
def _(value: Index) -> str:
    return f"index {'' if value.dtype == torch.int64 else dtype_name(value.dtype) + ' '}{value.expr}"


@show.register
def _(value: Load) -> str:
    fill = "" if value.mask is None else f" else {value.fill!r}"
    return f"load {dtype_name(value.dtype)} {value.buffer}[{_list(value.index)}]{_mask(value.mask)}{fill}"


@show.register
def _(value: Scalar) -> str:
    return f"{value.op} {dtype_name(value.dtype)} " + ", ".join(f"%{arg}" for arg in value.args)


@show.register
def _(value: Cast) -> str:
    return f"cast {dtype_name(value.dtype)} %{value.arg}"


@show.register
def _(value: Reduce) -> str:
    return f"reduce {value.kind} {dtype_name(value.dtype)} %{value.arg}"


@show.register
def _(value: Scan) -> str:
    return f"scan {value.kind} {dtype_name(value.dtype)} %{value.arg}"


@show.register
def _(value: Store) -> str:
    sign = "+=" if value.mode == "add" else "="
    return f"store {value.buffer}[{_list(value.index)}] {sign} %{value.value}{_mask(value.mask)}"


def _body(body: Sequence[Instr]) -> list[str]:
    return [f"%{position} = {show(instr)}" for position, instr in enumerate(body)]


# -- programs --------------------------------------------------------------------------------------------------------
@show.register
def _(value: LoopNest) -> str:
    head = [value.name]
    if value.dims:
        head.append(f"for {_loops(value.dims)}")
    if value.reduce_dims:
        head.append(f"reduce {_loops(value.reduce_dims)}")
    lines = [f"{' '.join(head)}:{_from(value.origins)}", *(f"  {line}" for line in _body(value.body))]
    return "\n".join([*lines, *(f"  {show(store)}" for store in value.stores)])


@show.register
def _(value: View) -> str:
    offset = "" if value.offset == 0 else f" + {value.offset}"
    return f"{value.buffer}{offset}[{_list(value.sizes)}; {_list(value.strides)}]"


@show.register
def _(value: Extern) -> str:
    args = ", ".join([*map(show, value.args), *(f"{key}={show(item)}" for key, item in value.kwargs)])
    ints = dict(value.int_outputs)
    outputs = ", ".join(
        name if name is not None else str(ints.get(position, "_")) for position, name in enumerate(value.outputs)
    )
    notes = [f"mutates {', '.join(value.mutates)}"] * bool(value.mutates) + ["ordered"] * value.ordered
    tail = f" ({'; '.join(notes)})" if notes else ""
    return f"{value.name}: {outputs} = {show(value.target)}({args}){tail}  # {value.reason}{_also(value.origins)}"


@show.register
def _(value: Patches) -> str:
    windows = [
        f"{name} {_list(getattr(value, name))}" for name in ("kernel", "stride", "padding", "dilation", "outputs")
    ]
    if value.pieces.count > 1:
        windows.append(f"in {value.pieces.count} pieces of {value.pieces.values}")
    return f"windows of {show(value.image)} ({'; '.join(windows)})"


@show.register
def _(value: Gemm) -> str:
    return f"{value.name}: {value.accumulator} = {value.micro_kernel} {show(value.a)} @ {value.b}{_from(value.origins)}"


def _kept(value: Attention | AttentionBackward) -> str:
    return "" if value.kept is None else f", kept {show(value.kept)} of {value.keep}"


@show.register
def _(value: Attention) -> str:
    mask = "" if value.mask is None else f" + {show(value.mask)}"
    flags = ", causal" * value.causal + ", nan rows" * value.nan_rows + _kept(value)
    scores = "" if value.scores is None else f", its scores as by\n{indent(show(value.scores), '  ')}"
    return (
        f"{value.name}: {', '.join(value.outputs)} = {value.kernel} softmax({show(value.q)} @ {show(value.k)}^T"
        f" * {value.scale}{mask}{flags}) @ {show(value.v)}{_from(value.origins)}{scores}"
    )


@show.register
def _(value: AttentionBackward) -> str:
    flags = ("" if value.mask is None else f" + {show(value.mask)}") + ", causal" * value.causal + _kept(value)
    return (
        f"{value.name}: {', '.join(value.outputs)} = {value.kernel} gradients by {show(value.grad_out)} of"
        f" {show(value.out)}, {show(value.log_sums)} = softmax({show(value.q)} @ {show(value.k)}^T"
        f" * {value.scale}{flags}) @ {show(value.v)}{_from(value.origins)}"
    )


@show.register
def _(value: Scored) -> str:
    place = ", ".join(str(symbol) for symbol in value.block)
    kernel = indent(show(value.kernel), "  ")
    return f"{show(replace(value.attention, scores=None))}, its scores by blocks ({place}) as by\n{kernel}"


@show.register
def _(value: Ranking) -> str:
    order = "largest first" if value.largest else "smallest first"
    what = f"the first {value.count} of" if value.kind == "top" else "all of"
    return f"{value.name}: {', '.join(value.outputs)} = {what} {show(value.x)}, {order}{_from(value.origins)}"


def _also(origins: Sequence[str]) -> str:
    return f"; from {', '.join(origins)}" if origins else ""


@show.register
def _(value: Buffer) -> str:
    place = "" if value.alias_of is None else f" = {value.alias_of} + {value.offset}"
    shape = f"[{_list(value.sizes)}; {_list(value.strides)}]"
    return f"{value.kind} {value.name}: {dtype_name(value.dtype)}{shape}{place}"


@show.register
def _(value: InputSpec) -> str:
    return f"{value.position} -> {value.buffer or value.symbol or '_'}"


@show.register
def _(value: SizeBinding) -> str:
    return f"{value.symbol} = {value.buffer}.{value.what}({value.dim})"


@show.register
def _(value: Program) -> str:
    lines = [f"program {value.name}", f"inputs: {_list(value.inputs)}"]
    if value.bindings:
        lines.append(f"sizes: {_list(value.bindings)}")
    lines += [show(buffer) for buffer in value.buffers]
    lines += [show(node) for node in value.nodes]
    return "\n".join([*lines, f"return {_list(value.results)}"]) + "\n"


# -- kernels ---------------------------------------------------------------------------------------------------------
@show.register
def _(value: Kernel) -> str:
    access = {True: {True: "inout", False: "in"}, False: {True: "out", False: "unused"}}
    args = [f"{access[arg.reads][arg.writes]} {dtype_name(arg.dtype)} {arg.buffer}" for arg in value.args]
    lines = [f"kernel {value.label}({', '.join([*args, *map(str, value.sizes)])}):{_from(value.origins)}"]
    if value.product is not None:
        lines.append(f"  {show(value.product)}")
    if value.outer:
        threads = f"  # {value.parallel} parallel, work {value.work}" if value.parallel else "  # serial"
        lines.append(f"  outer {_loops(value.outer)}{threads}")
    if value.inner:
        lines.append(f"  inner {_loops(value.inner)}")
    lines += _vector(value)
    lines += [f"  {line}" for line in _body(value.body)]
    phased = {number for phase in value.phases for number in phase.stores}
    for number, phase in enumerate(value.phases):
        parts = [f"%{position}" for position in phase.reduces] + [f"store {store}" for store in phase.stores]
        lines.append(f"  phase {number}: {', '.join(parts)}")
    if value.kept:
        lines.append(f"  kept {', '.join(f'%{position}' for position in value.kept)}")
    for number, store in enumerate(value.stores):
        level = "" if not value.inner else "inner " if number in phased else "outer "
        lines.append(f"  {number}: {level}{show(store)}")
    return "\n".join(lines)


@show.register
def _(value: Strips) -> str:
    shares = ", ".join(map(str, value.shares))
    lines = [f"strips: {value.units} units ({shares} points of the kernels), {value.piece} at a time"]
    lines += [f"  local {name}: {elements} elements a unit" for name, elements in value.local]
    return "\n".join([*lines, *(f"  {line}" for kernel in value.kernels for line in show(kernel).split("\n"))])


@show.register
def _(value: Product) -> str:
    place = ", ".join(map(str, value.symbols))
    return f"product {value.accumulator} = {value.micro_kernel} {show(value.a)} @ {value.b}, by blocks ({place})"


def _vector(kernel: Kernel) -> list[str]:
    plan = kernel.vector
    why = f"  # {'; '.join(plan.reasons)}" if plan.reasons else ""
    if plan.loop is None:
        return [f"  scalar{why}"]
    access = ", ".join(f"{f'%{at}' if at >= 0 else f'store {-1 - at}'} {kind}" for at, kind in plan.access)
    lanewise = f"; lane by lane {', '.join(f'%{position}' for position in plan.lanewise)}" if plan.lanewise else ""
    return [f"  vector {plan.loop} x {plan.lanes}: {access}{lanewise}{why}"]


@show.register
def _(value: Schedule) -> str:
    lines = [f"schedule {value.program.name}: {len(value.steps)} steps, arena {value.arena_bytes} bytes"]
    for name, place in value.places:
        lines.append(f"{show(value.program.buffer(name))} at {place.offset}")
    lines += [show(step) for step in value.steps]
    lines += [f"note: {note}" for note in value.notes]
    return "\n".join([*lines, f"return {_list(value.program.results)}"]) + "\n"


# -- execution plans -------------------------------------------------------------------------------------------------
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
    return f"[{_list(value.sizes)}; {_list(value.strides)}]"


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
    ints = f"; {_list(value.ints)}" if value.ints else ""
    return f"kernel {value.label}({_list(value.pointers)}{ints})  # {value.symbol}"


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
    return f"free {_list(value.slots)}"


@show.register
def _(value: KernelSource) -> str:
    return f"// {value.label}\n{value.code}"


@show.register
def _(value: ExecutionPlan) -> str:
    lines = [f"plan: {value.slots} slots, {value.registers} registers"]
    for slot, tensor in value.constants:
        lines.append(f"{show(slot)} = constant {dtype_name(tensor.dtype)}[{_list(tensor.shape)}]")
    for position, instruction in enumerate(value.instructions):
        if position == value.arena_at:
            lines.append(f"arena {show(value.arena_bytes)} bytes")
        lines.append(show(instruction))
    return "\n".join([*lines, f"return {_list(value.results)}"]) + "\n"
