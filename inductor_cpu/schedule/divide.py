"""How threads divide a scatter whose points may meet, where no loop keeps them apart.

Sums into a small buffer (a histogram, the gradient of a short table) run in pieces, each with a copy of the buffer. How
many pieces there are, and so what is rounded, depends on the sizes alone: any number of threads gives the same.

Elements and short rows of a buffer that no cache of a core holds have owners: each thread goes through all points and
stores what falls into its own places, in the order in which one thread would. That repeats the loads of indices and the
choice of points, which costs more than it saves where what is added to lies in a cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from inductor_cpu.ir.index import ONE, Expr, Sym, const, maximum, minimum, product
from inductor_cpu.ir.kernel import Divided, VectorPlan
from inductor_cpu.ir.loop_nest import Buffer, LoopNest
from inductor_cpu.ir.rewrite import loops_read, value_positions
from inductor_cpu.ir.scatter import is_divisible, is_sum, keeps_apart, place_of
from inductor_cpu.schedule.cost import points
from inductor_cpu.schedule.share import PIECE

#: Most pieces: as many threads have work.
MOST_PIECES = 16

#: Points of a piece, for each element of its copy and at all, with which copies cost one thread a few percent.
POINTS_PER_ELEMENT, LEAST_POINTS = 8, 8192

#: Points of the outermost loop without which its pieces would be too unequal.
LEAST_OUTERMOST = 64

#: Bytes of a buffer, in second-level caches, with which owners save time: elements are listed by an instruction of
#: AVX-512 that moves the wanted lanes together, or one after another, which costs as much as to add them in a cache.
FAR, FAR_ONE_BY_ONE = 1, 8
LISTED_LANES = 16


def divide(
    nest: LoopNest, vector: VectorPlan, buffers: Mapping[str, Buffer], shared: int, cores: int, cache: int
) -> Divided | None:
    """How threads divide the points of a flat nest, if they do. shared: how many points the loops have that they could
    share instead; cores, cache: of the target, as for `schedule_program`."""
    if nest.reduce_dims or not nest.dims or not is_divisible(nest.body, nest.stores):
        return None
    address, buffer = nest.stores[0].index[0], buffers[nest.stores[0].buffer]
    place, elements = place_of(address), product(buffer.sizes)
    pieces = _pieces(nest, elements) if _may_be_copied(nest, buffer) else ONE
    inside = [loop for loop in nest.dims if not _depends(place, loop, nest)]
    rows = nest.dims[-1] in inside
    places = elements // maximum(_size(inside), 1) if rows else elements
    least = _far(rows, vector, cache) // (points(inside if rows else ()) * buffer.dtype.itemsize)
    gathers = rows or vector.loop is None or dict(vector.access).get(-1) == "gather"
    enough = places.as_int is None or places.as_int >= least
    owned = gathers and enough and (shared < cores or pieces.as_int is None)
    if not owned and pieces.as_int in (None, 1):
        return None
    return Divided(pieces, elements, place, places, least)


def _far(rows: bool, vector: VectorPlan, cache: int) -> int:
    """Bytes of a buffer to whose elements it is so far that owners pay."""
    return cache * (FAR if vector.lanes >= LISTED_LANES and not rows else FAR_ONE_BY_ONE)


def _may_be_copied(nest: LoopNest, buffer: Buffer) -> bool:
    """Whether the points are a sum, along no loop but a short one inside that keeps them apart, into a buffer all of
    whose elements lie next to each other."""
    apart = [loop for loop in nest.dims if keeps_apart(loop, nest.stores)]
    short = len(nest.dims) > 1 and apart == [nest.dims[-1]] and (_size(apart).as_int or PIECE) < PIECE
    dense = product(buffer.sizes) == buffer.extent
    return (not apart or short) and dense and is_sum(nest.body, nest.stores[0])


def _pieces(nest: LoopNest, elements: Expr) -> Expr:
    """How many pieces the points run in: a power of two, where that is known."""
    if points(nest.dims[:1]) < LEAST_OUTERMOST:
        return ONE
    least = maximum(elements * POINTS_PER_ELEMENT, LEAST_POINTS)
    pieces = minimum(_size(nest.dims) // least + 1, MOST_PIECES)
    known = pieces.as_int
    return pieces if known is None else const(1 << (known.bit_length() - 1))


def _size(loops: list[Sym] | tuple[Sym, ...]) -> Expr:
    return product(loop.size for loop in loops if loop.size is not None)


def _depends(place: Expr, loop: Sym, nest: LoopNest) -> bool:
    values, reads = value_positions((place,)), loops_read(nest.body, ())
    return loop in place.symbols or any(loop in reads[k] for k in values)
