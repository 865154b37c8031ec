"""What is the same in every vector: numbers and masks that lanes hold, and orders in which lanes read neighbours."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
