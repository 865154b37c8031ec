"""What is known of the values of an index expression from the ranges of its symbols: bounds and signs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from inductor_cpu.ir.index.atoms import Atom, Monomial, Sym

if TYPE_CHECKING:
    from inductor_cpu.ir.index.expr import Expr


@lru_cache(maxsize=65536)
def is_nonnegative(expr: Expr) -> bool:
    """True only if expr >= 0 for all values in range."""
    lower = lower_bound(expr)
    return lower is not None and lower >= 0


def lower_bound(expr: Expr) -> int | None:
    """A constant inclusive lower bound, if one is known."""
    return _lower_bound(expr, 0)


def _lower_bound(expr: Expr, depth: int) -> int | None:
    """A constant lower bound, replacing bounded symbols with negative coefficients by their largest value."""
    value = expr.as_int
    if value is not None:
        return value
    negative = [(m, c) for m, c in expr.terms if c < 0 and m]
    if not negative:
        return sum(c * _monomial_lower(m) for m, c in expr.terms) if all(map(_all_nonnegative, expr.terms)) else None
    if depth > 8:
        return None
    for monomial, _ in negative:
        for atom in monomial:
            upper = _upper_expr(atom)
            if upper is not None:
                if not _falls_with(expr, atom):
                    continue
                return _lower_bound(_replace_atom(expr, atom, upper), depth + 1)
    return None


def _falls_with(expr: Expr, atom: Atom) -> bool:
    """No term grows with the atom, so that its largest value gives the bound: it appears to the first power, with a
    negative coefficient and nonnegative cofactors."""
    return all(
        c < 0 and m.count(atom) == 1 and all(a is atom or a == atom or _atom_lower(a) is not None for a in m)
        for m, c in expr.terms
        if atom in m
    )


def _replace_atom(expr: Expr, atom: Atom, by: Expr) -> Expr:
    total = expr.constant(0)
    for monomial, coef in expr.terms:
        if atom in monomial:
            rest = list(monomial)
            rest.remove(atom)
            total = total + expr.from_terms({tuple(rest): coef}) * by
        else:
            total = total + expr.from_terms({monomial: coef})
    return total


def _upper_expr(atom: Atom) -> Expr | None:
    if isinstance(atom, Sym):
        return atom.size - 1 if atom.size is not None else None
    if atom.name == "mod":
        return atom.args[1] - 1 if is_positive(atom.args[1]) else None
    if atom.name == "floordiv":
        top, den = atom.args[0], atom.args[1].as_int
        limit = upper_bound(top)
        return top.constant(limit // den) if limit is not None and den and den > 0 else None
    if atom.name == "min":
        return atom.args[0] if atom.args[0].as_int is not None else atom.args[1]
    limits = [upper_bound(arg) for arg in atom.args]
    known = [limit for limit in limits if limit is not None]
    return atom.args[0].constant(max(known)) if len(known) == len(limits) else None


def upper_bound(expr: Expr) -> int | None:
    """A constant inclusive upper bound, if one is known."""
    lower = lower_bound(-expr)
    return None if lower is None else -lower


#: The least and the largest number that 32 bits hold.
INT32 = (-(2**31), 2**31 - 1)


def within(expr: Expr, least: int, most: int) -> bool:
    """True only if least <= v <= most for all values v in range of the expression and of those inside its functions."""
    low, high = lower_bound(expr), upper_bound(expr)
    if low is None or high is None or low < least or high > most:
        return False
    return all(within(arg, least, most) for function in expr.functions for arg in function.args)


def _all_nonnegative(term: tuple[Monomial, int]) -> bool:
    return all(_atom_lower(atom) is not None for atom in term[0])


def _monomial_lower(monomial: Monomial) -> int:
    result = 1
    for atom in monomial:
        result *= _atom_lower(atom) or 0
    return result


def _atom_lower(atom: Atom) -> int | None:
    """A lower bound >= 0 of an atom, or None if it may be negative."""
    if isinstance(atom, Sym):
        unknown = atom.lo < 0 or (atom.kind == "value" and atom.size is None)
        return None if unknown else atom.lo
    if atom.name == "mod":
        return 0 if is_positive(atom.args[1]) else None
    if atom.name == "floordiv":
        return 0 if is_nonnegative(atom.args[0]) and is_positive(atom.args[1]) else None
    lows = [_lower_bound(arg, 0) for arg in atom.args]
    known = [low for low in lows if low is not None]
    if atom.name == "max":
        best = max(known, default=-1)
        return best if best >= 0 else None
    return min(known) if len(known) == len(lows) and min(known) >= 0 else None


def is_positive(expr: Expr) -> bool:
    """True only if expr >= 1 for all values in range. A size that divides is taken to be at least 1: a loop over an
    empty range never evaluates the division."""
    value = expr.as_int
    if value is not None:
        return value > 0
    return all(c > 0 and all(isinstance(a, Sym) and a.kind == "size" and a.lo >= 0 for a in m) for m, c in expr.terms)


def below(expr: Expr, bound: Expr) -> bool:
    """0 <= expr < bound for all values in range."""
    return is_nonnegative(expr) and is_nonnegative(bound - expr - 1)
