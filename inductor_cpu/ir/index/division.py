"""Floor division and remainders of index expressions, simplified as they are made."""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

from inductor_cpu.ir.index.atoms import Atom, Func, Monomial, atom_text
from inductor_cpu.ir.index.ranges import below, is_positive

if TYPE_CHECKING:
    from inductor_cpu.ir.index.expr import Expr


def _quotient(monomial: Monomial, coef: int, divisor: Expr) -> tuple[Monomial, int] | None:
    """term / divisor when exact, for a divisor with one term."""
    (den, den_coef) = divisor.terms[0]
    if coef % den_coef:
        return None
    rest = list(monomial)
    for atom in den:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest), coef // den_coef


def divide_exact(expr: Expr, divisor: Expr) -> Expr | None:
    """expr / divisor if every term divides, for a divisor with one term; else None."""
    if len(divisor.terms) != 1:
        return expr.constant(1) if expr == divisor else None
    terms = [_quotient(m, c, divisor) for m, c in expr.terms]
    if any(term is None for term in terms):
        return None
    return expr.from_terms(dict(t for t in terms if t is not None))


def _split(expr: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """(q, r) with expr = q * divisor + r, q taking every term that divides exactly."""
    if len(divisor.terms) != 1:
        one, zero = expr.constant(1), expr.constant(0)
        return (one, zero) if expr == divisor else (zero, expr)
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    den_const = divisor.as_int
    for monomial, coef in expr.terms:
        quotient = _quotient(monomial, coef, divisor)
        if quotient is not None:
            whole[quotient[0]] = whole.get(quotient[0], 0) + quotient[1]
        elif not monomial and den_const:
            whole[()] = whole.get((), 0) + coef // den_const
            rest[()] = rest.get((), 0) + coef % den_const
        else:
            rest[monomial] = rest.get(monomial, 0) + coef
    return expr.from_terms(whole), expr.from_terms(rest)


def _common_scales(rest: Expr, divisor: int) -> list[int]:
    """Candidates g > 1 that divide the divisor and some coefficient, largest first."""
    found = {gcd(abs(coef), divisor) for monomial, coef in rest.terms if monomial}
    return sorted((g for g in found if g > 1), reverse=True)


def _scale_down(rest: Expr, divisor: Expr) -> tuple[Expr, Expr, Expr, Expr] | None:
    """(g, a, b, divisor / g) with rest = g * a + b and 0 <= b < g: then rest // divisor = a // (divisor / g)."""
    den = divisor.as_int
    if den is None or den <= 0:
        return None
    for g in _common_scales(rest, den):
        scale = rest.constant(g)
        upper, lower = _split(rest, scale)
        if upper.terms and below(lower, scale):
            return scale, upper, lower, rest.constant(den // g)
    return None


@lru_cache(maxsize=65536)
def floordiv(expr: Expr, divisor: Expr) -> Expr:
    """expr // divisor. Raises ZeroDivisionError for the constant 0."""
    den = divisor.as_int
    if den == 1:
        return expr
    value = expr.as_int
    if value is not None and den:
        return expr.constant(value // den)
    if den == 0:
        raise ZeroDivisionError(f"({expr}) // 0")
    expr = _recombined(expr)
    whole, rest = _split(expr, divisor)
    if below(rest, divisor):
        return whole
    scaled = _scale_down(rest, divisor)
    if scaled is not None:
        return whole + floordiv(scaled[1], scaled[3])
    inner = _single_atom(rest)
    if isinstance(inner, Func) and inner.name == "floordiv" and is_positive(inner.args[1]) and is_positive(divisor):
        return whole + floordiv(inner.args[0], inner.args[1] * divisor)
    return whole + expr.of_atom(Func("floordiv", (rest, divisor)))


@lru_cache(maxsize=65536)
def mod(expr: Expr, divisor: Expr) -> Expr:
    """expr % divisor. Raises ZeroDivisionError for the constant 0."""
    den = divisor.as_int
    if den == 1:
        return expr.constant(0)
    value = expr.as_int
    if value is not None and den:
        return expr.constant(value % den)
    if den == 0:
        raise ZeroDivisionError(f"({expr}) % 0")
    expr = _recombined(expr)
    _, rest = _split(expr, divisor)
    if below(rest, divisor):
        return rest
    scaled = _scale_down(rest, divisor)
    if scaled is not None:
        scale, upper, lower, small = scaled
        return scale * mod(upper, small) + lower
    inner = _single_atom(rest)
    if isinstance(inner, Func) and inner.name == "mod" and divide_exact(inner.args[1], divisor) is not None:
        return mod(inner.args[0], divisor)
    return expr.of_atom(Func("mod", (rest, divisor)))


def _single_atom(expr: Expr) -> Atom | None:
    if len(expr.terms) == 1 and expr.terms[0][1] == 1 and len(expr.terms[0][0]) == 1:
        return expr.terms[0][0][0]
    return None


def recombine(expr: Expr) -> Expr:
    """Rewrite c * d * (x // d) + c * (x % d) to c * x, until nothing changes. Addresses of reshaped views need it."""
    changed = True
    while changed:
        changed = False
        for atom in sorted(expr.functions, key=atom_text):
            if atom.name != "mod":
                continue
            scale = expr_coefficient(expr, atom)
            if scale is None:
                continue
            rest = expr - scale * expr.of_atom(atom)
            d = atom.args[1]
            for x in _dividends(expr, atom):
                candidate = rest - scale * d * floordiv(x, d) + scale * x
                if candidate.function_count < expr.function_count:
                    expr, changed = candidate, True
                    break
            if changed:
                break
    return expr


def _recombined(expr: Expr) -> Expr:
    """A dividend that is itself the address of a reshaped view, put together."""
    names = {f.name for f in expr.functions}
    return recombine(expr) if {"mod", "floordiv"} <= names else expr


def _dividends(expr: Expr, remainder: Func) -> list[Expr]:
    """The x for which x % d is `remainder`: its own, and those that expr divides by d. Simplification turns the
    remainder of x = y % 6 by 2 into y % 2, which does not show x any more."""
    own, d = remainder.args
    divided = [f.args[0] for f in expr.functions if f.name == "floordiv" and f.args[1] == d and f.args[0] != own]
    return [own, *sorted((x for x in divided if mod(x, d) == expr.of_atom(remainder)), key=repr)]


def expr_coefficient(expr: Expr, atom: Atom) -> Expr | None:
    """The coefficient of an atom, None where it appears with a power."""
    picked = []
    for monomial, coef in expr.terms:
        if monomial.count(atom) > 1:
            return None
        if atom in monomial:
            rest = list(monomial)
            rest.remove(atom)
            picked.append((tuple(rest), coef))
    return expr.from_terms(dict(picked))
