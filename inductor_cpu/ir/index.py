"""Integer index expressions: polynomials over symbols, floor divisions and remainders.

An expression is a sum of monomials with integer coefficients. The atoms of a monomial are loop variables, size symbols
and SSA values (`Sym`) or functions (`Func`: floordiv, mod, min, max) of other expressions. Construction simplifies, so
equal expressions are equal values for every case that views produce. Sympy would do the same fifty times slower, and
this runs for every access of every loop; sympy is only read at the border (`from_sympy`).

A `Sym` carries its own range, 0 <= lo <= value < size, so that simplification needs no context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from math import gcd
from typing import Union

#: The functions an index expression may contain, with Python's floor semantics.
INT_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


class Sym:
    """A symbol. kind: "loop" (0 <= v < size), "size" (lo <= v), "value" (an SSA result, 0 <= v < size if size)."""

    __slots__ = ("_hash", "kind", "lo", "name", "size", "text")

    def __init__(self, name: str, kind: str, size: Expr | None = None, lo: int = 0) -> None:
        self.name, self.kind, self.size, self.lo = name, kind, size, lo
        self.text = name
        self._hash = hash((name, kind, size, lo))

    def __reduce__(self) -> tuple[object, ...]:
        return Sym, (self.name, self.kind, self.size, self.lo)  # hashes of text differ between processes

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Sym)
            and (self._hash, self.name, self.kind, self.lo, self.size)
            == (other._hash, other.name, other.kind, other.lo, other.size)
        )

    def __repr__(self) -> str:
        return self.name


class Func:
    """An integer function of expressions, with Python's floor semantics: floordiv, mod, min or max."""

    __slots__ = ("_hash", "args", "name", "text")

    def __init__(self, name: str, args: tuple[Expr, ...]) -> None:
        self.name, self.args = name, args
        sign = {"floordiv": "//", "mod": "%"}.get(name)
        parts = [_operand_text(arg) if sign else repr(arg) for arg in args]
        self.text = f"({parts[0]} {sign} {parts[1]})" if sign else f"{name}({', '.join(parts)})"
        self._hash = hash((name, args))

    def __reduce__(self) -> tuple[object, ...]:
        return Func, (self.name, self.args)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Func)
            and self._hash == other._hash
            and self.name == other.name
            and self.args == other.args
        )

    def __repr__(self) -> str:
        return self.text


def _operand_text(expr: Expr) -> str:
    single = len(expr.terms) == 1 and (not expr.terms[0][0] or (expr.terms[0][1] == 1 and len(expr.terms[0][0]) == 1))
    return repr(expr) if single or not expr.terms else f"({expr})"


Atom = Union[Sym, Func]
Monomial = tuple[Atom, ...]  # sorted by text; () is the constant term
IntoExpr = Union["Expr", int]


class Expr:
    """An immutable sum of coefficient * monomial. Build with `const`, `loop_var`, `size_symbol` and operators."""

    __slots__ = ("_functions", "_hash", "_symbols", "terms")
    _functions: frozenset[Func] | None
    _symbols: frozenset[Sym] | None
    _hash: int | None

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = self._symbols = self._functions = None  # computed when asked for: most expressions are transient

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.as_int == other
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __reduce__(self) -> tuple[object, ...]:
        return Expr, (self.terms,)

    # -- reading -----------------------------------------------------------------------------------------------------
    @property
    def as_int(self) -> int | None:
        """The value, if the expression is a constant."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def symbols(self) -> frozenset[Sym]:
        """Every symbol in it, also inside functions, but not the sizes that symbols carry as ranges."""
        if self._symbols is None:
            found: set[Sym] = set()
            for monomial, _ in self.terms:
                for atom in monomial:
                    if isinstance(atom, Sym):
                        found.add(atom)
                    else:
                        found.update(*(arg.symbols for arg in atom.args))
            self._symbols = frozenset(found)
        return self._symbols

    @property
    def functions(self) -> frozenset[Func]:
        """Every function atom at the top level of the polynomial."""
        if self._functions is None:
            self._functions = frozenset(a for monomial, _ in self.terms for a in monomial if isinstance(a, Func))
        return self._functions

    def coefficient(self, symbol: Sym) -> Expr | None:
        """c such that self = c * symbol + rest and neither c nor rest depends on symbol; None if not affine in it."""
        if symbol not in self.symbols:
            return ZERO
        picked: list[tuple[Monomial, int]] = []
        for monomial, coef in self.terms:
            count = monomial.count(symbol)
            if any(isinstance(atom, Func) and any(symbol in a.symbols for a in atom.args) for atom in monomial):
                return None
            if count > 1:
                return None
            if count == 1:
                rest = list(monomial)
                rest.remove(symbol)
                picked.append((tuple(rest), coef))
        return _from_dict(dict(picked))  # in the order of terms, which without the symbol may be another

    def __repr__(self) -> str:
        if not self.terms:
            return "0"
        parts = []
        for monomial, coef in self.terms:
            body = "*".join([atom.text for atom in monomial])
            parts.append(str(coef) if not body else body if coef == 1 else f"{coef}*{body}")
        return " + ".join(parts)

    # -- arithmetic --------------------------------------------------------------------------------------------------
    def __add__(self, other: IntoExpr) -> Expr:
        other = const(other) if isinstance(other, int) else other
        if not other.terms:
            return self
        if not self.terms:
            return other
        return _from_dict(_merge(dict(self.terms), other.terms, 1))

    __radd__ = __add__

    def __sub__(self, other: IntoExpr) -> Expr:
        other = const(other) if isinstance(other, int) else other
        return _from_dict(_merge(dict(self.terms), other.terms, -1))

    def __rsub__(self, other: IntoExpr) -> Expr:
        return (const(other) if isinstance(other, int) else other) - self

    def __mul__(self, other: IntoExpr) -> Expr:
        if isinstance(other, int):
            if other == 1:
                return self
            return Expr(tuple([(m, c * other) for m, c in self.terms])) if other else ZERO
        if not self.terms or not other.terms:
            return ZERO
        if not other.terms[0][0] and len(other.terms) == 1:
            return self * other.terms[0][1]
        if not self.terms[0][0] and len(self.terms) == 1:
            return other * self.terms[0][1]
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = left + right if not left or not right else tuple(sorted(left + right, key=_atom_text))
                total[monomial] = total.get(monomial, 0) + a * b
        return _from_dict(total)

    __rmul__ = __mul__

    def __neg__(self) -> Expr:
        return self * -1

    def __floordiv__(self, other: IntoExpr) -> Expr:
        return _floordiv(self, const(other) if isinstance(other, int) else other)

    def __mod__(self, other: IntoExpr) -> Expr:
        return _mod(self, const(other) if isinstance(other, int) else other)

    # -- rewriting ---------------------------------------------------------------------------------------------------
    def substitute(self, values: Mapping[Sym, Expr]) -> Expr:
        """Replace symbols by expressions and simplify again."""
        if not any(symbol in values for symbol in self.symbols):
            return self
        total: dict[Monomial, int] = {}
        for monomial, coef in self.terms:
            kept: list[Atom] = []
            product = ONE
            for atom in monomial:
                replaced = _substitute_atom(atom, values)
                if replaced is None:
                    kept.append(atom)
                else:
                    product = replaced if product is ONE else product * replaced
            if product is not ONE:
                _merge(total, (product * Expr(((tuple(kept), 1),)) if kept else product).terms, coef)
            else:
                _merge(total, ((tuple(kept), 1),), coef)
        return _from_dict(total)

    def evaluate(self, values: Mapping[Sym, int]) -> int:
        """The value for given symbol values. Raises KeyError for a missing symbol."""
        total = 0
        for monomial, coef in self.terms:
            for atom in monomial:
                if isinstance(atom, Sym):
                    coef *= values[atom]
                else:
                    coef *= INT_FUNCTIONS[atom.name](*(arg.evaluate(values) for arg in atom.args))
            total += coef
        return total


def _merge(into: dict[Monomial, int], terms: Iterable[tuple[Monomial, int]], scale: int) -> dict[Monomial, int]:
    for monomial, coef in terms:
        into[monomial] = into.get(monomial, 0) + scale * coef
    return into


def _atom_text(atom: Atom) -> str:
    return atom.text


def _term_text(term: tuple[Monomial, int]) -> str:
    monomial = term[0]
    return monomial[0].text if len(monomial) == 1 else "*".join([atom.text for atom in monomial])


def _from_dict(total: dict[Monomial, int]) -> Expr:
    terms = [term for term in total.items() if term[1]]
    if len(terms) > 1:
        terms.sort(key=_term_text)
    return Expr(tuple(terms))


ZERO = Expr(())
ONE = Expr((((), 1),))


@lru_cache(maxsize=65536)
def const(value: int) -> Expr:
    """A constant."""
    return Expr((((), int(value)),)) if value else ZERO


@lru_cache(maxsize=65536)
def of(symbol: Sym) -> Expr:
    """The expression that is just this symbol."""
    return Expr((((symbol,), 1),))


@lru_cache(maxsize=65536)
def loop_var(name: str, size: IntoExpr) -> Sym:
    """A loop variable with 0 <= v < size."""
    return Sym(name, "loop", as_expr(size))


def size_symbol(name: str, lo: int = 0) -> Sym:
    """A run-time size with v >= lo. A negative lo says nothing: the int may have either sign."""
    return Sym(name, "size", None, lo)


def value_symbol(position: int, size: IntoExpr | None) -> Sym:
    """The SSA value at `position` of a loop body, used as an index; size: its exclusive bound if it was checked."""
    return Sym(f"%{position}", "value", None if size is None else as_expr(size), 0)


def as_expr(value: IntoExpr) -> Expr:
    """An int or an expression, as an expression."""
    return value if isinstance(value, Expr) else const(value)


def product(values: Iterable[Expr]) -> Expr:
    """The product; 1 for none."""
    return reduce(lambda a, b: a * b, values, ONE)


def _substitute_atom(atom: Atom, values: Mapping[Sym, Expr]) -> Expr | None:
    """The atom with symbols replaced; None if there is nothing to replace."""
    if isinstance(atom, Sym):
        return values.get(atom)
    args = [arg.substitute(values) for arg in atom.args]
    if all(new is old for new, old in zip(args, atom.args, strict=True)):
        return None
    return function(atom.name, *args)


def function(name: str, *args: Expr) -> Expr:
    """floordiv, mod, min or max of expressions."""
    if name == "floordiv":
        return _floordiv(*args)
    if name == "mod":
        return _mod(*args)
    return _min_max(name, *args)


def minimum(left: IntoExpr, right: IntoExpr) -> Expr:
    """min(left, right)."""
    return _min_max("min", as_expr(left), as_expr(right))


def maximum(left: IntoExpr, right: IntoExpr) -> Expr:
    """max(left, right)."""
    return _min_max("max", as_expr(left), as_expr(right))


def _min_max(name: str, left: Expr, right: Expr) -> Expr:
    if left == right or is_nonnegative(right - left):
        return left if name == "min" else right
    if is_nonnegative(left - right):
        return right if name == "min" else left
    first, second = sorted((left, right), key=repr)
    return _atom(Func(name, (first, second)))


def _atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


# -- ranges ----------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=65536)
def is_nonnegative(expr: Expr) -> bool:
    """True only if expr >= 0 for all values in range."""
    lower = _lower_bound(expr, 0)
    return lower is not None and lower >= 0


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
    total = ZERO
    for monomial, coef in expr.terms:
        if atom in monomial:
            rest = list(monomial)
            rest.remove(atom)
            total = total + Expr(((tuple(rest), coef),)) * by
        else:
            total = total + Expr(((monomial, coef),))
    return total


def _upper_expr(atom: Atom) -> Expr | None:
    if isinstance(atom, Sym):
        return atom.size - 1 if atom.size is not None else None
    if atom.name == "mod":
        return atom.args[1] - 1 if is_positive(atom.args[1]) else None
    if atom.name == "floordiv":
        top, den = atom.args[0], atom.args[1].as_int
        limit = upper_bound(top)
        return const(limit // den) if limit is not None and den and den > 0 else None
    if atom.name == "min":
        return atom.args[0] if atom.args[0].as_int is not None else atom.args[1]
    return None


def upper_bound(expr: Expr) -> int | None:
    """A constant inclusive upper bound, if one is known."""
    lower = _lower_bound(-expr, 0)
    return None if lower is None else -lower


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


def _below(expr: Expr, bound: Expr) -> bool:
    """0 <= expr < bound for all values in range."""
    return is_nonnegative(expr) and is_nonnegative(bound - expr - 1)


# -- division --------------------------------------------------------------------------------------------------------
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
        return ONE if expr == divisor else None
    terms = [_quotient(m, c, divisor) for m, c in expr.terms]
    if any(term is None for term in terms):
        return None
    return _from_dict(dict(t for t in terms if t is not None))


def _split(expr: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """(q, r) with expr = q * divisor + r, q taking every term that divides exactly."""
    if len(divisor.terms) != 1:
        return (ONE, ZERO) if expr == divisor else (ZERO, expr)
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
    return _from_dict(whole), _from_dict(rest)


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
        scale = const(g)
        upper, lower = _split(rest, scale)
        if upper.terms and _below(lower, scale):
            return scale, upper, lower, const(den // g)
    return None


@lru_cache(maxsize=65536)
def _floordiv(expr: Expr, divisor: Expr) -> Expr:
    den = divisor.as_int
    if den == 1:
        return expr
    value = expr.as_int
    if value is not None and den:
        return const(value // den)
    if den == 0:
        raise ZeroDivisionError(f"({expr}) // 0")
    expr = _recombined(expr)
    whole, rest = _split(expr, divisor)
    if _below(rest, divisor):
        return whole
    scaled = _scale_down(rest, divisor)
    if scaled is not None:
        return whole + _floordiv(scaled[1], scaled[3])
    inner = _single_atom(rest)
    if isinstance(inner, Func) and inner.name == "floordiv" and is_positive(inner.args[1]) and is_positive(divisor):
        return whole + _floordiv(inner.args[0], inner.args[1] * divisor)
    return whole + _atom(Func("floordiv", (rest, divisor)))


@lru_cache(maxsize=65536)
def _mod(expr: Expr, divisor: Expr) -> Expr:
    den = divisor.as_int
    if den == 1:
        return ZERO
    value = expr.as_int
    if value is not None and den:
        return const(value % den)
    if den == 0:
        raise ZeroDivisionError(f"({expr}) % 0")
    expr = _recombined(expr)
    _, rest = _split(expr, divisor)
    if _below(rest, divisor):
        return rest
    scaled = _scale_down(rest, divisor)
    if scaled is not None:
        scale, upper, lower, small = scaled
        return scale * _mod(upper, small) + lower
    inner = _single_atom(rest)
    if isinstance(inner, Func) and inner.name == "mod" and divide_exact(inner.args[1], divisor) is not None:
        return _mod(inner.args[0], divisor)
    return _atom(Func("mod", (rest, divisor)))


def _single_atom(expr: Expr) -> Atom | None:
    if len(expr.terms) == 1 and expr.terms[0][1] == 1 and len(expr.terms[0][0]) == 1:
        return expr.terms[0][0][0]
    return None


def recombine(expr: Expr) -> Expr:
    """Rewrite c * d * (x // d) + c * (x % d) to c * x, until nothing changes. Addresses of reshaped views need it."""
    changed = True
    while changed:
        changed = False
        for atom in sorted(expr.functions, key=_atom_text):
            if atom.name != "mod":
                continue
            scale = expr_coefficient(expr, atom)
            if scale is None:
                continue
            rest = expr - scale * _atom(atom)
            d = atom.args[1]
            for x in _dividends(expr, atom):
                candidate = rest - scale * d * _floordiv(x, d) + scale * x
                if len(candidate.functions) < len(expr.functions):
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
    return [own, *sorted((x for x in divided if _mod(x, d) == _atom(remainder)), key=repr)]


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
    return _from_dict(dict(picked))


def render(expr: Expr, name: Callable[[Sym], str], call: Callable[[str, list[str]], str]) -> str:
    """Text of an expression: `name` writes a symbol, `call` a function of rendered arguments."""
    parts = []
    for monomial, coef in expr.terms:
        factors = [
            name(atom) if isinstance(atom, Sym) else call(atom.name, [render(arg, name, call) for arg in atom.args])
            for atom in monomial
        ]
        if coef != 1 or not factors:
            factors.insert(0, str(coef))
        parts.append("*".join(factors))
    return " + ".join(parts) if parts else "0"
