"""Which loops of a kernel its threads share.

Points of a scatter that may meet must run in their order, in one thread: only loops that keep its points apart are
shared, and stand first for it. Where the lanes alone do, as in the sum of gradients of an embedding's rows, their loop
is cut into pieces, or threads share ranges of it: each adds up some columns of every row, in the order in which one
thread would. Where no loop does, or too few points of one, `divide.py` has other ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inductor_cpu.ir.index import Sym, loop_var, of
from inductor_cpu.ir.kernel import VectorPlan
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.ir.scatter import is_scatter, keeps_apart, reads_what_others_write
from inductor_cpu.schedule.cost import points
from inductor_cpu.schedule.flat import substitute_loops

#: Outer loops are shared among threads as far in as needed to have this many points for each thread.
POINTS_PER_THREAD = 8

#: Elements of a piece are a multiple of this: a cache line of the narrowest wide type, and a vector of any target.
PIECE = 16


def in_order(nest: LoopNest, vector: VectorPlan) -> LoopNest:
    """The nest with its loops in the order in which one thread runs them."""
    inside = None if _keeps_its_place(nest, vector) else vector.loop
    return replace(nest, dims=_last(nest.dims, inside), reduce_dims=_last(nest.reduce_dims, inside))


def share(nest: LoopNest, vector: VectorPlan, cores: int) -> tuple[LoopNest, VectorPlan, int]:
    """The nest with its loops in the order in which they run, and how many of the outer ones threads share."""
    nest = in_order(nest, vector)
    if reads_what_others_write(nest.body, nest.stores):
        return nest, vector, 0
    if not any(map(is_scatter, nest.stores)):
        return nest, vector, parallel_depth(nest.dims, vector.loop, cores)
    first = [loop for loop in nest.dims[:-1] if keeps_apart(loop, nest.stores)]
    if first:
        dims = (*first, *(loop for loop in nest.dims if loop not in first))
        return replace(nest, dims=dims), vector, parallel_depth(first, None, cores)
    if nest.dims and keeps_apart(nest.dims[-1], nest.stores):
        return _in_pieces(nest, vector, cores)
    return nest, vector, 0


def across(nest: LoopNest, parallel: int, cores: int) -> Sym | None:
    """The innermost loop of a scatter, if threads share ranges of it for want of other loops."""
    if parallel or cores < 2 or nest.reduce_dims or len(nest.dims) < 2 or not any(map(is_scatter, nest.stores)):
        return None
    loop, alone = nest.dims[-1], reads_what_others_write(nest.body, nest.stores)
    return loop if not alone and points([loop]) > PIECE and keeps_apart(loop, nest.stores) else None


def _keeps_its_place(nest: LoopNest, vector: VectorPlan) -> bool:
    """Whether the lanes of a reduction gain nothing from being innermost: none are neighbours in memory, and the loops
    inside of theirs go through memory in order."""
    folds = bool(nest.reduce_dims) and vector.loop in nest.dims
    return folds and all(kind != "contiguous" for _, kind in vector.access)


def _last(loops: tuple[Sym, ...], loop: Sym | None) -> tuple[Sym, ...]:
    """The loops with this one, if it is among them, innermost."""
    return (*(s for s in loops if s != loop), *(s for s in loops if s == loop))


def parallel_depth(loops: Sequence[Sym], vector: Sym | None, cores: int) -> int:
    """How many loops, from the outermost, give each thread enough points; the vectorized one is the last of them."""
    depth = 0
    for depth in range(1, len(loops) + 1):
        if loops[depth - 1] == vector or points(loops[:depth]) >= POINTS_PER_THREAD * cores:
            break
    return depth


def _in_pieces(nest: LoopNest, vector: VectorPlan, cores: int) -> tuple[LoopNest, VectorPlan, int]:
    """The innermost loop cut into equal pieces, at least one a thread where there are as many, shared and outermost."""
    loop = nest.dims[-1]
    if len(nest.dims) == 1:
        return nest, vector, 1
    size = loop.size.as_int if loop.size is not None else None
    if size is None or size % PIECE or cores < 2:
        return nest, vector, 0
    most = size // PIECE
    pieces = min((n for n in range(1, most + 1) if most % n == 0 and n >= cores), default=most)
    if pieces == 1:
        return nest, vector, 0
    piece, rest = loop_var(f"{loop.name}_piece", pieces), loop_var(f"{loop.name}_in_piece", size // pieces)
    moved = substitute_loops(nest, {loop: of(piece) * (size // pieces) + of(rest)})
    vector = replace(vector, loop=rest) if vector.loop == loop else vector
    return replace(moved, dims=(piece, *nest.dims[:-1], rest)), vector, 1
