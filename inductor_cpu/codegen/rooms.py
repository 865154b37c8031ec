"""Room of masked loads in a tile: a mask that compares positions with ends, as zeros behind a matrix do, lets a load
read some of a square's first rows and lanes, and nothing of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from inductor_cpu.ir.index import Expr, Sym, as_expr, minimum
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Const, Index, Instr, Load, Scalar


@dataclass(frozen=True)
class Room:
    """How many points a load may read from a point on, of the tile's own loop and of the lanes; 0 or less for none."""

    rows: Expr
    lanes: Expr


def room_of(kernel: Kernel, load: Instr, loop: Sym) -> Room | None:
    """The room of a masked load in a tile along a loop; None without a mask, where the mask says something else, and
    where the load gives anything but zeros outside."""
    vector, whole = kernel.vector.loop, kernel.vector.lanes
    if not isinstance(load, Load) or load.mask is None or vector is None:
        return None
    if load.fill != 0 or math.copysign(1, load.fill) < 0:
        return None
    rows = lanes = as_expr(whole)
    for left in _points_left(kernel.body, load.mask):
        steps = [] if left is None else [left.coefficient(symbol) for symbol in (loop, vector)]
        if left is not None and steps == [-1, 0]:
            rows = minimum(rows, left)
        elif left is not None and steps == [0, -1]:
            lanes = minimum(lanes, left)
        elif left is not None and steps == [0, 0]:  # all of the tile or nothing
            rows = minimum(rows, left * whole)
        else:
            return None
    return Room(rows, lanes)


def _points_left(body: Sequence[Instr], mask: int) -> Iterator[Expr | None]:
    """For each comparison of a mask how far a position is before its end; None for anything else."""
    instr = body[mask]
    if isinstance(instr, Scalar) and instr.op == "logical_and":
        for arg in instr.args:
            yield from _points_left(body, arg)
    elif isinstance(instr, Scalar) and instr.op == "lt":
        place, end = (_position(body[arg]) for arg in instr.args)
        yield None if place is None or end is None else end - place
    else:
        yield None


def _position(instr: Instr) -> Expr | None:
    """A number, or where the loops are."""
    if isinstance(instr, Const) and instr.dtype in (torch.int32, torch.int64):
        return as_expr(int(instr.value))
    if isinstance(instr, Index) and not any(symbol.kind == "value" for symbol in instr.expr.symbols):
        return instr.expr
    return None
