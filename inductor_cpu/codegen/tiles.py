"""Square tiles: which accesses of a kernel are contiguous along another loop than the vectorized one.

A copy that changes the order of dimensions has vectors along one of them only: the other side would be a gather or a
scatter. Where that side is contiguous along a second loop, a square of both loops is read with whole vectors, turned
over in registers, and the body reads the turned tile. Loads with a mask: `rooms.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain

import torch

from inductor_cpu.codegen.cxx import LANE
from inductor_cpu.codegen.rooms import Room, room_of
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Load, Scalar
from inductor_cpu.ir.ops import OPS
from inductor_cpu.ir.scatter import is_scatter

#: A second loop that is shorter than this leaves too much of a tile empty.
SHORTEST = 4

#: A row of fewer tiles is over before what it asks for arrives.
LEAST_TILES = 16

#: A body with more values is not written once for each row of a tile.
MOST_VALUES = 6

#: More tiles do not fit into the registers.
MOST_TILES = 2

_TILED_LANES = frozenset({"float", "int32_t", "double", "int64_t"})


@dataclass(frozen=True)
class Tile:
    """loop: the second loop. loads: positions, stores: numbers of the accesses that are contiguous along it. rooms: of
    loads with a mask, which the tile needs no more."""

    loop: Sym
    loads: frozenset[int]
    stores: frozenset[int]
    rooms: Mapping[int, Room]

    def has(self, access: int) -> bool:
        """Whether a load, or the store number -1 - access, is turned over."""
        return access in self.loads or -1 - access in self.stores


def goes_in_columns(kernel: Kernel, tile: Tile) -> bool:
    """Whether the loops that are left to a tile are its own one and, inside of it, the vectorized one, which is short.
    Tiles that go along the vectorized loop first come back to as many runs of memory as that has points, which is too
    many for a processor to follow; along their own loop, they go through as many as lanes."""
    loop = kernel.vector.loop
    if loop is None or kernel.outer[-2:] != (tile.loop, loop) or kernel.parallel == len(kernel.outer) or tile.stores:
        return False
    return not is_long(loop, kernel)


def is_long(loop: Sym, kernel: Kernel) -> bool:
    """Whether a loop has room for many tiles; one whose size is not known has."""
    size = None if loop.size is None else loop.size.as_int
    return size is None or size >= LEAST_TILES * kernel.vector.lanes


def is_short(kernel: Kernel, tile: Tile) -> bool:
    """Whether all that is turned over has lanes of 64 bits, of which half as many rows fill the registers."""
    return min(_sizes(kernel, tile)) == 8


def _sizes(kernel: Kernel, tile: Tile) -> list[int]:
    """Bytes of the elements of what a tile turns over."""
    loads = [kernel.body[k].dtype.itemsize for k in tile.loads]
    return loads + [kernel.body[kernel.stores[n].value].dtype.itemsize for n in tile.stores]


def stays_in_registers(kernel: Kernel, tile: Tile, values: Collection[int]) -> bool:
    """Whether one or two tiles, short ones if their lanes have 64 bits, are all that a short body turns over, so that
    its rows are written one by one and are in registers then. values: those of the body that are computed."""
    body, sizes = [kernel.body[k] for k in values], _sizes(kernel, tile)
    heavy = any(isinstance(instr, Scalar) and OPS[instr.op].cost > 1 for instr in body)
    fits = is_short(kernel, tile) or max(sizes) <= 4
    return fits and len(sizes) <= MOST_TILES and len(body) <= MOST_VALUES and not heavy


def find_tile(kernel: Kernel) -> Tile | None:
    """The tile of a pointwise kernel, if some strided access has a loop along which it is contiguous."""
    vector = kernel.vector.loop
    if vector is None or kernel.inner or vector not in kernel.outer or any(map(is_scatter, kernel.stores)):
        return None  # a tile changes the order of the points
    access = dict(kernel.vector.access)
    loads = {
        k: _loops_of(kernel, instr)
        for k, instr in enumerate(kernel.body)
        if isinstance(instr, Load) and access.get(k) == "strided" and _fits(instr.index[0], instr.dtype, vector)
    }
    stores = {
        n: _contiguous_loops(kernel, store.index[0])
        for n, store in enumerate(kernel.stores)
        if access.get(-1 - n) == "strided"
        and store.mask is None
        and _fits(store.index[0], kernel.body[store.value].dtype, vector)
    }
    counts = Counter(chain(*loads.values(), *stores.values()))
    if not counts:
        return None
    best = max(counts, key=lambda loop: (counts[loop], kernel.outer.index(loop)))
    turned = sorted(k for k, loops in loads.items() if best in loops)
    rooms = {k: room for k in turned if (room := room_of(kernel, kernel.body[k], best)) is not None}
    return Tile(best, frozenset(turned), frozenset(n for n, loops in stores.items() if best in loops), rooms)


def _fits(expr: Expr, dtype: torch.dtype, vector: Sym) -> bool:
    """Whether the access has a constant stride along the lanes, and lanes that a tile can hold."""
    plain = expr.coefficient(vector) is not None and not any(s.kind == "value" for s in expr.symbols)
    return plain and LANE[dtype] in _TILED_LANES


def _loops_of(kernel: Kernel, load: Load) -> list[Sym]:
    """The loops along which a load may be turned over."""
    loops = _contiguous_loops(kernel, load.index[0])
    return [loop for loop in loops if load.mask is None or room_of(kernel, load, loop) is not None]


def _contiguous_loops(kernel: Kernel, expr: Expr) -> list[Sym]:
    loops = [loop for loop in kernel.outer if loop != kernel.vector.loop and expr.coefficient(loop) == 1]
    return [loop for loop in loops if loop.size is not None and (loop.size.as_int or SHORTEST) >= SHORTEST]
