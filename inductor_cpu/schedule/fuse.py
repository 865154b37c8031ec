"""Fusion of flat nests into groups that become one kernel each.

A nest joins a group when both walk the same points (legality, with a reason) and share data (profit). The same points
are found through a buffer that both access (see `points.py`). A value that the group has just stored is then used from
its register.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import Union

from inductor_cpu.ir.index import Expr, Sym, loop_var, of
from inductor_cpu.ir.loop_nest import Load, LoopNest, Reduce, Scan, Store
from inductor_cpu.ir.nodes import Extern, Gemm, Node, Program, Templated
from inductor_cpu.ir.rewrite import Copier, Editor, operands
from inductor_cpu.schedule.flat import expressions, fixes_order, merge_loops, substitute_loops
from inductor_cpu.schedule.lifetimes import Lifetimes
from inductor_cpu.schedule.points import Alignment, align, linear
from inductor_cpu.schedule.rows import in_digits, over_whole_rows
from inductor_cpu.schedule.uses import defined_symbols, reads_of, writes_of

MAX_INSTRUCTIONS = 320
MAX_BUFFERS = 32
#: Buffers of a group without loops: what it holds is a list of single elements (counters of batch norms, scalars).
MAX_ELEMENTS = 256
#: How many of the latest groups a nest is compared with.
WINDOW = 12
#: Points of the inner loops whose operands a second-level cache holds.
ROW_POINTS = 1 << 15
#: Nests up to which a group takes in others that only read what it reads.
HORIZONTAL = 16


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
        """The one address at which the group accesses a buffer, a store's first."""
        for store in self.nest.stores:
            if store.buffer == buffer and store.mode == "set" and store.mask is None:
                return store.index[0]
        for instruction in self.nest.body:
            if isinstance(instruction, Load) and instruction.buffer == buffer:
                return instruction.index[0]
        return None


#: What becomes one step: a group, or a call that stays where it is.
Item = Union[Group, Extern, Templated]


@dataclass(frozen=True)
class Fused:
    """The result: groups and calls in order, and why neighbours were not fused."""

    items: tuple[Item, ...]
    notes: tuple[str, ...]


def fuse(program: Program, nodes: Sequence[Node], horizontal: int = HORIZONTAL) -> Fused:
    """Put flat nests into groups, in program order. A nest joins a group that it does not depend on only while the
    group has fewer than `horizontal` nests."""
    return _Fuser(program, nodes, horizontal).run(nodes)


class _Fuser:
    def __init__(self, program: Program, nodes: Sequence[Node], horizontal: int) -> None:
        self.horizontal, self.lifetimes = horizontal, Lifetimes(program, nodes)
        self.position = 0  # of the node that is being placed
        self.items: list[Item] = []
        self.names = (f"p{k}" for k in count())
        self.gemms: dict[str, Gemm] = {}  # by accumulator, those whose epilogue has not come yet
        self.calls = {
            node.name: (reads_of(node), writes_of(node) | _names(defined_symbols(program, node)))
            for node in program.nodes
            if isinstance(node, (Extern, Templated))
        }
        #: Size symbols that an extern call gives a value; in the sets of reads and writes they stand beside buffers.
        self.late = frozenset().union(*(writes for _, writes in self.calls.values()))
        self.notes: list[str] = []

    def run(self, nodes: Sequence[Node]) -> Fused:
        for self.position, node in enumerate(nodes):
            if isinstance(node, (Extern, Templated)):
                self.items.append(node)
            elif isinstance(node, Gemm):
                self.gemms[node.accumulator] = node
            elif accumulators := reads_of(node) & self.gemms.keys():
                self._begin_epilogue(node, self.gemms.pop(accumulators.pop()))
            elif not self._join(node):
                reads = reads_of(node) | self._late_sizes(node)
                self.items.append(Group(node.dims, node.reduce_dims, node, [node.name], reads, writes_of(node)))
        return Fused(tuple(self.items), tuple(self.notes))

    def _begin_epilogue(self, nest: LoopNest, gemm: Gemm) -> None:
        """A group for a matrix product. It reads the operands too, so that nothing that changes them comes between."""
        reads = reads_of(nest) | reads_of(gemm) | self._late_sizes(nest)
        self.items.append(Group(nest.dims, nest.reduce_dims, nest, [nest.name], reads, writes_of(nest), gemm))

    def _join(self, nest: LoopNest) -> bool:
        reads, writes = reads_of(nest) | self._late_sizes(nest), writes_of(nest)
        earliest = self._last_conflict(reads, writes)
        for position in self._candidates(nest, reads):
            group = self.items[position]
            assert isinstance(group, Group)
            if group.has_loops and not group.writes & reads and len(group.members) >= self.horizontal:
                self.notes.append(f"{nest.name} not with {group.members[0]}: it has {len(group.members)} loops already")
                continue
            sink = earliest > position
            if sink and not self._can_move(position, len(self.items)):
                self.notes.append(f"{nest.name} not with {group.members[0]}: another step lies between")
                continue
            reason = join(group, nest, self.names)
            if reason is None:
                group.reads |= reads
                if sink:
                    self.items.append(self.items.pop(position))
                self._join_producers(len(self.items) - 1 if sink else position)
                return True
            self.notes.append(f"{nest.name} not with {group.members[0]}: {reason}")
        return False

    def _join_producers(self, position: int) -> None:
        """Let earlier groups that compute what a group reads become part of it: a nest that reads two of them has
        joined the later one."""
        group = self.items[position]
        assert isinstance(group, Group)
        for earlier in range(position - 1, max(position - WINDOW, 0) - 1, -1):
            producer = self.items[earlier]
            if not isinstance(producer, Group) or producer.gemm is not None or group.gemm is not None:
                continue
            if not producer.has_loops or not producer.writes & group.reads or not self._can_move(earlier, position):
                continue
            if not all(map(_keeps_rows_in_cache, (producer, group))):
                continue
            members, reads = group.members, producer.reads | group.reads
            if join(producer, group.nest, self.names) is None:
                producer.members[-1:] = members
                producer.reads |= reads
                self.items[position] = producer
                del self.items[earlier]
                position, group = position - 1, producer

    def _accesses(self, item: Item) -> tuple[set[str], set[str]]:
        """What an item reads and writes."""
        return (item.reads, item.writes) if isinstance(item, Group) else self.calls[item.name]

    def _late_sizes(self, nest: LoopNest) -> set[str]:
        """Size symbols in a nest that an earlier extern call must have given a value."""
        if not self.late:
            return set()
        found = {symbol for expr in expressions(nest.body, nest.stores) for symbol in expr.symbols}
        found |= {s for loop in (*nest.dims, *nest.reduce_dims) if loop.size is not None for s in loop.size.symbols}
        return _names(found) & self.late

    def _last_conflict(self, reads: set[str], writes: set[str]) -> int:
        """The last step that must come before the nest."""
        for position in range(len(self.items) - 1, -1, -1):
            item_reads, item_writes = self._accesses(self.items[position])
            if item_writes & (reads | writes) or item_reads & writes:
                return position
        return -1

    def _candidates(self, nest: LoopNest, reads: set[str]) -> list[int]:
        """Groups to try: first those that produce what the nest reads, then those that read the same; latest first.
        Nests without loops have the same (single) point, and gain from one call in place of many."""
        recent = [p for p, item in enumerate(self.items) if isinstance(item, Group)][-WINDOW:]
        groups = [(p, self.items[p]) for p in reversed(recent)]
        producers = [p for p, g in groups if isinstance(g, Group) and g.writes & reads]
        sharers = [p for p, g in groups if isinstance(g, Group) and g.reads & reads and p not in producers]
        others: list[int] = []
        if _has_no_loops(nest):
            found = {p for p, item in enumerate(self.items) if isinstance(item, Group) and not item.has_loops}
            others = sorted(found - {*producers, *sharers}, reverse=True)
        return producers + sharers + others

    def _can_move(self, position: int, end: int) -> bool:
        """Whether a group may run after all others that come before number `end`."""
        reads, writes = self._accesses(group := self.items[position])
        for item in self.items[position + 1 : end]:
            item_reads, item_writes = self._accesses(item)
            if writes & (item_reads | item_writes) or reads & item_writes:
                return False
        if all(isinstance(item, Group) and item.gemm is None for item in self.items[position + 1 : end]):
            return True
        loops = (*group.outer, *group.inner) if isinstance(group, Group) else ()
        return not self.lifetimes.too_many_wait(reads, loops, self.position)


def _keeps_rows_in_cache(group: Group) -> bool:
    """Whether a later pass over the inner loops finds in a cache what an earlier one has read: short rows of
    neighbours. Long columns come from memory in every pass, and are read best by kernels that do little else."""
    if not group.inner:
        return True
    sizes = [1 if loop.size is None else loop.size.as_int for loop in group.inner]
    rows = [i.index[0] for i in group.nest.body if isinstance(i, Load) and i.index[0].symbols & set(group.inner)]
    short = None not in sizes and prod(size or 1 for size in sizes) <= ROW_POINTS
    return short and all(address.coefficient(group.inner[-1]) == 1 for address in rows)


def _names(symbols: Iterable[Sym]) -> set[str]:
    return {symbol.name for symbol in symbols}


# -- joining ---------------------------------------------------------------------------------------------------------
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
    if not group.has_loops and _has_no_loops(nest):
        fused = _merge(group, nest)
        if not isinstance(fused, str):
            _add(group, group, fused, nest)
            return None
        return fused
    if group.gemm is not None:
        if nest.reduce_dims:
            return "a reduction needs more than a block of a matrix product"
        # One loop over rows that two loops make, as the product has it, and more than one where it has them otherwise.
        nest = in_digits(merge_loops(nest), group.writes, names)
    reason = "no common buffer gives the same points"
    for buffer in _shared(group, nest):
        plan = _aligned(group, nest, buffer, names)
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


def _has_no_loops(nest: LoopNest) -> bool:
    return not nest.dims and not nest.reduce_dims


def _scatters(nest: LoopNest) -> bool:
    return any(
        s.mode != "set" or s.mask is not None or any(e.kind == "value" for e in s.index[0].symbols) for s in nest.stores
    )


def _shared(group: Group, nest: LoopNest) -> list[str]:
    """Buffers that both access, those that the group writes first."""
    nest_reads = [i.buffer for i in nest.body if isinstance(i, Load)]
    common = dict.fromkeys(b for b in nest_reads if b in group.writes)
    common.update(dict.fromkeys(b for b in nest_reads if b in group.reads))
    return list(common)


def _aligned(group: Group, nest: LoopNest, buffer: str, names: Iterator[str]) -> tuple[Group, LoopNest] | None:
    """Both over the same loops, cut into pieces where they differ, such that they access the buffer at one address."""
    own, address = _address_in(nest, buffer), group.address_of(buffer)
    if own is None or address is None:
        return None
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
    stored: dict[str, Store] = {store.buffer: store for store in group.nest.stores}
    forward: dict[int, int] = {}
    for position, instruction in enumerate(nest.body):
        if isinstance(instruction, Load) and instruction.buffer in stored:
            store = stored[instruction.buffer]
            if instruction.mask is not None or store.index[0] != instruction.index[0]:
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
        if store.buffer in group.writes:
            return f"both write {store.buffer}"
        for instruction in group.nest.body:
            if not isinstance(instruction, Load) or instruction.buffer != store.buffer:
                continue
            if instruction.index[0] != store.index[0]:
                return f"{store.buffer} is overwritten at other points than those read"
    return None


def _levels_are_sound(editor: Editor, stores: Sequence[Store], group: Group) -> bool:
    """A store whose address depends on outer loops only must store a value that does not vary over the inner ones."""
    inner = set(group.inner)
    varying: list[bool] = []
    for instruction in editor.instructions:
        own = isinstance(instruction, Scan) or bool(_own_symbols(instruction) & inner)
        varying.append(not isinstance(instruction, Reduce) and (own or any(varying[p] for p in operands(instruction))))
    return all(bool(store.index[0].symbols & inner) or not varying[store.value] for store in stores)


def _own_symbols(instruction: object) -> frozenset[Sym]:
    if isinstance(instruction, Load):
        return instruction.index[0].symbols
    expr = getattr(instruction, "expr", None)
    return expr.symbols if isinstance(expr, Expr) else frozenset()
