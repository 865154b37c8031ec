"""A group of flat nests that become one kernel, and how a nest joins it: legality, with reasons.

A nest may join if both walk the same points, which is found through a buffer that both access (see `points.py`). A
value that the group has just stored is then used from its register.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inductor_cpu.ir.index import Expr, Sym, const, loop_var, of
from inductor_cpu.ir.loop_nest import Load, LoopNest, Store
from inductor_cpu.ir.nodes import Gemm
from inductor_cpu.ir.rewrite import Copier, Editor, depends
from inductor_cpu.ir.scatter import is_scatter
from inductor_cpu.schedule.beside import are_beside
from inductor_cpu.schedule.flat import fixes_order, merge_loops, substitute_loops
from inductor_cpu.schedule.points import Alignment, align, linear
from inductor_cpu.schedule.rows import in_digits, over_whole_rows
from inductor_cpu.schedule.uses import reads_of, writes_of

MAX_INSTRUCTIONS = 320
MAX_BUFFERS = 32
#: Elements of a record, whose values share cache lines.
MOST_PLACES = 16
#: Buffers of a group without loops: what it holds is a list of single elements (counters of batch norms, scalars).
MAX_ELEMENTS = 256


@dataclass
class Group:
    """Fused nests over common loops: outer, and inner for reductions and what runs beside them. gemm: the matrix
    product whose accumulator the nests load; the loops are then its rows and columns."""

    outer: tuple[Sym, ...]
    inner: tuple[Sym, ...]
    nest: LoopNest  # body and stores over outer + inner
    members: list[str]
    reads: set[str]
    writes: set[str]
    gemm: Gemm | None = None

    @property
    def has_loops(self) -> bool:
        """Whether it computes more than single elements."""
        return bool(self.outer or self.inner or self.gemm)

    def address_of(self, buffer: str) -> Expr | None:
        """An address at which the group accesses a buffer, that of its first store there if it has one."""
        for store in self.nest.stores:
            if store.buffer == buffer and store.mode == "set" and store.mask is None:
                return store.index[0]
        for instruction in self.nest.body:
            if isinstance(instruction, Load) and instruction.buffer == buffer:
                return instruction.index[0]
        return None


def join(group: Group, nest: LoopNest, names: Iterator[str]) -> str | None:
    """Add a nest to a group; or the reason why it cannot be, the group then unchanged. names: for new loops."""
    if len(group.nest.body) + len(nest.body) > MAX_INSTRUCTIONS:
        return "too many instructions"
    if len(group.reads | group.writes | reads_of(nest) | writes_of(nest)) > (
        MAX_BUFFERS if group.has_loops else MAX_ELEMENTS
    ):
        return "too many buffers"
    if _scatters(group.nest) or _scatters(nest):
        return "a scatter stays alone"
    if not group.has_loops and has_no_loops(nest):
        fused = _merge(group, nest)
        if not isinstance(fused, str):
            _add(group, group, fused, nest)
            return None
        return fused
    if group.gemm is not None:
        if writes_of(nest) & reads_of(group.gemm):
            return "it changes an operand of the product, which other blocks still read"
        if nest.reduce_dims:
            return "a reduction needs more than a block of a matrix product"
        # One loop over rows that two loops make, as the product has it, and more than one where it has them otherwise.
        nest = in_digits(merge_loops(nest), group.writes, names)
    reason = "no common buffer gives the same points"
    for shared in _shared(group, nest):
        plan = _aligned(group, nest, *shared, names)
        if plan is None:
            continue
        moved_group, moved_nest = plan
        if group.gemm is not None and moved_group.outer != group.outer:
            whole = over_whole_rows(moved_nest, group.outer, moved_group.outer)
            if whole is None:
                reason = "it would cut the columns of a matrix product"
                continue
            moved_group, moved_nest = group, whole
        fused = _merge(moved_group, moved_nest)
        if isinstance(fused, str):
            reason = fused
            continue
        _add(group, moved_group, fused, nest)
        return None
    return reason


def _add(group: Group, moved: Group, fused: LoopNest, nest: LoopNest) -> None:
    """Make the group what it is with a nest: moved has its new loops, fused the bodies of both."""
    group.outer, group.inner = moved.outer, moved.inner
    group.nest = replace(fused, origins=tuple(dict.fromkeys((*group.nest.origins, *nest.origins))))
    group.members.append(nest.name)
    group.reads |= reads_of(nest)
    group.writes |= writes_of(nest)


def has_no_loops(nest: LoopNest) -> bool:
    """Whether a nest computes single elements."""
    return not nest.dims and not nest.reduce_dims


def _scatters(nest: LoopNest) -> bool:
    return any(is_scatter(store) or store.mask is not None for store in nest.stores)


def _shared(group: Group, nest: LoopNest) -> list[tuple[Expr, Expr]]:
    """Addresses of the group and of the nest in buffers that both access, those that the group writes first; then the
    places of both in a record."""
    nest_reads = [i.buffer for i in nest.body if isinstance(i, Load)]
    common = dict.fromkeys(b for b in nest_reads if b in group.writes)
    common.update(dict.fromkeys(b for b in nest_reads if b in group.reads))
    pairs = [(group.address_of(buffer), _address_in(nest, buffer)) for buffer in common]
    found = [(own, other) for own, other in pairs if own is not None and other is not None]
    return found if group.gemm is not None else [*found, *_places_in_records(group, nest)]


def _places_in_records(group: Group, nest: LoopNest) -> Iterator[tuple[Expr, Expr]]:
    """Addresses that the group and the nest store at, as if both had the same place in a record."""
    for store in nest.stores:
        for other in group.nest.stores:
            apart = other.index[0].added - store.index[0].added
            if store.buffer == other.buffer and abs(apart) < MOST_PLACES:
                yield other.index[0], store.index[0] + const(apart)


def _aligned(
    group: Group, nest: LoopNest, address: Expr, own: Expr, names: Iterator[str]
) -> tuple[Group, LoopNest] | None:
    """Both over the same loops, cut into pieces where they differ, such that an address of the group and one of the
    nest are equal."""
    group_loops, nest_loops = _level(address, group.outer, group.inner), _level(own, nest.dims, nest.reduce_dims)
    found = align(address, group_loops, own, nest_loops, names)
    if found is None:
        return None
    levels = _levels(group, nest, found, names)
    if levels is None:
        return None
    outer, inner, renamed = levels
    moved_group, moved_nest = group.nest, substitute_loops(nest, {**found.values[1], **renamed})
    if any(len(pieces) > 1 for pieces in found.first.values()):
        moved_group = substitute_loops(moved_group, found.values[0])
    group = replace(group, outer=outer, inner=inner, nest=replace(moved_group, dims=outer, reduce_dims=inner))
    return group, replace(moved_nest, dims=outer, reduce_dims=inner)


def _level(address: Expr, outer: tuple[Sym, ...], inner: tuple[Sym, ...]) -> tuple[Sym, ...]:
    """The loops that an address belongs to: all if it uses inner ones, else the outer loops."""
    return (*outer, *inner) if address.symbols & set(inner) else outer


def _levels(
    group: Group, nest: LoopNest, found: Alignment, names: Iterator[str]
) -> tuple[tuple[Sym, ...], tuple[Sym, ...], dict[Sym, Expr]] | None:
    """(outer loops, inner loops, new names of loops of the nest) for both; None if the nest folds other points."""
    outer, inner = _pieces(group.outer, found.first), _pieces(group.inner, found.first)
    if not nest.reduce_dims:
        return outer, inner, {}
    dims, folded = _pieces(nest.dims, found.second), _pieces(nest.reduce_dims, found.second)
    if found.second.keys().isdisjoint(nest.reduce_dims):  # the buffer says nothing about the inner loops
        order = outer if group.inner else dims
        inner = inner or tuple(loop_var(next(names), loop.size) for loop in folded if loop.size is not None)
        if set(dims) != set(outer) or [loop.size for loop in inner] != [loop.size for loop in folded]:
            return None
        return order, inner, dict(zip(folded, map(of, inner), strict=True))
    if not group.inner:
        return dims, folded, {}
    if set(dims) != set(outer) or set(folded) != set(inner):
        return None
    if fixes_order(nest.body):
        values = tuple(found.values[1][loop] for loop in nest.reduce_dims)
        if linear(values, nest.reduce_dims) != linear(tuple(map(of, inner)), inner):
            return None
    return outer, inner, {}


def _pieces(loops: Sequence[Sym], pieces: Mapping[Sym, list[Sym]]) -> tuple[Sym, ...]:
    return tuple(piece for loop in loops for piece in pieces.get(loop, [loop]))


def _address_in(nest: LoopNest, buffer: str) -> Expr | None:
    found = {i.index[0] for i in nest.body if isinstance(i, Load) and i.buffer == buffer}
    return found.pop() if len(found) == 1 else None


# -- merging bodies --------------------------------------------------------------------------------------------------
def _merge(group: Group, nest: LoopNest) -> LoopNest | str:
    """One body for both, values that the group stores forwarded to the nest's loads."""
    editor = Editor()
    own = Copier(editor, group.nest.body, {})  # loads that have become equal by the alignment become one
    own.run(range(len(group.nest.body)))
    stored = {(store.buffer, store.index[0]): store for store in group.nest.stores}
    written = {store.buffer for store in group.nest.stores}
    forward: dict[int, int] = {}
    for position, instruction in enumerate(nest.body):
        if isinstance(instruction, Load) and instruction.buffer in written:
            store = stored.get((instruction.buffer, instruction.index[0]))
            if instruction.mask is not None or store is None:
                return f"it reads {instruction.buffer} at other points than those just written"
            forward[position] = own.values[store.value]
    conflict = _write_after_read(group, nest)
    if conflict is not None:
        return conflict
    copier = Copier(editor, nest.body, {}, forward=forward)
    copier.run(range(len(nest.body)))
    stores = (*map(own.store, group.nest.stores), *(copier.store(store) for store in nest.stores))
    if not _levels_are_sound(editor, stores, group):
        return "an outer-level value would depend on the inner loops"
    return replace(group.nest, body=tuple(editor.instructions), stores=stores)


def _write_after_read(group: Group, nest: LoopNest) -> str | None:
    """The nest may overwrite what the group reads only at the same point."""
    for store in nest.stores:
        if any(o.buffer == store.buffer and not are_beside(o.index[0], store.index[0]) for o in group.nest.stores):
            return f"both write {store.buffer}"
        for instruction in group.nest.body:
            if not isinstance(instruction, Load) or instruction.buffer != store.buffer:
                continue
            if instruction.index[0] != store.index[0]:
                return f"{store.buffer} is overwritten at other points than those read"
    return None


def _levels_are_sound(editor: Editor, stores: Sequence[Store], group: Group) -> bool:
    """A store whose address depends on outer loops only must store a value that does not vary over the inner ones."""
    inner, varying = set(group.inner), depends(editor.instructions, group.inner, group.inner)
    return all(bool(store.index[0].symbols & inner) or not varying[store.value] for store in stores)
