"""How long a kernel would take if nothing but memory, or nothing but arithmetic, took time: notes for people.

Counted are elements that a kernel must touch once, and its arithmetic in adds; sizes that are not known count as in
`cost.hint`. What a cache saves or a stride wastes is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Load
from inductor_cpu.ir.rewrite import loops_read, value_positions
from inductor_cpu.schedule.cost import hint, points

#: Adds of a core for each lane of its vectors while memory gives it one byte: two vectors a cycle at 3 GHz, 12 GB/s.
ADDS_PER_BYTE_AND_LANE = 0.5


@dataclass(frozen=True)
class Estimate:
    """read, written: bytes; adds: arithmetic in units of one addition."""

    read: int
    written: int
    adds: int

    @property
    def intensity(self) -> float:
        """Adds for each byte that moves."""
        return self.adds / max(self.read + self.written, 1)

    def bound(self, lanes: int) -> str:
        """What decides on a core with vectors of so many lanes (0: scalar code): "memory" or "arithmetic"."""
        return "memory" if self.intensity <= ADDS_PER_BYTE_AND_LANE * max(lanes, 1) else "arithmetic"


def estimate(kernel: Kernel) -> Estimate:
    """The roofline of a kernel whose loops are all of its work (not a matrix product)."""
    read: dict[tuple[str, Expr], int] = {}
    reads = loops_read(kernel.body, ())
    for instruction in kernel.body:
        if isinstance(instruction, Load):
            key = instruction.buffer, instruction.index[0]
            read[key] = _touched(kernel, key[1], instruction.dtype, reads)
    written: dict[tuple[str, Expr], int] = {}
    for store in kernel.stores:
        key = store.buffer, store.index[0]
        written[key] = _touched(kernel, key[1], kernel.body[store.value].dtype, reads)
        if store.mode == "add":
            read[key] = written[key]
    return Estimate(sum(read.values()), sum(written.values()), hint(kernel.work) * points(kernel.outer))


def note(kernel: Kernel) -> str:
    """A line for the schedule's notes."""
    found = estimate(kernel)
    return (
        f"{kernel.label}: {_bytes(found.read)} in, {_bytes(found.written)} out, {found.intensity:.1f} adds a byte:"
        f" {found.bound(kernel.vector.lanes)} bounds it"
    )


def _touched(kernel: Kernel, address: Expr, dtype: torch.dtype, reads: Sequence[frozenset[Sym]]) -> int:
    """Bytes of the elements at an address over all loops, if different points touch different ones. reads: the loops
    that each value depends on."""
    symbols = address.symbols.union(*(reads[k] for k in value_positions((address,))))
    loops = [loop for loop in (*kernel.outer, *kernel.inner) if loop in symbols]
    return points(loops) * dtype.itemsize


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
