"""From logical indices to flat addresses, and loops in memory order, merged where memory is contiguous.

A flat nest is a `LoopNest` whose loads and stores have one expression: the offset in elements from the buffer's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import torch

from inductor_cpu.ir.index import ZERO, Expr, Sym, loop_var, of, recombine
from inductor_cpu.ir.loop_nest import Buffer, Cast, Const, Index, Instr, Load, LoopNest, Reduce, Scan, Store
from inductor_cpu.ir.rewrite import Copier, Editor, prune, start_of
from inductor_cpu.ir.scatter import is_scatter, reads_what_others_write
from inductor_cpu.schedule.cost import hint


def flatten(nest: LoopNest, buffers: Mapping[str, Buffer]) -> LoopNest:
    """The nest with flat addresses, without loops of size 1, in memory order."""
    nest = _flat_addresses(_without_empty_loops(nest), buffers)
    return replace(nest, dims=ordered(nest, nest.dims), reduce_dims=_ordered_reduction(nest))


def _without_empty_loops(nest: LoopNest) -> LoopNest:
    """The nest with nothing in it that is evaluated for the points of a loop of size 0: loads there may have no element
    to read. A reduction over no points is its identity; a nest that stores at no point stores a literal nowhere."""
    scans = any(isinstance(instruction, Scan) for instruction in nest.body)  # it stores at each point of its own loop
    empty = next((dim for dim in (*nest.dims, *(nest.reduce_dims if scans else ())) if dim.size == 0), None)
    if empty is not None:
        literals = tuple(start_of("sum", nest.body[store.value].dtype) for store in nest.stores)
        nowhere = tuple(Store(s.buffer, tuple(ZERO for _ in s.index), k, s.mode) for k, s in enumerate(nest.stores))
        return replace(nest, dims=(empty,), reduce_dims=(), body=literals, stores=nowhere)
    if all(dim.size != 0 for dim in nest.reduce_dims):
        return nest
    body, stores = prune(tuple(_fold_nothing(i) for i in nest.body), nest.stores)
    return replace(nest, reduce_dims=(), body=body, stores=stores)


def _fold_nothing(instruction: Instr) -> Instr:
    if not isinstance(instruction, Reduce):
        return instruction
    position = instruction.kind in ("argmax", "argmin")
    return Const(0, torch.int64) if position else start_of(instruction.kind, instruction.dtype)


def _address(buffer: Buffer, index: Sequence[Expr]) -> Expr:
    return recombine(sum((i * s for i, s in zip(index, buffer.strides, strict=True)), ZERO))


def _flat_addresses(nest: LoopNest, buffers: Mapping[str, Buffer]) -> LoopNest:
    unit = {dim: ZERO for dim in (*nest.dims, *nest.reduce_dims) if dim.size == 1}

    def flat(buffer: str, index: tuple[Expr, ...]) -> tuple[Expr]:
        return (_address(buffers[buffer], index).substitute(unit),)

    body: list[Instr] = []
    for instruction in nest.body:
        if isinstance(instruction, Load):
            instruction = replace(instruction, index=flat(instruction.buffer, instruction.index))
        elif isinstance(instruction, Index):
            instruction = replace(instruction, expr=instruction.expr.substitute(unit))
        elif isinstance(instruction, (Reduce, Scan)) and set(nest.reduce_dims) <= unit.keys():
            instruction = _reduce_one_point(instruction)
        body.append(instruction)
    stores = tuple(replace(store, index=flat(store.buffer, store.index)) for store in nest.stores)
    return replace(
        nest,
        dims=tuple(d for d in nest.dims if d not in unit),
        reduce_dims=tuple(d for d in nest.reduce_dims if d not in unit),
        body=tuple(body),
        stores=stores,
    )


def _reduce_one_point(reduce: Reduce | Scan) -> Instr:
    """A reduction or a scan over a single point: the value itself, or position 0."""
    return Const(0, torch.int64) if reduce.kind in ("argmax", "argmin") else Cast(reduce.arg, reduce.dtype)


# -- order -----------------------------------------------------------------------------------------------------------
def ordered(nest: LoopNest, dims: tuple[Sym, ...]) -> tuple[Sym, ...]:
    """Loops in the order of the first store's strides, largest first; as they are where their order has a meaning."""
    if any(map(is_scatter, nest.stores)) or reads_what_others_write(nest.body, nest.stores):
        return dims
    address = nest.stores[0].index[0]
    return tuple(sorted(dims, key=lambda d: -stride_hint(address, d)))


def _ordered_reduction(nest: LoopNest) -> tuple[Sym, ...]:
    """Reduction loops in the order of the first load that depends on all of them. A position (argmax) fixes it."""
    if fixes_order(nest.body):
        return nest.reduce_dims
    for instruction in nest.body:
        if isinstance(instruction, Load) and set(nest.reduce_dims) <= instruction.index[0].symbols:
            address = instruction.index[0]
            return tuple(sorted(nest.reduce_dims, key=lambda d: -stride_hint(address, d)))
    return nest.reduce_dims


def fixes_order(body: Sequence[Instr]) -> bool:
    """Whether a result depends on the order of the reduction loops: a position does, and every scan."""
    return any(isinstance(i, Scan) or (isinstance(i, Reduce) and i.kind in ("argmax", "argmin")) for i in body)


def stride_hint(address: Expr, dim: Sym) -> int:
    """The distance in elements between two consecutive points of a loop, with typical sizes; 0 when independent."""
    coefficient = address.coefficient(dim)
    if coefficient is not None:
        return abs(hint(coefficient))
    others = {s: ZERO for s in address.symbols if s.kind != "size" and s != dim}
    ends = [address.substitute({**others, dim: value}) for value in (ZERO, Expr((((), 1),)))]
    return abs(hint(ends[1] - ends[0]))


# -- merging ---------------------------------------------------------------------------------------------------------
def merge_loops(nest: LoopNest) -> LoopNest:
    """Merge neighbouring loops wherever every address treats them as one."""
    taken = {dim.name for dim in (*nest.dims, *nest.reduce_dims)}
    names = (name for name in (f"m{k}" for k in count()) if name not in taken)
    nest, dims = _merge_level(nest, nest.dims, names)
    nest, reduce_dims = _merge_level(nest, nest.reduce_dims, names)
    return replace(nest, dims=dims, reduce_dims=reduce_dims)


def _merge_level(nest: LoopNest, loops: Sequence[Sym], names: Iterator[str]) -> tuple[LoopNest, tuple[Sym, ...]]:
    dims = list(loops)
    position = len(dims) - 2
    while position >= 0:
        merged = _merge_pair(nest, dims[position], dims[position + 1], next(names))
        if merged is None:
            position -= 1
        else:
            nest, dims[position : position + 2] = merged[0], [merged[1]]
            position = min(position, len(dims) - 2)
    return nest, tuple(dims)


def merge_short_loop(nest: LoopNest, lanes: int) -> LoopNest:
    """The innermost loop of a pointwise nest, where it is shorter than a vector, merged with the one around it: memory
    is contiguous along both, and what depends on the short one alone (the mean of each colour) repeats."""
    if len(nest.dims) < 2 or nest.reduce_dims or any(map(is_scatter, nest.stores)):
        return nest
    outer, inner = nest.dims[-2:]
    if outer.size is None or inner.size is None or not 1 < (inner.size.as_int or 0) < lanes:
        return nest
    stored = {store.buffer for store in nest.stores}
    loads = [i for i in nest.body if isinstance(i, Load) and i.mask is None and i.buffer not in stored]
    short = {id(i) for i in loads if _reads_only(i.index[0], inner)}
    others = [i for i in nest.body if id(i) not in short]
    exprs = expressions(others, nest.stores)
    if not short or not all(_may_merge(expr, outer, inner) and expr.coefficient(inner) is not None for expr in exprs):
        return nest
    symbol = loop_var(f"{outer.name}_{inner.name}", outer.size * inner.size)
    merged = substitute_loops(nest, {outer: of(symbol) // inner.size, inner: of(symbol) % inner.size})
    return replace(merged, dims=(*nest.dims[:-2], symbol))


def _reads_only(address: Expr, loop: Sym) -> bool:
    """Whether an address goes in steps of 1 along one loop and depends on no other."""
    own = address.coefficient(loop) == 1
    return own and all(symbol == loop or symbol.kind == "size" for symbol in address.symbols)


def expressions(body: Sequence[Instr], stores: Sequence[Store]) -> list[Expr]:
    """Every index expression of a flat body."""
    found = [i.index[0] if isinstance(i, Load) else i.expr for i in body if isinstance(i, (Load, Index))]
    return found + [store.index[0] for store in stores]


def _merge_pair(nest: LoopNest, outer: Sym, inner: Sym, name: str) -> tuple[LoopNest, Sym] | None:
    assert outer.size is not None
    assert inner.size is not None
    exprs = expressions(nest.body, nest.stores)
    if not all(_may_merge(expr, outer, inner) for expr in exprs):
        return None
    symbol = loop_var(name, outer.size * inner.size)
    split = {outer: of(symbol) // inner.size, inner: of(symbol) % inner.size}
    for expr in exprs:
        if recombine(expr.substitute(split)).function_count > expr.function_count:
            return None
    return substitute_loops(nest, split), symbol


def _may_merge(expr: Expr, outer: Sym, inner: Sym) -> bool:
    """A quick test: affine coefficients must fit; anything else is tried."""
    first, second = expr.coefficient(outer), expr.coefficient(inner)
    if first is None or second is None:
        return first is None and second is None
    assert inner.size is not None
    return first == second * inner.size


def substitute_loops(nest: LoopNest, values: Mapping[Sym, Expr]) -> LoopNest:
    """The nest with loop symbols replaced in all its expressions (its own loop lists stay as they are)."""
    editor = Editor()
    copier = Copier(editor, nest.body, values)
    copier.run(range(len(nest.body)))
    body = tuple(_recombined(i) for i in editor.instructions)
    stores = tuple(copier.store(store) for store in nest.stores)
    return replace(nest, body=body, stores=tuple(replace(s, index=(recombine(s.index[0]),)) for s in stores))


def _recombined(instruction: Instr) -> Instr:
    if isinstance(instruction, Load):
        return replace(instruction, index=(recombine(instruction.index[0]),))
    if isinstance(instruction, Index):
        return replace(instruction, expr=recombine(instruction.expr))
    return instruction
