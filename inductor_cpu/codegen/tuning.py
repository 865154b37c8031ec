"""Choices of the generator that only change speed or accuracy: unrolling, units per vector, cascaded sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from inductor_cpu.codegen.analysis import Facts, size_of
from inductor_cpu.codegen.around import MOST_KEPT
from inductor_cpu.ir.index import Expr, Sym, product
from inductor_cpu.ir.kernel import Kernel, Phase
from inductor_cpu.ir.loop_nest import Const, Load, Reduce, Scalar, Scan
from inductor_cpu.ir.ops import OPS
from inductor_cpu.ir.scatter import is_scatter

#: Copies of the accumulators in a reduction over lanes: enough to hide the latency of an add.
MAX_UNROLL = 4

#: A body with more values than this gains nothing from unrolling and grows the code.
LONG_BODY = 24

#: Terms that one lane may add up before rounding errors call for a cascade.
MAX_CHAIN = 512


#: Units per vector where lanes are results, if the body is light: a row of a few hundred channels is then read once.
MAX_UNITS = 8

#: Lanes of the vectors of which there are 32 registers; of narrower ones there are half as many.
WIDE = 16

#: Ops of this cost need registers for their own constants.
HEAVY = 20

#: Bytes of values that a block of columns may keep: a part of the L2 cache.
KEPT_BYTES = 256 << 10

#: Work, in adds, that pays for one more thread: an empty parallel region costs about a microsecond.
GRAIN = 20_480


@dataclass(frozen=True)
class Choices:
    """What settings and the machine's caches say about generated code. threads: most threads of a kernel, None for
    torch's number at the time of the call; grain: least work of a thread, in adds; tiling: turn square tiles over in
    registers where operands are contiguous along different loops; kept: bytes of results that no cache keeps;
    tiles_kept: of those that are written in tiles, None to leave these to the cache; runs: ask for memory ahead also
    where neighbours follow one another, which some processors find out faster themselves; far: kernels that go through
    more bytes ask for the pages that rows begin; None: no kernel does, nor for those of long sums."""

    threads: int | None = None
    grain: int = GRAIN
    tiling: bool = True
    kept: int = MOST_KEPT
    runs: bool = True
    tiles_kept: int | None = None
    far: int | None = None

    @property
    def most_threads(self) -> str:
        """The most threads of a kernel, as C++."""
        return "icpu::most_threads()" if self.threads is None else str(self.threads)

    def threads_for(self, work: str) -> str:
        """The threads that some work, an int64_t, pays for, as C++."""
        limit = "" if self.threads is None else f", {self.threads}"
        return f"icpu::threads_for({work}, {self.grain}{limit})"


def total_work(kernel: Kernel) -> Expr:
    """Rough cost of the whole kernel, in adds."""
    if kernel.product is not None:
        rows, depth = kernel.product.a.sizes
        return (kernel.work + depth) * rows * kernel.product.columns
    return kernel.work * product(size_of(s) for s in kernel.outer)


def _extent(sizes: list[Expr]) -> int | None:
    return product(sizes).as_int


def unroll_of(facts: Facts, phase: Phase, needed: frozenset[int]) -> int:
    """Copies of a phase's step over vectors; more than 1 only where the vectorized loop is the innermost one."""
    kernel = facts.kernel
    if not phase.reduces or kernel.vector.loop is None or kernel.inner[-1] != kernel.vector.loop:
        return 1
    inside = [k for k in needed if facts.level[k] == facts.inner_level and not isinstance(kernel.body[k], Const)]
    size = kernel.vector.loop.size
    vectors = None if size is None or size.as_int is None else size.as_int // kernel.vector.lanes
    if len(inside) > LONG_BODY or (vectors is not None and vectors < 2):
        return 1
    return MAX_UNROLL if vectors is None or vectors >= MAX_UNROLL else 2


def vertical_units(facts: Facts) -> int:
    """Units per vector where the lanes are outputs of a reduction: several, so that several rows' adds overlap, and
    more of each row is read at a time. Values that are kept for a later phase must fit the cache."""
    kernel = facts.kernel
    vector = kernel.vector.loop
    if vector is None or vector not in kernel.outer or not kernel.inner or len(kernel.body) > LONG_BODY:
        return 1
    if any(needs_alignment(facts, position, vector) for position in facts.access):
        return 1
    lanes = kernel.vector.lanes
    size = None if vector.size is None else vector.size.as_int
    terms = _extent([s.size for s in kernel.inner if s.size is not None]) or 1
    kept = sum(kernel.body[k].dtype.itemsize for k in kernel.kept) * terms * lanes
    lines = any(facts.load_access(access) == "contiguous" for access in facts.access)
    most = 1 if not lines else MAX_UNITS if size is not None and _is_light(facts) else 4
    if size is None:
        return next((units for units in (4, 2) if units * kept <= KEPT_BYTES), 1)
    vectors = size // lanes
    fitting = [units for units in range(2, most + 1) if units <= vectors and units * kept <= KEPT_BYTES]
    return min(fitting, key=lambda units: (vectors // units + vectors % units, -units), default=1)


def _is_light(facts: Facts) -> bool:
    """Whether the values inside the loops fit the registers with MAX_UNITS of each sum, or nearly: whole rows are worth
    some sums in memory."""
    inside = [i for k, i in enumerate(facts.kernel.body) if facts.level[k] > facts.outer_level]
    wide = any(instr.dtype.itemsize > 4 for instr in inside)
    sums = [instr for instr in facts.kernel.body if isinstance(instr, Reduce)]
    at_once = max((len(phase.reduces) for phase in facts.kernel.phases), default=0)
    most = 1 if any(isinstance(instr, Load) and instr.dtype.itemsize < 4 for instr in inside) else 2
    if facts.kernel.vector.lanes < WIDE and (at_once > most or any(instr.dtype.itemsize > 4 for instr in sums)):
        return False
    return not wide and all(OPS[instr.op].cost < HEAVY for instr in inside if isinstance(instr, Scalar))


_SIMPLE = ("contiguous", "uniform", "periodic", "ordered")


def pointwise_units(facts: Facts) -> int:
    """Units per vector of a pointwise kernel: several if one does not fill a register with the narrowest operand."""
    kernel = facts.kernel
    vector = kernel.vector.loop
    if vector is None or kernel.inner or facts.tile is not None:
        return 1
    if vector != kernel.outer[-1] and kernel.product is None:
        return 1
    if any(map(is_scatter, kernel.stores)) or len(kernel.body) > LONG_BODY:
        return 1
    return _filling_units(facts, facts.access, range(len(kernel.body)))


def storing_units(facts: Facts, phase: Phase, needed: frozenset[int]) -> int:
    """The same for a phase that stores along the lanes of one result and reduces nothing."""
    kernel = facts.kernel
    if phase.reduces or not kernel.inner or kernel.inner[-1] != kernel.vector.loop or len(needed) > LONG_BODY:
        return 1
    if any(isinstance(kernel.body[k], Scan) for k in needed) or facts.periods:
        return 1
    loads = [k for k in needed if isinstance(kernel.body[k], Load) and k not in kernel.kept]
    return _filling_units(facts, [*loads, *(-1 - number for number in phase.stores)], needed)


def _filling_units(facts: Facts, accesses: Iterable[int], values: Iterable[int]) -> int:
    """Units that fill a register with the narrowest of these accesses, if all are simple and no value is too wide."""
    kernel, accesses = facts.kernel, tuple(accesses)
    vector = kernel.vector.loop
    assert vector is not None
    if not all(facts.load_access(a) in _SIMPLE and not needs_alignment(facts, a, vector) for a in accesses):
        return 1
    narrowest = min((facts.itemsize(a) for a in accesses if facts.load_access(a) == "contiguous"), default=4)
    widest = max((kernel.body[k].dtype.itemsize for k in values if facts.varying[k]), default=4)
    units = min(4 // min(narrowest, 4), 16 // max(widest, 4))
    size = None if vector.size is None else vector.size.as_int
    return units if size is None or size >= units * kernel.vector.lanes else 1


def cascade_needed(facts: Facts, dtype: torch.dtype, vector: bool) -> bool:
    """Whether a sum adds so many terms per lane that it must sum blocks."""
    if not dtype.is_floating_point:
        return False
    kernel = facts.kernel
    terms = _extent([s.size for s in kernel.inner if s.size is not None])
    lanes = kernel.vector.lanes if vector and kernel.vector.loop in kernel.inner else 1
    return terms is None or terms > MAX_CHAIN * lanes


def needs_alignment(facts: Facts, position: int, vector: Sym) -> bool:
    """Whether an access is uniform or contiguous only within a unit: its address changes in steps of the unit."""
    coefficient = facts.address(position).coefficient(vector)
    access = facts.load_access(position)
    if access == "ordered":
        return facts.orders[position].step is None
    if access == "uniform":
        return coefficient is None or bool(coefficient.terms)
    return access == "contiguous" and coefficient is None
