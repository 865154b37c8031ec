"""What the scheduler decides: kernels, their loops and vector plans, and the memory of buffers.

A kernel is one loop structure:

    for outer loops (the first `parallel` of them shared among threads):
        for each phase:                      # none for a pure pointwise kernel: then the body runs in the outer loops
            for inner loops:
                the phase's reductions and stores, and what they need
        stores that depend on outer loops only

Bodies use the instructions of `loop_nest`, but addresses are flat: `Load.index` and `Store.index` have exactly one
expression, the offset in elements from the start of the buffer (SSA values inside it as %k symbols).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch

from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.loop_nest import Instr, Store, View
from inductor_cpu.ir.nodes import (
    Attention,
    AttentionBackward,
    Extern,
    Patches,
    Program,
    Ranking,
    TilePacking,
    WeightGradient,
)


@dataclass(frozen=True)
class Phase:
    """One run over the inner loops: which Reduce instructions (positions) and which stores (numbers) it completes.

    A phase may use the results of reductions of earlier phases. A value that two phases need is computed twice, unless
    it is in `Kernel.kept`."""

    reduces: tuple[int, ...]
    stores: tuple[int, ...]


#: Distances of a few elements: loads of them read all that lies between, and sort it out in registers.
SHORT_STRIDES = range(2, 9)

#: Bytes of a cache line.
LINE_BYTES = 64


@dataclass(frozen=True)
class VectorPlan:
    """How a kernel is vectorized.

    loop: the loop whose consecutive points become lanes, None for scalar code. lanes: points per vector (16 for
    AVX-512, 8 for AVX2, for every dtype: wider types use several registers).
    access: for each Load position and for each store number (as -1 - number), one of "uniform" (same address in
    all lanes), "contiguous", "strided" (constant stride), "gather" (any address).
    reasons: why scalar."""

    loop: Sym | None
    lanes: int
    access: tuple[tuple[int, str], ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def vectorized(self) -> bool:
        """Whether the kernel has vector code."""
        return self.loop is not None


@dataclass(frozen=True)
class KernelArg:
    """A buffer that a kernel touches: read, written or both."""

    buffer: str
    dtype: torch.dtype
    reads: bool
    writes: bool


@dataclass(frozen=True)
class Product:
    """The matrix product whose blocks a kernel's loops finish: outer is then (rows, columns) of one block.

    a: the first operand, (rows, depth) or (batch, rows, depth); b: the packed one; accumulator: the name under which
    the body loads the block, whose leading dimension is the number of columns of a panel (`micro_of`). columns: of the
    whole product. row, panel: symbols of the block's first row, of all the batch, and of its panel; height, width: of
    its rows and columns. They have values inside the kernel only."""

    micro_kernel: str
    a: View | Patches
    b: str
    columns: Expr
    accumulator: str
    row: Sym
    panel: Sym
    height: Sym
    width: Sym

    @property
    def symbols(self) -> tuple[Sym, ...]:
        """The symbols that the kernel itself gives values."""
        return (self.row, self.panel, self.height, self.width)


@dataclass(frozen=True)
class Divided:
    """How threads divide a scatter whose points may meet in an element, with no loop that keeps them apart to share.

    pieces: the points run as so many equal pieces of the outermost loop, however many threads there are: the first adds
    to the buffer, each of the others to a copy of its own, and the copies are added to the buffer in their order.
    elements: of the buffer, all of which lie next to each other.
    place: a number that points which meet have in common. Where there is one piece, each thread goes through all
    points, in their order, and stores those whose places it owns. places: how many there are; least: fewer of them are
    left to one thread."""

    pieces: Expr
    elements: Expr
    place: Expr
    places: Expr
    least: int

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Its expressions of sizes."""
        return (self.pieces, self.elements, self.places)


@dataclass(frozen=True)
class Listed:
    """How a scatter into rows runs in turns with others: before the first turn, the points of its outermost loop are
    listed by the pieces of rows that they write, in their order within each; a turn runs those of its piece.

    row: the SSA value that is the row, which the outermost loop alone decides. Its size is the number of rows."""

    row: Sym

    @property
    def rows(self) -> int | None:
        """How many rows there are; None if that is not known."""
        return None if self.row.size is None else self.row.size.as_int


@dataclass(frozen=True)
class Kernel:
    """One generated function. outer, inner: loop symbols with sizes, outermost first, a loop's size may be symbolic.

    parallel: how many of the outer loops threads share (0: serial). work: rough cost of one point of the outer loops
    with all its inner points, in adds. kept: positions of inner-level values stored in a local row by the first phase
    that computes them and read back by later phases (only when the product of the inner sizes is constant). sizes: the
    size symbols it reads, in the order of its int arguments. product: the matrix product that it computes, its loops
    being the epilogue. across: the innermost outer loop, if threads share ranges of it, each for all points of the
    others. divided: how threads divide a scatter, with no loop to share. listed: of a scatter that runs in turns, where
    the rows that it writes take the place of its outermost loop."""

    label: str
    args: tuple[KernelArg, ...]
    sizes: tuple[Sym, ...]
    outer: tuple[Sym, ...]
    inner: tuple[Sym, ...]
    body: tuple[Instr, ...]
    stores: tuple[Store, ...]
    phases: tuple[Phase, ...]
    kept: tuple[int, ...]
    parallel: int
    work: Expr
    vector: VectorPlan
    origins: tuple[str, ...] = ()
    product: Product | None = None
    across: Sym | None = None
    divided: Divided | None = None
    listed: Listed | None = None


@dataclass(frozen=True)
class Strips:
    """Kernels that run in turns over pieces of their outermost loops, in one generated function, so that a piece of
    what they share is still in a cache.

    kernels: in order. The outermost loop of each (the rows of one that is listed) has units * shares[k] points; unit u
    is the points [u * shares[k], (u + 1) * shares[k]) of each kernel k. No unit reads what another one writes. units:
    how many there are; piece: how many of them run through all kernels before the next piece begins. local: (buffer,
    elements of a unit) of the temps that nobody else reads: they only live within a piece."""

    kernels: tuple[Kernel, ...]
    shares: tuple[int, ...]
    units: int
    piece: int
    local: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        """A name for people."""
        return self.kernels[-1].label

    @property
    def origins(self) -> tuple[str, ...]:
        """The FX nodes that it is of."""
        return tuple(dict.fromkeys(origin for kernel in self.kernels for origin in kernel.origins))

    @property
    def args(self) -> tuple[KernelArg, ...]:
        """The buffers outside of the pieces, those written first."""
        inside = {name for name, _ in self.local}
        merged: dict[str, KernelArg] = {}
        for arg in (arg for kernel in self.kernels for arg in kernel.args if arg.buffer not in inside):
            known = merged.get(arg.buffer, KernelArg(arg.buffer, arg.dtype, False, False))
            merged[arg.buffer] = KernelArg(arg.buffer, arg.dtype, known.reads or arg.reads, known.writes or arg.writes)
        return tuple(sorted(merged.values(), key=lambda arg: not arg.writes))

    @property
    def sizes(self) -> tuple[Sym, ...]:
        """The size symbols that it reads, sorted by name."""
        return tuple(sorted({size for kernel in self.kernels for size in kernel.sizes}, key=lambda s: s.name))


@dataclass(frozen=True)
class Scored:
    """An attention, and what becomes of its scores as a kernel: its loops (rows, keys) run over a block of scores, in
    one generated function with the template.

    block: the symbols, among the kernel's sizes, that the template gives values: batch, head, first row, first key,
    rows and keys of the block. The kernel's addresses of the attention's accumulator are within the block."""

    attention: Attention
    kernel: Kernel
    block: tuple[Sym, ...]

    @property
    def name(self) -> str:
        """The attention's."""
        return self.attention.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        return self.attention.reads

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffers that it writes."""
        return self.attention.outputs


Step = Union[Kernel, Strips, Extern, Attention, Scored, AttentionBackward, Ranking, TilePacking, WeightGradient]

#: Steps that are a call of a template.
CALLS = (Attention, Scored, AttentionBackward, Ranking, TilePacking, WeightGradient)


def kernels_of(step: Step) -> tuple[Kernel, ...]:
    """The kernels of loops in a step: itself, those that run in turns, what becomes of scores; none of other steps."""
    if isinstance(step, Strips):
        return step.kernels
    if isinstance(step, Scored):
        return (step.kernel,)
    return (step,) if isinstance(step, Kernel) else ()


@dataclass(frozen=True)
class ArenaPlace:
    """Where a temp lives: `offset` bytes into the arena."""

    offset: Expr


@dataclass(frozen=True)
class Schedule:
    """Kernels and extern calls in execution order, the memory plan, and why things were not fused.

    places: buffer name -> its place in the arena; buffers not named there are inputs, constants, extern results or
    outputs (allocated on their own). arena_bytes: the size of the arena."""

    program: Program
    steps: tuple[Step, ...]
    places: tuple[tuple[str, ArenaPlace], ...]
    arena_bytes: Expr
    notes: tuple[str, ...] = ()
