"""Rough costs, in adds: they only choose between legal schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.loop_nest import Instr, Load, Reduce, Scalar, Scan
from inductor_cpu.ir.ops import LOW_PRECISION, OPS

#: Bytes of a second-level cache where the target is not known.
CACHE = 1 << 20

#: What an unknown size counts as in a comparison.
TYPICAL_SIZE = 128


#: An element at a position that is data, and the neighbours from which on it is a row that vectors load.
LOOKUP_COST, LEAST_NEIGHBOURS = 8, 32

#: What rounding a value to bf16 or f16 takes after an op that may be inexact.
ROUNDING_COST = 3


def hint(expr: Expr) -> int:
    """A size with every symbol at a typical value; the typical size where such symbols would divide by 0."""
    if expr.as_int is not None:
        return expr.as_int
    try:
        return expr.evaluate(dict.fromkeys(expr.symbols, TYPICAL_SIZE))
    except ZeroDivisionError:  # by the difference of two symbols
        return TYPICAL_SIZE


def points(symbols: Sequence[Sym]) -> int:
    """The number of points of loops, with typical values for unknown sizes."""
    total = 1
    for symbol in symbols:
        assert symbol.size is not None
        total *= max(hint(symbol.size), 1)
    return total


def scalar_cost(instr: Scalar) -> int:
    """One op and the rounding of its result."""
    rounded = instr.dtype in LOW_PRECISION and not OPS[instr.op].exact
    return OPS[instr.op].cost + (ROUNDING_COST if rounded else 0)


def body_cost(body: Sequence[Instr]) -> int:
    """Arithmetic of one point."""
    return sum(
        OPS[i.op].cost if isinstance(i, Scalar) else 1 if isinstance(i, (Load, Reduce, Scan)) else 0 for i in body
    )


def arithmetic_cost(body: Sequence[Instr]) -> int:
    """Arithmetic of one point without its loads."""
    return sum(OPS[i.op].cost for i in body if isinstance(i, Scalar))


def loads_of(body: Sequence[Instr]) -> int:
    """The number of loads of one point."""
    return sum(isinstance(i, Load) for i in body)


def lookup_cost(body: Sequence[Instr]) -> int:
    """What loads of single elements, or of a few neighbours, at positions that are data take more than other loads:
    lanes that lie anywhere are loaded one by one."""
    return LOOKUP_COST * sum(isinstance(i, Load) and _neighbours(i) < LEAST_NEIGHBOURS for i in body)


def _neighbours(load: Load) -> float:
    """How many elements lie side by side from each position that is data: infinitely many where none is."""
    count = 1
    for expr in reversed(load.index):
        if any(symbol.kind == "value" for symbol in expr.symbols):
            return count
        count *= points([symbol for symbol in expr.symbols if symbol.kind == "loop"])
    return math.inf
