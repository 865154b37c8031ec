"""Pages that come next, for processors that follow runs by themselves (`Choices.runs`).

They follow a run to the end of its page of 4 KB and no further, and a store that waits for the first line of a page
holds up all that come after it. So a kernel that goes through rows, and in all through more than the last cache has
beside other memory, asks before each row for the first lines of the pages that begin with the next one or in it: of
results, and where little is computed, by vectors of AVX-512, of operands. Sums of these over long rows ask before each
stretch (`in_stretches`) for the pages of the next one. Kernels that store around the cache ask for nothing: their loads
come faster without.

Measured on an EPYC (Zen 4, 32 MB of last cache) in turns. Rows of 2 to 4 KB of f32 in norms and the gradient of a
softmax, 25 to 38 MB, took 0.86 to 0.93 of the time, but 6 to 9 MB up to 1.04; their sums over 50 MB 0.91 to 0.93. Light
rows of bf16 took 0.93 to 1.0 of the time if results alone were asked for, with operands 1.05 to 1.2; beside stores
around the cache 1.01 to 1.17. A sum of all of 50 MB took 0.78 of the time, of 21 MB 0.87 to 0.91, of 3 to 15 MB 0.99.
With vectors of AVX2 norms of 25 MB took 0.75 to 0.99 of the time if results alone were asked for, 0.87 to 1.0 with
operands, and a sum of squares of 13 MB 1.2. To look for the beginnings of pages in every vector takes longer than it
gains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.prefetch import FAR_BYTES, HEAVY, bytes_touched, row_bytes, streams
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.values import Values
from inductor_cpu.ir.index import ZERO

PAGE_BYTES = 4 << 10

#: Rows of fewer bytes would ask for each page too often.
LEAST_ROW_BYTES = 1 << 10

#: Rounds of a stretch, as `in_stretches` has them.
ROUNDS = 32

#: Elements of fewer bytes are converted.
WIDE_BYTES = 4

#: Vectors of fewer lanes ask for results alone.
LEAST_LANES = 16

#: The part of the last cache that a kernel's operands and results find in it.
SHARE_OF_CACHE = 0.75


@dataclass(frozen=True)
class Pages:
    """The next row is `distance` elements further on; `count` pages begin in it or at its start, at most."""

    distance: int
    count: int


def far_bytes(cache: int) -> int:
    """Kernels that go through more bytes do so out of memory. cache: bytes of the last level."""
    return int(cache * SHARE_OF_CACHE)


def next_pages(facts: Facts, far: int) -> dict[int, Pages]:
    """Access (as in `VectorPlan.access`) -> the pages of its next row, for those that ask for them."""
    kernel = facts.kernel
    if not kernel.outer or not _is_plain(facts) or not far < _total(facts) < math.inf:
        return {}
    light = _is_light(facts)
    found: dict[int, Pages] = {}
    for access in facts.access:
        wide = facts.itemsize(access) >= WIDE_BYTES
        asks_to_read = light and wide and kernel.vector.lanes >= LEAST_LANES
        asks = asks_to_read if access >= 0 else light or wide
        if not asks or not streams(facts, access):
            continue
        row, onward = row_bytes(facts, access, 1), facts.address(access).coefficient(kernel.outer[-1])
        stride = None if onward is None else onward.as_int
        if stride and LEAST_ROW_BYTES <= row <= FAR_BYTES and stride * facts.itemsize(access) == row:
            found[access] = Pages(stride, math.ceil(row / PAGE_BYTES))
    return found


def long_rows(facts: Facts) -> tuple[int, ...]:
    """The loads whose rows go through many pages."""
    if not _is_plain(facts) or not _is_light(facts) or facts.kernel.vector.lanes < LEAST_LANES:
        return ()
    loads = [k for k in facts.access if k >= 0 and facts.itemsize(k) >= WIDE_BYTES and streams(facts, k)]
    return tuple(k for k in loads if row_bytes(facts, k, 1) > FAR_BYTES)


def _is_plain(facts: Facts) -> bool:
    """Whether a kernel goes along rows, in the order of its loops."""
    kernel = facts.kernel
    whole = kernel.product is None and kernel.divided is None and kernel.across is None and kernel.listed is None
    return whole and facts.tile is None and kernel.vector.loop in kernel.inner


def _total(facts: Facts) -> float:
    """The bytes that a kernel goes through."""
    touched = {
        (facts.instruction(k).buffer, facts.address(k)): bytes_touched(facts, k)
        for k in facts.access
        if facts.load_access(k) == "contiguous"
    }
    return sum(touched.values())


def _is_light(facts: Facts) -> bool:
    body = range(len(facts.kernel.body))
    return facts.arithmetic(k for k in body if facts.level[k] > facts.outer_level) < HEAVY


class PageFetches:
    """Writes what a kernel asks for. far: bytes of a kernel whose operands come out of memory, None to ask for nothing;
    kernels that store around the cache do not."""

    def __init__(self, facts: Facts, values: Values, writer: Writer, far: int | None) -> None:
        self.facts, self.values, self.writer = facts, values, writer
        far = None if values.around else far
        self._rows = {} if far is None else next_pages(facts, far)
        self._long_rows = () if far is None else long_rows(facts)

    def before_row(self) -> None:
        """Ask for the pages that begin with the next row or in it."""
        start = dict.fromkeys(self.facts.kernel.inner, ZERO)
        for access, pages in sorted(self._rows.items()):
            if access not in self.values.ahead:
                there = self.facts.address(access).substitute(start) + pages.distance
                self._fetch(access, self.values.expr(there), pages.count)

    def before_stretch(self, vectors: int) -> None:
        """Ask for the pages of the stretch after that which begins at `from`. vectors: as many as a round has."""
        points = ROUNDS * vectors * self.facts.kernel.vector.lanes
        for access in self._long_rows:
            there = self.facts.address(access).substitute({self.facts.kernel.inner[-1]: ZERO}) + points
            pages = math.ceil(points * self.facts.itemsize(access) / PAGE_BYTES)
            self._fetch(access, f"{self.values.expr(there)} + from", pages)

    def _fetch(self, access: int, there: str, pages: int) -> None:
        pointer = self.values.pointer(self.facts.instruction(access).buffer)
        function = f"fetch_pages{'' if access >= 0 else '_to_write'}"
        self.writer.line(f"icpu::{function}<{pages}>({pointer}, {there});")
