"""The expression itself: sums of coefficients times monomials, their arithmetic, and how they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Union

from inductor_cpu.ir.index.atoms import INT_FUNCTIONS, Atom, Func, Monomial, Sym, atom_text
from inductor_cpu.ir.index.division import floordiv, mod
from inductor_cpu.ir.index.ranges import is_nonnegative

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

    # -- making: what the modules below this one call, which cannot import it ------------------------------------------
    @staticmethod
    def constant(value: int) -> Expr:
        """A constant."""
        return const(value)

    @staticmethod
    def of_atom(atom: Atom) -> Expr:
        """The expression that is just this atom."""
        return Expr((((atom,), 1),))

    @staticmethod
    def from_terms(total: dict[Monomial, int]) -> Expr:
        """The sum of coefficients times monomials, those with coefficient 0 left out."""
        terms = [term for term in total.items() if term[1]]
        if len(terms) > 1:
            terms.sort(key=_term_text)
        return Expr(tuple(terms))

    # -- reading -----------------------------------------------------------------------------------------------------
    @property
    def as_int(self) -> int | None:
        """The value, if the expression is a constant."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def added(self) -> int:
        """The number that it adds to the terms with symbols."""
        return sum(coefficient for monomial, coefficient in self.terms if not monomial)

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

    @property
    def function_count(self) -> int:
        """How many quotients, remainders and bounds it has, those within others included."""
        return len(self.functions) + sum(arg.function_count for function in self.functions for arg in function.args)

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
        return Expr.from_terms(dict(picked))  # in the order of terms, which without the symbol may be another

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
        return Expr.from_terms(_merge(dict(self.terms), other.terms, 1))

    __radd__ = __add__

    def __sub__(self, other: IntoExpr) -> Expr:
        other = const(other) if isinstance(other, int) else other
        return Expr.from_terms(_merge(dict(self.terms), other.terms, -1))

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
                monomial = left + right if not left or not right else tuple(sorted(left + right, key=atom_text))
                total[monomial] = total.get(monomial, 0) + a * b
        return Expr.from_terms(total)

    __rmul__ = __mul__

    def __neg__(self) -> Expr:
        return self * -1

    def __floordiv__(self, other: IntoExpr) -> Expr:
        return floordiv(self, const(other) if isinstance(other, int) else other)

    def __mod__(self, other: IntoExpr) -> Expr:
        return mod(self, const(other) if isinstance(other, int) else other)

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
        return Expr.from_terms(total)

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


def _term_text(term: tuple[Monomial, int]) -> str:
    monomial = term[0]
    return monomial[0].text if len(monomial) == 1 else "*".join([atom.text for atom in monomial])


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


def contiguous_strides(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Row-major strides: of a buffer without gaps, the last dimension innermost. A size of 0 counts as 1."""
    strides: list[Expr] = []
    step = ONE
    for size in reversed(sizes):
        strides.append(step)
        if size != 0:
            step = step * size
    return tuple(reversed(strides))


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
        return floordiv(*args)
    if name == "mod":
        return mod(*args)
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
    return Expr.of_atom(Func(name, (first, second)))
