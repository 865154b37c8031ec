"""How the lanes of a vector read memory where every vector reads it alike, as pairs of elements that change places.

Vectors start at multiples of the lanes. A quotient or remainder by a divisor of the lanes is then the same in all of
them: `i % 2` is 0 1 0 1, and `i // 2 * 2 + 1` is each vector's first element plus 1 1 3 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inductor_cpu.ir.index import Expr, Sym, as_expr, loop_var, of


@dataclass(frozen=True)
class LaneOrder:
    """first: the expression in lane 0 of vector number `block`. steps: how far each lane is from lane 0.
    step: from one vector to the next, None if that differs."""

    first: Expr
    steps: tuple[int, ...]
    step: int | None


def lane_order(expr: Expr, loop: Sym, lanes: int) -> LaneOrder | None:
    """The lanes of an expression along a loop, if their distances are the same in all vectors."""
    if any(symbol.kind == "value" for symbol in expr.symbols) or loop not in expr.symbols:
        return None
    count = None if loop.size is None else (loop.size + (lanes - 1)) // lanes
    block, lane = Sym("block", "loop", count), loop_var("lane", lanes)
    by_block = expr.substitute({loop: of(block) * lanes + of(lane)})
    places = [by_block.substitute({lane: as_expr(number)}) for number in range(lanes)]
    steps = [(place - places[0]).as_int for place in places]
    if any(step is None for step in steps):
        return None
    step = places[0].coefficient(block)
    return LaneOrder(places[0], tuple(s for s in steps if s is not None), None if step is None else step.as_int)


def constant_lanes(expr: Expr, loop: Sym, lanes: int) -> tuple[int, ...] | None:
    """The numbers that the lanes of an expression hold in every vector."""
    order = lane_order(expr, loop, lanes)
    first = None if order is None else order.first.as_int
    return None if order is None or first is None else tuple(first + step for step in order.steps)


def within_a_vector(steps: Sequence[int], lanes: int) -> bool:
    """Whether lanes that are so far from lane 0 find their elements among as many neighbours as there are lanes."""
    return bool(steps) and max(steps) - min(steps) < lanes
