"""When two sets of loops walk the same points: both are cut into the same pieces.

The bridge is a buffer that both access. Each address is a sum of digits (coefficient * loop) and a rest; a digit of n
points may be cut into an upper and a lower piece where the other address has a boundary between two digits. If every
piece of one address then equals a piece of the other, the pieces map the points of one set one to one to the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from inductor_cpu.ir.index import ONE, ZERO, Expr, Sym, loop_var, of
from inductor_cpu.schedule.cost import hint


@dataclass
class Alignment:
    """Pieces of two sets of loops, outermost first for each loop. values: each loop as an expression in its pieces."""

    first: dict[Sym, list[Sym]] = field(default_factory=dict)
    second: dict[Sym, list[Sym]] = field(default_factory=dict)
    values: tuple[dict[Sym, Expr], dict[Sym, Expr]] = field(default_factory=lambda: ({}, {}))


@dataclass
class _Digit:
    """What is left of a digit: its upper part, `size` points of `coefficient` elements. weight: points of the loop."""

    coefficient: Expr
    loop: Sym
    size: Expr
    weight: Expr = ONE


def align(
    address: Expr, loops: Sequence[Sym], other_address: Expr, other_loops: Sequence[Sym], names: Iterator[str]
) -> Alignment | None:
    """Cut `loops` and `other_loops` into common pieces, for which the addresses are equal; None if they do not fit.
    A loop of `loops` that is one piece keeps its symbol; other pieces get new names."""
    split, other_split = _digits(address, loops), _digits(other_address, other_loops)
    if split is None or other_split is None or split[1] != other_split[1]:
        return None
    found = Alignment({s: [] for s in loops}, {s: [] for s in other_loops})
    digits, others = split[0], other_split[0]
    while digits and others:
        low, other = digits[-1], others[-1]
        if low.coefficient != other.coefficient:
            return None
        size = low.size if hint(low.size) <= hint(other.size) else other.size
        piece = low.loop if low.loop.size == size else loop_var(next(names), size)
        for side, digit, stack in ((found.first, low, digits), (found.second, other, others)):
            if not _take(digit, size, stack):
                return None
            side[digit.loop].insert(0, piece)
        _add(found.values[0], low, piece, size)
        _add(found.values[1], other, piece, size)
    return None if digits or others else found


def _add(values: dict[Sym, Expr], digit: _Digit, piece: Sym, size: Expr) -> None:
    """Count the piece that `_take` has just cut off."""
    values[digit.loop] = values.get(digit.loop, ZERO) + of(piece) * digit.weight
    digit.weight = digit.weight * size


def _take(digit: _Digit, size: Expr, stack: list[_Digit]) -> bool:
    """Cut the lowest `size` points off a digit; False if that does not divide it."""
    if digit.size == size:
        stack.pop()
        return True
    upper = digit.size // size
    if upper.functions or upper * size != digit.size:
        return False
    digit.size, digit.coefficient = upper, digit.coefficient * size
    return True


def _digits(address: Expr, loops: Sequence[Sym]) -> tuple[list[_Digit], Expr] | None:
    """The digits of an address, largest first, and the rest; None if a loop is missing or the address is not affine."""
    found: list[_Digit] = []
    rest = address
    for loop in loops:
        coefficient = address.coefficient(loop)
        if coefficient is None or not coefficient.terms or loop.size is None:
            return None
        found.append(_Digit(coefficient, loop, loop.size))
        rest = rest - coefficient * of(loop)
    if any(symbol.kind != "size" for symbol in rest.symbols):
        return None
    found.sort(key=lambda digit: -abs(hint(digit.coefficient)))
    return found, rest


def linear(position: Sequence[Expr], loops: Sequence[Sym]) -> Expr:
    """The row-major number of a position in loops."""
    total = ZERO
    for expr, loop in zip(position, loops, strict=True):
        assert loop.size is not None
        total = total * loop.size + expr
    return total
