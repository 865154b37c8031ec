"""Rows of kept values: what one phase of a kernel computes for each point of the inner loops and a later one reads."""

from __future__ import annotations

from inductor_cpu.codegen.analysis import STAGE, Facts, size_of
from inductor_cpu.codegen.cxx import LANE, SCALAR
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import vertical_units
from inductor_cpu.codegen.values import Values
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Sym, const, of

#: Rows of kept values up to this many bytes live on the stack.
STACK_BYTES = 32 << 10


class Rows:
    """Declares the rows of one kernel, and writes what goes into them and comes out."""

    def __init__(self, facts: Facts, values: Values, writer: Writer) -> None:
        self.facts, self.kernel, self.values, self.writer = facts, facts.kernel, values, writer
        self.kept = frozenset(k for k in self.kernel.kept if facts.level[k] > facts.outer_level)

    def declare(self) -> None:
        """Write the declarations: short rows on the stack, others in the thread's own memory."""
        for slot, k in enumerate(sorted(self.kept)):
            count = 1
            for extent in self._extents(k):
                count *= extent
            if self._is_block(k):
                count *= self.kernel.vector.lanes * vertical_units(self.facts)
            kind = self._type(k)
            if count * self.kernel.body[k].dtype.itemsize * 2 <= STACK_BYTES:
                self.writer.line(f"alignas(64) {kind} row{k}[{count}];")
            else:
                self.writer.line(f"{kind}* const row{k} = icpu::scratch<{kind}, {slot}>({count});")

    def save(self, position: int) -> None:
        """Write a value into its row."""
        self.writer.line(f"icpu::store({self._place(position)}, v{position}{self._lanes(position)});")

    def restore(self, position: int) -> None:
        """Read a value from its row."""
        self.values.define(position, f"icpu::load({self._place(position)}{self._lanes(position)})")

    def _loops(self, position: int) -> list[Sym]:
        """The inner loops that a kept value depends on being inside of, the vectorized one last."""
        loops = [s for s in self.kernel.inner if self.facts.depth[s] <= self.facts.level[position]]
        return sorted(loops, key=lambda s: s == self.kernel.vector.loop)

    def _extents(self, position: int) -> list[int]:
        extents = []
        for loop in self._loops(position):
            size = size_of(loop).as_int
            if size is None:
                raise InternalError(STAGE, f"{self.kernel.label}: %{position} is kept, but {loop} has no constant size")
            lanes = self.kernel.vector.lanes
            extents.append(-(-size // lanes) * lanes if loop == self.kernel.vector.loop else size)
        return extents

    def _type(self, position: int) -> str:
        dtype = self.kernel.body[position].dtype
        return LANE[dtype] if self.facts.varying[position] else SCALAR[dtype]

    def _place(self, position: int) -> str:
        offset, stride = const(0), 1
        for loop, extent in reversed(list(zip(self._loops(position), self._extents(position), strict=True))):
            offset, stride = offset + of(loop) * stride, stride * extent
        if not self._is_block(position) or vertical_units(self.facts) == 1:
            step = self.kernel.vector.lanes if self._is_block(position) else 1
            return f"row{position} + {self.values.expr(offset * step)}"
        return f"row{position} + ({self.values.expr(offset)}) * lanes.units * {self.kernel.vector.lanes}"

    def _is_block(self, position: int) -> bool:
        """Whether a kept value is a vector at each point of the inner loops."""
        return self.facts.varying[position] and self.kernel.vector.loop not in self.kernel.inner

    def _lanes(self, position: int) -> str:
        """The lanes of a row's vectors: whole ones, also at its end."""
        return ", icpu::Full<lanes.units>{}" if self.facts.varying[position] else ""
