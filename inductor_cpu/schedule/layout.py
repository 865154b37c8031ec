"""Temporaries that lie across what their neighbours go along are laid out in rows.

A result has the strides of its operand in eager mode, and so has the temp that stands for it. A sum of a linear layer's
rows and of an image's pixels with their dimensions exchanged, as in the transformers of a mobilevit, then has its
columns 784 elements apart: each panel of the product stores, and each row that is normalized loads, one element at a
time. Nobody but loop nests sees such a temp, and these address it by index, so it may lie in another way: in the order
of its dimensions, if more of what the nests access beside it goes along the last one than along its own neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inductor_cpu.ir.index import ONE, ZERO, Expr, Sym, contiguous_strides
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest
from inductor_cpu.ir.nodes import Node
from inductor_cpu.schedule.uses import reads_of, writes_of


@dataclass(frozen=True)
class Access:
    """An element of a buffer that a nest loads or stores at each of its points."""

    buffer: str
    index: tuple[Expr, ...]

    def loops(self) -> frozenset[Sym]:
        return frozenset(s for expr in self.index for s in expr.symbols if s.kind == "loop")

    def goes_along(self, strides: Sequence[Expr]) -> Sym | None:
        """The loop that goes from neighbour to neighbour."""
        address = sum((e * stride for e, stride in zip(self.index, strides, strict=True)), ZERO)
        return next((loop for loop in self.loops() if address.coefficient(loop) == ONE), None)


def lay_out(buffers: Mapping[str, Buffer], nodes: Sequence[Node]) -> dict[str, Buffer]:
    """The buffers, some temps of which only loop nests know with other strides."""
    found = dict(buffers)
    seen_by_others: set[str] = set()
    nests: dict[str, list[tuple[Access, ...]]] = defaultdict(list)
    for node in nodes:
        names = reads_of(node) | writes_of(node)
        if not isinstance(node, LoopNest):
            seen_by_others |= names
            continue
        accesses = tuple(dict.fromkeys(_accesses(node)))
        for name in names:
            nests[name].append(accesses)
    for name, around in nests.items():
        buffer, rows = found[name], contiguous_strides(buffers[name].sizes)
        across = any(n != 1 and s != r for n, s, r in zip(buffer.sizes, buffer.strides, rows, strict=True))
        if buffer.kind == "temp" and name not in seen_by_others and across and _prefers(rows, buffer, around, found):
            found[name] = replace(buffer, strides=rows)
    return found


def _accesses(nest: LoopNest) -> Iterator[Access]:
    yield from (Access(instr.buffer, instr.index) for instr in nest.body if isinstance(instr, Load))
    yield from (Access(store.buffer, store.index) for store in nest.stores)


def _prefers(
    rows: tuple[Expr, ...], buffer: Buffer, nests: Sequence[tuple[Access, ...]], buffers: Mapping[str, Buffer]
) -> bool:
    """Whether more of the accesses beside those to a buffer go along its rows than along its neighbours."""
    votes = 0
    for accesses in nests:
        for own in (access for access in accesses if access.buffer == buffer.name):
            loops, with_rows, as_is = own.loops(), own.goes_along(rows), own.goes_along(buffer.strides)
            if with_rows == as_is:
                continue
            for other in accesses:
                if other.buffer != buffer.name and other.loops() >= loops:
                    along = other.goes_along(buffers[other.buffer].strides)
                    votes += (along is not None) * ((along == with_rows) - (along == as_is))
    return votes > 0
