"""Pieces of the vectorized loop: a concatenation or a rotated half compares positions with a number, and on either side
of the number every lane gives the same answer. The loop is written once for each side, without masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.tuning import needs_alignment
from inductor_cpu.ir.index import Sym, as_expr
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Const, Index, Instr, Load, Scalar

#: More pieces than this make more code than they save work.
MOST_PIECES = 4

_ANSWERS = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@dataclass(frozen=True)
class Piece:
    """The points from `begin` to before `end` of the vectorized loop, and the kernel whose comparisons are answered.
    repeated: the loads that repeat with a short period in the whole kernel, which declares their tables."""

    begin: int
    end: int
    kernel: Kernel
    repeated: frozenset[int]


def pieces_of(facts: Facts) -> tuple[Piece, ...]:
    """The pieces of a pointwise kernel's innermost loop; none where it stays whole."""
    kernel, loop = facts.kernel, facts.kernel.vector.loop
    if loop is None or kernel.inner or kernel.product is not None or facts.tile is not None or loop != kernel.outer[-1]:
        return ()
    size = None if loop.size is None else loop.size.as_int
    if size is None:
        return ()
    turns = {k: turn for k in range(len(kernel.body)) if (turn := _turn(kernel.body, k, loop, size)) is not None}
    cuts = sorted({cut for cut, _ in turns.values()})
    ends = [0, *cuts, size]
    lengths = [b - a for a, b in pairwise(ends)]
    lanes = kernel.vector.lanes
    aligned = all(cut % lanes == 0 for cut in cuts)
    if not cuts or len(lengths) > MOST_PIECES or min(lengths) < lanes:
        return ()
    repeated = frozenset(facts.periods)
    pieces = tuple(Piece(a, b, _answered(kernel, turns, a), repeated) for a, b in pairwise(ends))
    if not aligned and any(_starts_at_vectors(facts_of(piece), loop) for piece in pieces):
        return ()
    return pieces


def facts_of(piece: Piece) -> Facts:
    """The facts of a piece. Without its mask a load could go through a tile, whose loop is not opened for a piece, or
    repeat with a period that nobody has looked for."""
    return Facts(piece.kernel, tiling=False, repeated=piece.repeated)


def _starts_at_vectors(facts: Facts, loop: Sym) -> bool:
    """Whether something rests on vectors that start at multiples of the lanes."""
    alike = bool(facts.orders or facts.constant_masks)
    return alike or any(needs_alignment(facts, access, loop) for access in facts.access)


def _turn(body: tuple[Instr, ...], position: int, loop: Sym, size: int) -> tuple[int, bool] | None:
    """(the first point with the other answer, the answer before it) of a comparison of the loop's points with a number;
    None for other instructions and for comparisons that have one answer."""
    instr = body[position]
    if not isinstance(instr, Scalar) or instr.op not in _ANSWERS:
        return None
    ends = []
    for point in (0, size - 1):
        sides = [_value(body[k], loop, point) for k in instr.args]
        if sides[0] is None or sides[1] is None:
            return None
        ends.append(_ANSWERS[instr.op](sides[0], sides[1]))
    if ends[0] == ends[1]:
        return None
    low, high = 0, size - 1  # the answer at low is the first one, at high it is the other
    while high - low > 1:
        middle = (low + high) // 2
        first, second = (_value(body[k], loop, middle) for k in instr.args)
        assert first is not None
        assert second is not None
        low, high = (middle, high) if _ANSWERS[instr.op](first, second) == ends[0] else (low, middle)
    return high, ends[0]


def _value(instr: Instr, loop: Sym, point: int) -> int | None:
    """The value of an integer, or of an index that is linear in the loop alone, at a point of the loop. Floats are
    compared with no index, and infinities are no integers."""
    if isinstance(instr, Const):
        return None if instr.dtype.is_floating_point else int(instr.value)
    if not isinstance(instr, Index) or instr.expr.symbols != {loop}:
        return None
    coefficient = instr.expr.coefficient(loop)
    if coefficient is None or coefficient.as_int is None:
        return None
    return instr.expr.substitute({loop: as_expr(point)}).as_int


def _answered(kernel: Kernel, turns: dict[int, tuple[int, bool]], begin: int) -> Kernel:
    """The kernel of the piece that begins there: comparisons are constants, loads under their masks plain or gone."""
    body = list(kernel.body)
    for k, (cut, before) in turns.items():
        body[k] = Const(before if begin < cut else not before, body[k].dtype)
    for k, instr in enumerate(body):
        mask = None if not isinstance(instr, Load) or instr.mask is None else body[instr.mask]
        if isinstance(instr, Load) and isinstance(mask, Const):
            body[k] = replace(instr, mask=None) if mask.value else Const(instr.fill, instr.dtype)
        elif isinstance(instr, Scalar) and instr.op == "logical_and":
            sides = [body[j] for j in instr.args]
            if all(isinstance(side, Const) for side in sides):
                body[k] = Const(all(side.value for side in sides if isinstance(side, Const)), instr.dtype)
    access = tuple((k, kind) for k, kind in kernel.vector.access if k < 0 or isinstance(body[k], Load))
    return replace(kernel, body=tuple(body), vector=replace(kernel.vector, access=access))
