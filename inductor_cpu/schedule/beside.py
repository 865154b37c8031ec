"""Stores that lie beside each other in records, as the coordinates of boxes or the parts of complex numbers: wherever
the loops are, they write different elements, so that one kernel may have both."""

from __future__ import annotations

from math import gcd

from inductor_cpu.ir.index import Expr


def are_beside(first: Expr, second: Expr) -> bool:
    """Whether two addresses over the same loops are never equal, not even at different points: they differ by a number
    that no steps of the loops add up to. Steps that are multiples of a period lead to multiples of it, the others as
    far as all of them go together."""
    apart = (first - second).as_int
    steps: list[tuple[int, int]] = []  # of each loop, and how far all its steps go
    for loop in first.symbols:
        step, points = first.coefficient(loop), None if loop.size is None else loop.size.as_int
        if loop.kind != "loop" or step is None or not step.as_int:
            return False
        steps.append((abs(step.as_int), -1 if points is None else abs(step.as_int) * max(points - 1, 0)))
    periods = {gcd(*(step for step, _ in steps)), *(step for step, _ in steps)} - {0}
    return apart is not None and any(_misses(apart, steps, period) for period in periods)


def _misses(apart: int, steps: list[tuple[int, int]], period: int) -> bool:
    """Whether no multiple of a period is as near to a number as the steps that are no multiples go."""
    others = [reach for step, reach in steps if step % period]
    reach = sum(others)
    return -1 not in others and (apart + reach) // period == (apart - reach - 1) // period
