"""The text of loop nests, programs, kernels and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent

import torch

from inductor_cpu.ir.kernel import Divided, Kernel, Listed, Product, Schedule, Scored, Strips
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
    TilePacking,
    WeightGradient,
)
from inductor_cpu.ir.show import dtype_name, list_of, loops_of, origins_of, show


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
    return f"load {dtype_name(value.dtype)} {value.buffer}[{list_of(value.index)}]{_mask(value.mask)}{fill}"


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
    return f"store {value.buffer}[{list_of(value.index)}] {sign} %{value.value}{_mask(value.mask)}"


def _body(body: Sequence[Instr]) -> list[str]:
    return [f"%{position} = {show(instr)}" for position, instr in enumerate(body)]


# -- programs --------------------------------------------------------------------------------------------------------
@show.register
def _(value: LoopNest) -> str:
    head = [value.name]
    if value.dims:
        head.append(f"for {loops_of(value.dims)}")
    if value.reduce_dims:
        head.append(f"reduce {loops_of(value.reduce_dims)}")
    lines = [f"{' '.join(head)}:{origins_of(value.origins)}", *(f"  {line}" for line in _body(value.body))]
    return "\n".join([*lines, *(f"  {show(store)}" for store in value.stores)])


@show.register
def _(value: View) -> str:
    offset = "" if value.offset == 0 else f" + {value.offset}"
    return f"{value.buffer}{offset}[{list_of(value.sizes)}; {list_of(value.strides)}]"


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
        f"{name} {list_of(getattr(value, name))}" for name in ("kernel", "stride", "padding", "dilation", "outputs")
    ]
    if value.outside:
        windows.append(f"{value.outside} outside")
    if value.pieces.tiles:
        windows.append("by tiles")
    elif value.pieces.depthwise:
        windows.append("each channel by itself")
    elif value.pieces.groups is not None:
        windows.append(f"groups of {value.pieces.groups.inputs} channels")
    elif value.pieces.in_place:
        windows.append("where they lie")
    elif value.pieces.count > 1:
        windows.append(f"in {value.pieces.count} pieces of {value.pieces.values}")
    return f"windows of {show(value.image)} ({'; '.join(windows)})"


@show.register
def _(value: Gemm) -> str:
    product = f"{value.micro_kernel} {show(value.a)} @ {value.b}"
    return f"{value.name}: {value.accumulator} = {product}{origins_of(value.origins)}"


def _fill(value: Attention | AttentionBackward) -> str:
    return "" if value.fill is None else f", hidden {value.fill}"


def _kept(value: Attention | AttentionBackward) -> str:
    return "" if value.kept is None else f", kept {show(value.kept)} of {value.keep}"


@show.register
def _(value: Attention) -> str:
    mask = "" if value.mask is None else f" + {show(value.mask)}"
    flags = ", causal" * value.causal + ", nan rows" * value.nan_rows + _fill(value) + _kept(value)
    scores = "" if value.scores is None else f", its scores as by\n{indent(show(value.scores), '  ')}"
    return (
        f"{value.name}: {', '.join(value.outputs)} = {value.kernel} softmax({show(value.q)} @ {show(value.k)}^T"
        f" * {value.scale}{mask}{flags}) @ {show(value.v)}{origins_of(value.origins)}{scores}"
    )


@show.register
def _(value: AttentionBackward) -> str:
    mask = "" if value.mask is None else f" + {show(value.mask)}"
    flags = mask + ", causal" * value.causal + _fill(value) + _kept(value)
    return (
        f"{value.name}: {', '.join(value.outputs)} = {value.kernel} gradients by {show(value.grad_out)} of"
        f" {show(value.out)}, {show(value.log_sums)} = softmax({show(value.q)} @ {show(value.k)}^T"
        f" * {value.scale}{flags}) @ {show(value.v)}{origins_of(value.origins)}"
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
    return f"{value.name}: {', '.join(value.outputs)} = {what} {show(value.x)}, {order}{origins_of(value.origins)}"


@show.register
def _(value: TilePacking) -> str:
    turned = "turned around, " * value.turned
    origins = origins_of(value.origins)
    return f"{value.name}: {value.out} = {show(value.weight)} {turned}packed by tiles for {value.micro_kernel}{origins}"


@show.register
def _(value: WeightGradient) -> str:
    windows = f"3x3 windows padded by {value.padding[0]}x{value.padding[1]}"
    return (
        f"{value.name}: {value.out} = {value.micro_kernel} gradient of the weights of {windows} of {show(value.image)},"
        f" by {show(value.gradients)}{origins_of(value.origins)}"
    )


def _also(origins: Sequence[str]) -> str:
    return f"; from {', '.join(origins)}" if origins else ""


@show.register
def _(value: Buffer) -> str:
    shape = f"[{list_of(value.sizes)}; {list_of(value.strides)}]"
    return f"{value.kind} {value.name}: {dtype_name(value.dtype)}{shape}"


@show.register
def _(value: InputSpec) -> str:
    return f"{value.position} -> {value.buffer or value.symbol or '_'}"


@show.register
def _(value: SizeBinding) -> str:
    return f"{value.symbol} = {value.buffer}.{value.what}({value.dim})"


@show.register
def _(value: Program) -> str:
    lines = [f"program {value.name}", f"inputs: {list_of(value.inputs)}"]
    if value.bindings:
        lines.append(f"sizes: {list_of(value.bindings)}")
    lines += [show(buffer) for buffer in value.buffers]
    lines += [show(node) for node in value.nodes]
    return "\n".join([*lines, f"return {list_of(value.results)}"]) + "\n"


# -- kernels ---------------------------------------------------------------------------------------------------------
@show.register
def _(value: Kernel) -> str:
    access = {True: {True: "inout", False: "in"}, False: {True: "out", False: "unused"}}
    args = [f"{access[arg.reads][arg.writes]} {dtype_name(arg.dtype)} {arg.buffer}" for arg in value.args]
    lines = [f"kernel {value.label}({', '.join([*args, *map(str, value.sizes)])}):{origins_of(value.origins)}"]
    if value.product is not None:
        lines.append(f"  {show(value.product)}")
    if value.outer:
        how = f"{value.parallel} parallel" if value.parallel else "" if value.divided is None else "divided"
        how = how if value.across is None else f"ranges of {value.across} parallel"
        threads = f"  # {how}, work {value.work}" if how else "  # serial"
        lines.append(f"  outer {loops_of(value.outer)}{threads}")
    if value.divided is not None:
        lines.append(f"  {show(value.divided)}")
    if value.listed is not None:
        lines.append(f"  {show(value.listed)}")
    if value.inner:
        lines.append(f"  inner {loops_of(value.inner)}")
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
def _(value: Divided) -> str:
    sums = "" if value.pieces == 1 else f" in {value.pieces} pieces, with copies of {value.elements} elements;"
    owners = f" by place {value.place} of {value.places}"
    return f"divided{sums}{owners}, one thread below {value.least}"


@show.register
def _(value: Listed) -> str:
    return f"listed by row {value.row} of {value.rows}"


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
    return [f"  vector {plan.loop} x {plan.lanes}: {access}{why}"]


@show.register
def _(value: Schedule) -> str:
    lines = [f"schedule {value.program.name}: {len(value.steps)} steps, arena {value.arena_bytes} bytes"]
    for name, place in value.places:
        lines.append(f"{show(value.program.buffer(name))} at {place.offset}")
    lines += [show(step) for step in value.steps]
    lines += [f"note: {note}" for note in value.notes]
    return "\n".join([*lines, f"return {list_of(value.program.results)}"]) + "\n"
