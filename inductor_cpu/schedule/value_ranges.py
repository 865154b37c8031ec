"""Which int64 values of a body 32 bits hold, and between which numbers they lie: positions, and arithmetic on them.

Ranges are exact integers. A value has one only if all int64 values that it is computed from have one, too: computed in
int32 or in int64, from the same numbers, it is the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

import torch

from inductor_cpu.ir.index import INT32, lower_bound, upper_bound, within
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Scalar
from inductor_cpu.ir.ops import DIVISIONS

#: The least and the largest number that a value can be.
Range = tuple[int, int]
MaybeRange = Union[Range, None]


def small_ranges(body: Sequence[Instr]) -> tuple[MaybeRange, ...]:
    """The range of each int64 value of a body that is known to fit 32 bits; None for all other values."""
    found: list[MaybeRange] = []
    for instr in body:
        known = _range(instr, body, found) if instr.dtype == torch.int64 else None
        found.append(known if known is not None and INT32[0] <= known[0] <= known[1] <= INT32[1] else None)
    return tuple(found)


def _range(instr: Instr, body: Sequence[Instr], known: Sequence[MaybeRange]) -> MaybeRange:
    """The range of an int64 value whose operands have the known ones. It may leave 32 bits."""
    if isinstance(instr, Const):
        return int(instr.value), int(instr.value)
    if isinstance(instr, Index):
        return _index_range(instr)
    if isinstance(instr, Cast):
        return _dtype_range(body[instr.arg].dtype)
    if not isinstance(instr, Scalar) or instr.op not in _RANGES:
        return None
    args = [known[k] for k in (instr.args[1:] if instr.op == "where" else instr.args)]
    if any(arg is None for arg in args):
        return None
    if instr.op in DIVISIONS and not _divides(body[instr.args[1]]):
        return None
    return _RANGES[instr.op](*args)


def _index_range(index: Index) -> MaybeRange:
    """Loops and sizes have bounds, other values none here. All parts of the expression fit, as the result must."""
    low, high = lower_bound(index.expr), upper_bound(index.expr)
    data = any(symbol.kind == "value" for symbol in index.expr.symbols)
    return None if data or low is None or high is None or not within(index.expr, *INT32) else (low, high)


def _dtype_range(dtype: torch.dtype) -> MaybeRange:
    """What a narrower integer or a bool can be."""
    if dtype == torch.bool:
        return 0, 1
    if dtype.is_floating_point or dtype == torch.int64:
        return None
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def _divides(divisor: Instr) -> bool:
    """Whether a divisor is a positive number: no quotient is larger than what is divided, and none is undefined."""
    return isinstance(divisor, Const) and divisor.value > 0


# -- ranges of results -----------------------------------------------------------------------------------------------
def _mul(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _abs(a: Range) -> Range:
    return max(a[0], -a[1], 0), max(-a[0], a[1])


def _remainder(a: Range, b: Range) -> Range:
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)


def _fmod(a: Range, b: Range) -> Range:
    """The sign is that of what is divided."""
    return max(min(a[0], 0), 1 - b[0]), min(max(a[1], 0), b[0] - 1)


def _truncated(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


#: Ops of integers: the range of the result from those of the operands (of where: of the choices). Divisors are positive
#: numbers.
_RANGES: dict[str, Callable[..., Range]] = {
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _abs,
    "sign": lambda a: (max(min(a[0], 1), -1), max(min(a[1], 1), -1)),
    "relu": lambda a: (max(a[0], 0), max(a[1], 0)),
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _mul,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "remainder": _remainder,
    "fmod": _fmod,
    "floordiv": lambda a, b: (a[0] // b[0], a[1] // b[0]),
    "truncdiv": lambda a, b: (_truncated(a[0], b[0]), _truncated(a[1], b[0])),
}
