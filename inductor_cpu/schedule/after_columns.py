"""What follows long reductions of columns point by point, in a kernel of its own.

Lanes are columns, and rows are so many that no cache holds them until a later pass. That pass has nothing from being in
the same kernel: it would come back to the same few columns of all rows. In a kernel of its own it goes through memory
from end to end, as the gradient of a batch norm in channels-last images; and the sums before it can be cut into blocks
of rows (`columns.py`). What does not depend on the rows is computed once and handed over; what does is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from inductor_cpu.ir.index import as_expr, contiguous_strides
from inductor_cpu.ir.loop_nest import Buffer, Const, Index, Instr, Load, LoopNest, Reduce, Scan, Store
from inductor_cpu.ir.rewrite import Copier, Editor, depends, needed_by, operands, prune, store_operands
from inductor_cpu.schedule.columns import bytes_of_point, place_of
from inductor_cpu.schedule.cost import points
from inductor_cpu.schedule.flat import merge_loops
from inductor_cpu.schedule.group import Group
from inductor_cpu.schedule.phases import split_phases
from inductor_cpu.schedule.vectorize import plan_vectors

#: What a pass over some columns of all rows reads at least: no second-level cache holds it until the next pass.
LEAST_BYTES = 1 << 20

#: Vectors of columns that a kernel folds at once: registers hold as many.
FEW_VECTORS = 8


@dataclass(frozen=True)
class Apart:
    """The group of the reductions, that of what follows, the buffers that hand over, and a note."""

    reductions: Group
    after: Group
    handed: tuple[Buffer, ...]
    note: str


def set_apart(group: Group, lanes: int) -> Apart | None:
    """A group of long reductions of columns and stores after them as two groups; None for any other. lanes: of the
    target."""
    if group.gemm is not None or not group.inner:
        return None
    nest = merge_loops(replace(group.nest, dims=group.outer, reduce_dims=group.inner))
    late = _late_stores(nest)
    if not late or not _are_long_columns(nest, lanes):
        return None
    early = [store for n, store in enumerate(nest.stores) if n not in late]
    handed = _handed(nest, [nest.stores[n] for n in late], {store.buffer for store in early})
    sizes = tuple(as_expr(loop.size) for loop in nest.dims if loop.size is not None)
    buffers = {
        k: Buffer(f"{nest.name}_handed{n}", nest.body[k].dtype, sizes, contiguous_strides(sizes), "temp")
        for n, k in enumerate(handed)
    }
    at = (place_of(nest.dims),)
    stores = (*early, *(Store(buffer.name, at, k) for k, buffer in buffers.items()))
    body, renumbered = prune(nest.body, stores)
    reductions = replace(nest, body=body, stores=renumbered)
    editor = Editor()
    given = {k: editor.emit(Load(buffer.name, at, buffer.dtype)) for k, buffer in buffers.items()}
    copier = Copier(editor, nest.body, {}, forward=given)
    copier.run(k for n in late for k in store_operands(nest.stores[n]))
    left, moved = prune(tuple(editor.instructions), tuple(copier.store(nest.stores[n]) for n in late))
    rows = (*nest.reduce_dims, *nest.dims)
    after = replace(nest, name=f"{nest.name}_after", dims=rows, reduce_dims=(), body=left, stores=moved)
    note = f"{nest.name} folds long columns; what follows them point by point is a kernel of its own"
    return Apart(_as_group(group, reductions), _as_group(group, after), tuple(buffers.values()), note)


def _late_stores(nest: LoopNest) -> list[int]:
    """The stores of the last pass over the rows, where reductions come before it and none is in it."""
    if any(isinstance(instruction, Scan) for instruction in nest.body):
        return []
    *before, last = split_phases(nest.body, nest.stores, nest.reduce_dims) or [None]
    if last is None or last.reduces or not any(phase.reduces for phase in before if phase is not None):
        return []
    return list(last.stores)


def _are_long_columns(nest: LoopNest, lanes: int) -> bool:
    """Whether lanes are columns, and a pass over the rows of as many as a kernel takes at once reads so much."""
    loops = (*nest.dims, *nest.reduce_dims)
    if any(loop.size is None or loop.size.as_int is None for loop in loops):
        return False
    vector = plan_vectors(nest.dims, nest.reduce_dims, nest.body, nest.stores, lanes)
    if vector.loop is None or vector.loop not in nest.dims:
        return False
    columns = min(points([vector.loop]), FEW_VECTORS * vector.lanes)
    return points(nest.reduce_dims) * columns * bytes_of_point(nest, vector) >= LEAST_BYTES


def _handed(nest: LoopNest, late: Sequence[Store], written: Collection[str]) -> list[int]:
    """The values that later stores take from before. written: buffers that the earlier stores change; over the rows,
    what a later pass loads is not among them (`split_phases`)."""
    varies = depends(nest.body, nest.reduce_dims, nest.reduce_dims)
    roots = [k for store in late for k in store_operands(store)]
    needed = needed_by(nest.body, roots, ())
    users = [nest.body[k] for k in needed if varies[k] and not isinstance(nest.body[k], Reduce)]
    taken = {*roots, *(k for instruction in users for k in operands(instruction))}
    return sorted(k for k in taken if not varies[k] and not _is_at_hand(nest.body[k], written))


def _is_at_hand(instruction: Instr, written: Collection[str]) -> bool:
    """Whether a later kernel has a value that does not depend on the rows without computing it."""
    if isinstance(instruction, Load):
        return instruction.mask is None and instruction.buffer not in written
    return isinstance(instruction, (Const, Index))


def _as_group(group: Group, nest: LoopNest) -> Group:
    return replace(group, outer=nest.dims, inner=nest.reduce_dims, nest=nest)
