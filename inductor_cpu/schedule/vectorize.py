"""The vectorization checker: reads a kernel's loops and bodies, returns a vector plan or the reasons why not.

It is a judge, not a code generator: the plan says which loop becomes lanes and how each access looks along it. Vector
code is safe when it gives what the points give one after another: no buffer is both read and written at different
points, and where points of a scatter can meet, they meet in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import torch

from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import LINE_BYTES, VectorPlan
from inductor_cpu.ir.lane_order import constant_lanes, lane_order, within_a_vector
from inductor_cpu.ir.loop_nest import Index, Instr, Load, Reduce, Scan, Store
from inductor_cpu.ir.periodic import period
from inductor_cpu.ir.rewrite import loops_read, may_fail, value_positions
from inductor_cpu.ir.scatter import is_scatter, keeps_apart, reads_what_others_write
from inductor_cpu.schedule.cost import arithmetic_cost, hint, points
from inductor_cpu.schedule.flat import stride_hint


class Reason(Enum):
    """Why a kernel is scalar."""

    SCALAR_TARGET = "the target or cpp.simdlen asks for scalar code"
    NO_LOOP = "it has no loop"
    SCATTER_READ = "it reads what it scatters into, where lanes may meet"
    SCATTER_TWICE = "it scatters into one buffer by two stores"
    SCATTER_FOLDS = "it scatters beside a reduction"
    IN_PLACE = "it reads elements that other lanes write"
    SHORT = "every loop is shorter than two points"
    ADDS = "it does little but add at places that are data, which lanes do one after another"


#: Cost of one access of one point in vector code, relative to a contiguous one; scalar code costs SCALAR a point.
ACCESS_COST = {"uniform": 0.1, "contiguous": 1.0, "strided": 8.0, "gather": 12.0}

#: A strided access whose lanes lie in a cache line each.
FAR_COST = 12.0

#: Loads of elements of these sizes with a short stride s are s loads of neighbours, sorted in registers; by lanes, the
#: longest such stride.
SORTED_STRIDE, SORTED_SIZES = {8: 6, 16: 8}, (2, 4)

#: A gather that is a plain load but at borders.
BENT_COST = 3.0

#: Neighbours in an order that is the same in every vector, and an index whose lanes are.
ORDERED_COST, CONSTANT_COST = 1.5, 0.2

#: A scan whose lanes are points of one result; with a result a lane it is a fold like any other.
SCAN_COST = 4.0

#: Folding the lanes of one result to a scalar, once a result.
FOLD_COST = 16.0

#: Each store of a loop that fills no vector, where stores under a mask are slow: it is one of pieces. By lanes.
PIECES_COST = {8: 1.5}

#: A contiguous access that another loop repeats (a row of weights): it comes from the cache.
REPEATED_COST = 0.3

#: A strided access through a tile that is transposed in registers. Masks have no such tiles, and those of 64 bits take
#: four times as many instructions: no loop is chosen for their sake.
TILE_COST = 2.5
_NO_CHEAP_TILES = (torch.float64, torch.int64, torch.bool)

#: Arithmetic of a point, beside loads, from which on it is worth taking lanes apart to add them one after another.
ADDED_COST = 12

#: Points of the loop that such a tile is contiguous along, below which much of its work is for nothing. Only where the
#: short loop can be merged is there something better.
SHORT_TILE = 4


def plan_vectors(
    outer: Sequence[Sym],
    inner: Sequence[Sym],
    body: Sequence[Instr],
    stores: Sequence[Store],
    lanes: int,
    fixed_order: bool = False,
) -> VectorPlan:
    """The vector plan of a kernel with these loops. lanes: of the target, 0 or 1 for scalar.
    fixed_order: the inner loops must keep their order (argmax), so of them only the last can become lanes."""
    reason = _unsafe(outer, inner, body, stores, lanes)
    if reason is not None:
        return VectorPlan(None, 1, reasons=(reason.value,))
    movable = inner[-1:] if fixed_order else inner
    candidates = [loop for loop in (*outer, *movable) if loop.size is not None and loop.size.as_int not in (0, 1)]
    if not candidates:
        return VectorPlan(None, 1, reasons=(Reason.SHORT.value,))
    candidates = [loop for loop in candidates if keeps_order(loop, candidates, body, stores)]
    if not candidates:
        return VectorPlan(None, 1, reasons=(Reason.SCATTER_READ.value,))
    best = min(candidates, key=lambda loop: _cost(loop, outer, inner, body, stores, lanes))
    if _only_adds(best, outer, body, stores):
        return VectorPlan(None, 1, reasons=(Reason.ADDS.value,))
    access = tuple(
        [(p, access_kind(i.index[0], best, body, inner)) for p, i in enumerate(body) if isinstance(i, Load)]
        + [(-1 - n, access_kind(s.index[0], best, body, inner)) for n, s in enumerate(stores)]
    )
    return VectorPlan(best, lanes, access)


def _only_adds(loop: Sym, outer: Sequence[Sym], body: Sequence[Instr], stores: Sequence[Store]) -> bool:
    """Whether lanes along a loop are made only to be added one after another, each at a place of its own. Scatters
    whose points no loop keeps apart are for threads to divide, which compare the places of a vector at once
    (`divide.py`), and places are checked faster in vectors."""
    added = any(store.mode == "add" and access_kind(store.index[0], loop, body) == "gather" for store in stores)
    apart = any(keeps_apart(other, stores) for other in outer if other != loop)
    return added and apart and arithmetic_cost(body) < ADDED_COST and not any(may_fail(body, i) for i in body)


def plan_cost(
    plan: VectorPlan, outer: Sequence[Sym], inner: Sequence[Sym], body: Sequence[Instr], stores: Sequence[Store]
) -> float:
    """The cost of a point in vectors of this plan, to compare it with one of other loops."""
    assert plan.loop is not None
    cost, _ = _cost(plan.loop, outer, inner, body, stores, plan.lanes)
    accesses = [(i.index[0], i.dtype) for i in body if isinstance(i, Load)]
    accesses += [(s.index[0], body[s.value].dtype) for s in stores]
    for address, dtype in accesses:
        length = _tile_length(address, plan.loop, outer)
        tiled = access_kind(address, plan.loop, body, inner) == "strided" and dtype not in _NO_CHEAP_TILES
        if tiled and 0 < length < SHORT_TILE:
            cost += TILE_COST * (SHORT_TILE / length - 1)
    return cost


def _unsafe(
    outer: Sequence[Sym], inner: Sequence[Sym], body: Sequence[Instr], stores: Sequence[Store], lanes: int
) -> Reason | None:
    if lanes <= 1:
        return Reason.SCALAR_TARGET
    if not outer and not inner:
        return Reason.NO_LOOP
    if any(map(is_scatter, stores)):
        if inner:
            return Reason.SCATTER_FOLDS
        if len({store.buffer for store in stores}) < len(stores):
            return Reason.SCATTER_TWICE
    return Reason.IN_PLACE if reads_what_others_write(body, stores) else None


def keeps_order(loop: Sym, loops: Sequence[Sym], body: Sequence[Instr], stores: Sequence[Store]) -> bool:
    """Whether points that meet in a scatter meet in the order of the loops, with this one innermost and its points as
    lanes: points with different values of the loop never meet, or it is innermost anyway and lanes are stored one
    after another. A point that reads what it scatters into must not miss what an earlier lane wrote there."""
    if keeps_apart(loop, stores):
        return True
    scattered = {store.buffer for store in stores if is_scatter(store)}
    return loop == loops[-1] and not any(isinstance(i, Load) and i.buffer in scattered for i in body)


def access_kind(address: Expr, loop: Sym, body: Sequence[Instr], inner: Sequence[Sym] = ()) -> str:
    """How consecutive points of a loop access memory: uniform, contiguous, strided or gather. inner: the loops that
    reductions fold."""
    chosen = value_positions((address,))
    reads = loops_read(body, inner) if chosen else ()
    if any(loop in reads[position] for position in chosen):
        return "gather"
    coefficient = address.coefficient(loop)
    if coefficient is None:
        return "gather"
    value = coefficient.as_int
    if value == 0:
        return "uniform"
    return "contiguous" if value == 1 else "strided"


def _access_cost(
    address: Expr, dtype: torch.dtype, loop: Sym, outer: Sequence[Sym], inner: Sequence[Sym], body: Sequence[Instr]
) -> float:
    """A strided access that is contiguous along another outer loop is read as a tile and turned over in registers; not
    within a reduction, whose loops are further inside than the tile's."""
    kind = access_kind(address, loop, body, inner)
    if kind == "gather" and period(address, loop) is not None:
        return REPEATED_COST
    if kind == "gather" and _bends(address, loop):
        return BENT_COST
    if kind == "contiguous" and any(o != loop and o not in address.symbols for o in outer):
        return REPEATED_COST
    tiles = dtype not in _NO_CHEAP_TILES and not inner and _tile_length(address, loop, outer) > 0
    if kind == "strided" and not tiles:
        return ACCESS_COST[kind] if stride_hint(address, loop) * dtype.itemsize <= LINE_BYTES else FAR_COST
    return TILE_COST if kind == "strided" else ACCESS_COST[kind]


def _tile_length(address: Expr, loop: Sym, outer: Sequence[Sym]) -> int:
    """Points of the longest outer loop along which an address is contiguous, but the vectorized one; 0 without one."""
    return max((points((o,)) for o in outer if o != loop and address.coefficient(o) == 1), default=0)


def _within_reach_cost(load: Load, loop: Sym, body: Sequence[Instr], inner: Sequence[Sym], lanes: int) -> float:
    """The cost of a load as loads of whole vectors, whose elements are sorted in registers; infinite for others."""
    if access_kind(load.index[0], loop, body, inner) in ("gather", "strided"):
        order = lane_order(load.index[0], loop, lanes)
        if order is not None and within_a_vector(order.steps, lanes):
            return ORDERED_COST
    return _short_stride_cost(load, loop, body, inner, lanes)


def _short_stride_cost(load: Load, loop: Sym, body: Sequence[Instr], inner: Sequence[Sym], lanes: int) -> float:
    """The cost of a load with a short stride as loads of all elements between; infinite for others, and for lanes that
    fill no vector, whose elements are loaded one by one."""
    assert loop.size is not None
    if load.dtype.itemsize not in SORTED_SIZES or hint(loop.size) < lanes:
        return math.inf
    stride = load.index[0].coefficient(loop)
    short = stride is not None and stride.as_int in range(2, SORTED_STRIDE.get(lanes, 0) + 1)
    return (
        float(stride_hint(load.index[0], loop))
        if short and access_kind(load.index[0], loop, body, inner) == "strided"
        else math.inf
    )


def _bends(address: Expr, loop: Sym) -> bool:
    """Whether neighbours are neighbours in memory but at the borders, where the address is folded back or stays."""
    bounds = [function for function in address.functions if any(loop in arg.symbols for arg in function.args)]
    return bool(bounds) and all(function.name in ("min", "max") for function in bounds)


def _store_cost(store: Store, loop: Sym, outer: Sequence[Sym], inner: Sequence[Sym], body: Sequence[Instr]) -> float:
    address, dtype = store.index[0], body[store.value].dtype
    kind = access_kind(address, loop, body, inner)
    if store.mode == "add" and kind != "contiguous":
        return 1.5 * ACCESS_COST["gather"]
    cost = _access_cost(address, dtype, loop, outer, inner, body)
    far = kind == "strided" and stride_hint(address, loop) * dtype.itemsize > LINE_BYTES
    if far and 0 < _tile_length(address, loop, outer) < SHORT_TILE:
        cost = FAR_COST  # each row of the tile is a small part of a line
    return (2.0 if cost >= ACCESS_COST["strided"] else 1.5) * cost  # a scatter costs more than a gather


def _cost(
    loop: Sym, outer: Sequence[Sym], inner: Sequence[Sym], body: Sequence[Instr], stores: Sequence[Store], lanes: int
) -> tuple[float, int]:
    """Cost per point, the unused lanes of the last vector included; ties go to the innermost loop."""
    assert loop.size is not None
    size = max(hint(loop.size), 1)
    used = size / (-(-size // lanes) * lanes)
    folded = points(inner)
    total, folds = 1.0, 0.0
    for instruction in body:
        if isinstance(instruction, Load):
            cost = _access_cost(instruction.index[0], instruction.dtype, loop, outer, inner, body)
            total += min(cost, _within_reach_cost(instruction, loop, body, inner, lanes))
        elif isinstance(instruction, Index) and instruction.expr.coefficient(loop) is None:
            alike = constant_lanes(instruction.expr, loop, lanes) is not None
            total += CONSTANT_COST if alike else ACCESS_COST["gather"]
        elif isinstance(instruction, Reduce):
            total += 0.3 if loop in inner and size >= 4 * lanes else 0.5 if loop in inner else 0.2
            folds += FOLD_COST * lanes / folded if loop in inner else 0.0
        elif isinstance(instruction, Scan):
            total += SCAN_COST if loop in inner else 0.2
    for store in stores:
        often = folded if store.index[0].symbols.isdisjoint(inner) else 1
        pieces = PIECES_COST.get(lanes, 0.0) if size < lanes else 0.0
        total += (_store_cost(store, loop, outer, inner, body) + pieces) / often
    if loop in outer and loop is not outer[-1] and not inner:
        total += 0.5
    order = (*outer, *inner)
    return total / used + folds, -order.index(loop)
