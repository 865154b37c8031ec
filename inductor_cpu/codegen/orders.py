"""What is the same in every vector: numbers and masks that lanes hold, and orders in which lanes read neighbours."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inductor_cpu.ir.index import Sym, const, divide_exact, of
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.lane_order import constant_lanes, lane_order, within_a_vector
from inductor_cpu.ir.loop_nest import Const, Index, Instr, Load, Scalar

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_not": operator.not_,
}

Lanes = tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """places: the neighbour that each lane reads, -1 for none. skipped: elements from lane 0's address to the first
    neighbour. step: elements from one vector to the next, None if that differs."""

    places: Lanes
    skipped: int
    step: int | None


def is_of_pairs(lanes: Lanes) -> bool:
    """Whether all even lanes hold the same, and all odd ones."""
    return lanes[2:] == lanes[:-2]


def swaps(kernel: Kernel, orders: Mapping[int, Order], masks: Mapping[int, Lanes]) -> dict[int, int]:
    """Loads each of whose lanes, but for those that a constant mask leaves out, read what the neighbour in a pair reads
    in another load, with that load: its lanes lie side by side, and it is in front of them in the body."""
    loop, stored = kernel.vector.loop, {store.buffer for store in kernel.stores}
    access, found = dict(kernel.vector.access), dict[int, int]()
    if loop is None or loop.size is None or divide_exact(loop.size, const(2)) is None:
        return found  # the last lane may have no neighbour
    for position, order in orders.items():
        load = kernel.body[position]
        if not isinstance(load, Load) or load.buffer in stored or order.step != len(order.places):
            continue
        if load.mask is not None and (load.mask not in masks or not is_of_pairs(masks[load.mask])):
            continue
        apart = {order.skipped + place - (lane ^ 1) for lane, place in enumerate(order.places) if place >= 0}
        others = (k for k in range(position) if access.get(k) == "contiguous")
        sources = [k for k in others if _is_ahead(kernel.body[k], load, loop, len(order.places), apart)]
        if sources:
            found[position] = sources[0]
    return found


def _is_ahead(source: Instr, load: Load, loop: Sym, lanes: int, apart: set[int]) -> bool:
    """Whether lane 0 of a source reads an element so far from that of a load, in vectors that start at multiples of the
    lanes."""
    if not isinstance(source, Load) or source.mask is not None or source.buffer != load.buffer:
        return False
    first = {loop: of(Sym("block", "loop", None)) * lanes}
    distance = (source.index[0].substitute(first) - load.index[0].substitute(first)).as_int
    return apart == {distance}


def constant_masks(kernel: Kernel) -> dict[int, Lanes]:
    """Masks that hold the same bits in every vector along the vectorized loop, by position: comparisons of indices that
    are the same in every vector with numbers, and what follows from them."""
    loop, lanes = kernel.vector.loop, kernel.vector.lanes
    if loop is None or loop not in (*kernel.outer, *kernel.inner):
        return {}
    known: dict[int, Lanes] = {}
    for position, instr in enumerate(kernel.body):
        held = None
        if isinstance(instr, Index):
            held = constant_lanes(instr.expr, loop, lanes)
        elif isinstance(instr, Scalar) and instr.op in _FUNCTIONS:
            held = _computed(instr, kernel.body, known, lanes)
        if held is not None:
            known[position] = held
    return {k: held for k, held in known.items() if isinstance(kernel.body[k], Scalar)}


def _computed(instr: Scalar, body: tuple[Instr, ...], known: dict[int, Lanes], lanes: int) -> Lanes | None:
    """The lanes of a scalar op whose arguments are known, or numbers; None where no argument differs between lanes."""
    if not any(k in known for k in instr.args):
        return None
    rows = []
    for k in instr.args:
        arg = body[k]
        if k in known:
            rows.append(known[k])
        elif isinstance(arg, Const) and not arg.dtype.is_floating_point:
            rows.append((int(arg.value),) * lanes)
        else:
            return None
    return tuple(int(_FUNCTIONS[instr.op](*values)) for values in zip(*rows, strict=True))


def order_of(kernel: Kernel, load: Load, masks: dict[int, Lanes]) -> Order | None:
    """The order in which a load reads neighbours, if it is the same in every vector. A mask that differs from vector to
    vector is no part of it."""
    loop, lanes = kernel.vector.loop, kernel.vector.lanes
    if loop is None:
        return None
    found = lane_order(load.index[0], loop, lanes)
    if found is None:
        return None
    wanted = (1,) * lanes if load.mask is None else masks.get(load.mask, (1,) * lanes)
    steps = [step for step, want in zip(found.steps, wanted, strict=True) if want]
    if not within_a_vector(steps, lanes) or found.steps == tuple(range(lanes)):
        return None
    first = min(steps)
    places = tuple(step - first if want else -1 for step, want in zip(found.steps, wanted, strict=True))
    return Order(places, first, found.step)
