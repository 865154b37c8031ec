"""Long reductions of columns in two kernels: some rows at a time, then what these gave.

Lanes are columns, and a kernel that folds some columns of all rows before it turns to the next ones reads a few lines
of every page, and comes back to each page for the next few: one after the other, or in another thread, as the columns
are what threads would share. So a first kernel folds blocks of neighbouring rows, each of which a second-level cache
holds, in the order of memory; a second one folds the results of the blocks, and does what follows. Sums of blocks are
also more accurate than one long sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inductor_cpu.ir.index import ONE, ZERO, Expr, Sym, as_expr, contiguous_strides, loop_var, of
from inductor_cpu.ir.kernel import VectorPlan
from inductor_cpu.ir.loop_nest import Buffer, Instr, Load, LoopNest, Reduce, Scan, Store
from inductor_cpu.ir.rewrite import Copier, Editor, depends, needed_by, prune, store_operands
from inductor_cpu.schedule.cost import points
from inductor_cpu.schedule.flat import merge_loops, substitute_loops
from inductor_cpu.schedule.group import Group
from inductor_cpu.schedule.vectorize import plan_vectors

#: Reductions of which parts can be folded in any order.
KINDS = frozenset({"sum", "prod", "max", "min", "fmax", "any", "all"})

#: Vectors of columns, at least: the lowering itself cuts sums over fewer columns.
FEWEST_VECTORS = 1

#: Rows of a block, at most and at least; the bytes that they may have, a part of the second-level cache; and how many
#: there may be of short rows, so that what begins and ends a block is little beside them.
ROWS = 128, 16
BLOCK_BYTES = 256 << 10
SHORT_ROWS_BYTES = 64 << 10

#: Operands of fewer bytes are in a cache anyway.
LEAST_BYTES = 1 << 20


@dataclass(frozen=True)
class TwoGroups:
    """The two groups, in order, and the buffers between them."""

    groups: tuple[Group, Group]
    parts: tuple[Buffer, ...]
    note: str


def divide_columns(group: Group, lanes: int) -> TwoGroups | None:
    """A group that folds long columns as two groups; None for any other. lanes: of the target."""
    if group.gemm is not None or not group.inner:
        return None
    nest = merge_loops(replace(group.nest, dims=group.outer, reduce_dims=group.inner))
    if not _folds_once(nest):
        return None
    vector = plan_vectors(nest.dims, nest.reduce_dims, nest.body, nest.stores, lanes)
    row = _row_bytes(nest, vector)
    if vector.loop is None or not row or _rows(nest, vector.loop) * row < LEAST_BYTES:
        return None
    cut = _cut(nest.reduce_dims, min(BLOCK_BYTES // row, max(ROWS[0], SHORT_ROWS_BYTES // row)))
    if cut is None:
        return None
    blocks, rows, values = cut
    body = substitute_loops(replace(nest, reduce_dims=rows), values)
    first, parts = _first(body, blocks, vector.loop)
    second = _second(nest, body, blocks, parts)
    note = f"{nest.name} folds {points(rows)} rows at a time, then the results of {points(blocks)} such blocks"
    return TwoGroups((_group(group, first), _group(group, second)), tuple(parts.values()), note)


def _folds_once(nest: LoopNest) -> bool:
    """Whether one pass over the rows is all there is, and its parts can be folded on their own."""
    loops = (*nest.dims, *nest.reduce_dims)
    if any(loop.size is None or loop.size.as_int is None for loop in loops):
        return False
    folds = [k for k, instruction in enumerate(nest.body) if isinstance(instruction, Reduce)]
    if not folds or any(isinstance(instruction, Scan) for instruction in nest.body):
        return False
    below = needed_by(nest.body, [nest.body[k].arg for k in folds])  # type: ignore[union-attr]
    if below.intersection(folds) or any(nest.body[k].kind not in KINDS for k in folds):  # type: ignore[union-attr]
        return False
    level, inner = depends(nest.body, nest.reduce_dims, nest.reduce_dims), set(nest.reduce_dims)
    return not any(s.index[0].symbols & inner or any(level[k] for k in store_operands(s)) for s in nest.stores)


def _row_bytes(nest: LoopNest, vector: VectorPlan) -> int:
    """Bytes of a row of all operands that have rows; 0 where lanes are not columns, or these are too few."""
    loop = vector.loop
    if loop is None or loop not in nest.dims or points([loop]) < FEWEST_VECTORS * vector.lanes:
        return 0
    return points([loop]) * bytes_of_point(nest, vector)


def bytes_of_point(nest: LoopNest, vector: VectorPlan) -> int:
    """Bytes that a point of the rows and columns reads of all operands that have an element for each."""
    streams = [nest.body[k] for k, kind in vector.access if k >= 0 and kind == "contiguous"]
    return sum(load.dtype.itemsize for load in streams if _over_rows(load, nest.reduce_dims))


def _rows(nest: LoopNest, columns: Sym) -> int:
    return points([loop for loop in (*nest.dims, *nest.reduce_dims) if loop != columns])


def _over_rows(load: Instr, rows: Sequence[Sym]) -> bool:
    return isinstance(load, Load) and set(rows) <= load.index[0].symbols


def _cut(loops: Sequence[Sym], most: int) -> tuple[tuple[Sym, ...], tuple[Sym, ...], dict[Sym, Expr]] | None:
    """(loops over blocks, loops over the rows of one, values of the loop that is cut): some rows of the innermost
    loops, `most` at most; None if no number of rows divides them."""
    inside = 1
    for place in range(len(loops) - 1, -1, -1):
        loop, size = loops[place], points([loops[place]])
        if inside * size <= most:
            inside *= size
            continue
        counts = range(most, ROWS[1] - 1, -1)
        count = next((n for n in counts if n % inside == 0 and size % (n // inside) == 0), None)
        if count is None:
            return None
        taken = count // inside
        block, row = loop_var(f"{loop.name}_block", size // taken), loop_var(f"{loop.name}_row", taken)
        rows = (row,) if taken > 1 else ()
        return (*loops[:place], block), (*rows, *loops[place + 1 :]), {loop: of(block) * taken + of(row) * bool(rows)}
    return None


def _first(nest: LoopNest, blocks: tuple[Sym, ...], columns: Sym) -> tuple[LoopNest, dict[int, Buffer]]:
    """The nest that folds each block, and the buffer for each reduction's results."""
    sizes = tuple(as_expr(loop.size) for loop in (*blocks, *nest.dims) if loop.size is not None)
    parts: dict[int, Buffer] = {}
    stores: list[Store] = []
    for k, instruction in enumerate(nest.body):
        if isinstance(instruction, Reduce):
            name = f"{nest.name}_part{len(parts)}"
            parts[k] = Buffer(name, instruction.dtype, sizes, contiguous_strides(sizes), "temp")
            stores.append(Store(name, (place_of((*blocks, *nest.dims)),), k))
    body, renumbered = prune(nest.body, stores)
    around = tuple(loop for loop in nest.dims if loop != columns)
    dims = (*around, *blocks, columns)
    return replace(nest, name=f"{nest.name}_blocks", dims=dims, body=body, stores=renumbered), parts


def _second(whole: LoopNest, nest: LoopNest, blocks: tuple[Sym, ...], parts: Mapping[int, Buffer]) -> LoopNest:
    """The nest that folds the blocks' results and finishes."""
    editor = Editor()
    place = (place_of((*blocks, *nest.dims)),)
    folded = {
        k: editor.emit(Reduce(nest.body[k].kind, editor.emit(Load(part.name, place, part.dtype)), part.dtype))  # type: ignore[union-attr]
        for k, part in parts.items()
    }
    copier = Copier(editor, nest.body, {}, forward=folded)
    copier.run(k for store in nest.stores for k in store_operands(store))
    stores = tuple(map(copier.store, nest.stores))
    body, stores = prune(tuple(editor.instructions), stores)
    return replace(whole, reduce_dims=blocks, body=body, stores=stores)


def place_of(loops: Sequence[Sym]) -> Expr:
    """The address of a point of loops in a buffer of their sizes."""
    address, stride = ZERO, ONE
    for loop in reversed(loops):
        assert loop.size is not None
        address, stride = address + of(loop) * stride, stride * loop.size
    return address


def _group(group: Group, nest: LoopNest) -> Group:
    return replace(group, outer=nest.dims, inner=nest.reduce_dims, nest=nest)
