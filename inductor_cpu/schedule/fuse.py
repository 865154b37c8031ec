"""Fusion of flat nests into groups that become one kernel each.

A nest joins a group when both walk the same points (legality, with a reason: `group.py`) and share data (profit).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Union

from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.loop_nest import Load, LoopNest
from inductor_cpu.ir.nodes import Extern, Gemm, Node, Program, Templated
from inductor_cpu.schedule.flat import expressions
from inductor_cpu.schedule.group import Group, has_no_loops, join
from inductor_cpu.schedule.lifetimes import Lifetimes
from inductor_cpu.schedule.uses import defined_symbols, reads_of, writes_of

#: How many of the latest groups a nest is compared with.
WINDOW = 12
#: Points of the inner loops whose operands a second-level cache holds.
ROW_POINTS = 1 << 15
#: Nests up to which a group takes in others that only read what it reads.
HORIZONTAL = 16

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
        """Groups to try: first those that produce what the nest reads, then those that read the same or write into the
        same buffer; latest first. Nests without loops have the same (single) point, and gain from one call in place of
        many."""
        recent = [p for p, item in enumerate(self.items) if isinstance(item, Group)][-WINDOW:]
        groups = [(p, self.items[p]) for p in reversed(recent)]
        producers = [p for p, g in groups if isinstance(g, Group) and g.writes & reads]
        writes = writes_of(nest)
        sharers = [
            p
            for p, g in groups
            if isinstance(g, Group) and (g.reads & reads or g.writes & writes) and p not in producers
        ]
        others: list[int] = []
        if has_no_loops(nest):
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
