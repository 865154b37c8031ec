"""How long operands stay in memory when a nest runs later than where the program has it.

The gradients of a weight that many layers share are added one by one. As one loop at the end the sum would read each of
them once, but all would have to be there: of a model with twelve such layers twelve times its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod

from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.ir.nodes import Node, Program
from inductor_cpu.schedule.cost import hint
from inductor_cpu.schedule.uses import reads_of, result_buffers

#: So many operands that nobody else reads may wait for a later step.
MOST_WAITING = 4


class Lifetimes:
    """Where what the program itself makes is read last, as positions in a list of nodes."""

    def __init__(self, program: Program, nodes: Sequence[Node]) -> None:
        results = result_buffers(program)
        made = (b for b in program.buffers if b.kind in ("temp", "extern") and b.name not in results)
        self._elements = {buffer.name: prod(hint(size) for size in buffer.sizes) for buffer in made}
        self._last = {name: k for k, node in enumerate(nodes) for name in reads_of(node)}
        self._calls = [0, *accumulate(not isinstance(node, LoopNest) for node in nodes)]

    def passes_call(self, first: int, last: int) -> bool:
        """Whether something else than a loop nest lies between two positions."""
        return self._calls[last] > self._calls[first + 1]

    def too_many_wait(self, reads: Iterable[str], loops: Sequence[Sym], until: int) -> bool:
        """Whether more operands than is good would wait until a position before which all their readers come: those
        with an element for each point of the loops."""
        points = prod(hint(loop.size) for loop in loops if loop.size is not None)
        ended = (name for name in reads if self._elements.get(name, 0) >= points and self._last.get(name, 0) < until)
        return sum(1 for _ in ended) > MOST_WAITING
