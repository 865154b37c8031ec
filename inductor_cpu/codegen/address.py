"""Index expressions in C++: as an int64_t, and as a vector of int64_t where they differ between lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from inductor_cpu.ir.index import INT32, Atom, Expr, Func, Sym, is_nonnegative, is_positive, within

Name = Callable[[Sym], str]


def scalar_text(expr: Expr, name: Name) -> str:
    """The expression as an int64_t; `name` writes a symbol."""
    parts: list[str] = []
    for monomial, coef in expr.terms:
        factors = [_atom_text(atom, name) for atom in monomial]
        if not factors:
            parts.append(str(coef) if abs(coef) < 2**31 else f"int64_t({coef})")
        elif coef in (1, -1):
            parts.append(("-" if coef < 0 else "") + " * ".join(factors))
        else:
            parts.append(" * ".join([*factors, str(coef)]) if coef > 0 else f"-{' * '.join([*factors, str(-coef)])}")
    text = " + ".join(parts).replace("+ -", "- ")
    return text or "0"


def _atom_text(atom: Atom, name: Name) -> str:
    if isinstance(atom, Sym):
        return name(atom)
    args = [scalar_text(arg, name) for arg in atom.args]
    if atom.name in ("min", "max"):
        return f"std::{atom.name}<int64_t>({args[0]}, {args[1]})"
    top, divisor = atom.args
    if is_nonnegative(top) and is_positive(divisor):
        sign = "/" if atom.name == "floordiv" else "%"
        return f"({_grouped(args[0])} {sign} {_grouped(args[1])})"
    function = "floordiv" if atom.name == "floordiv" else "remainder"
    return f"icpu::{function}<int64_t>({args[0]}, {args[1]})"


def _grouped(text: str) -> str:
    return text if text.replace("_", "a").isalnum() else f"({text})"


#: Of a shorter row that goes round too many vectors have an end.
_LEAST_TURN = 64


@dataclass(frozen=True)
class VectorIndex:
    """How to write an index that differs between lanes.

    name: writes a symbol where it is the same in all lanes, with the vector loop's variable meaning lane 0.
    vector_loop: its symbol. is_varying: whether a value symbol differs between lanes. vector_name: the vector that
    holds such a value; lane_name: the expression for one lane of it. kind: the type of the lanes; int32_t only where it
    holds all parts of the expressions, which then have no such values."""

    name: Name
    vector_loop: Sym
    is_varying: Callable[[Sym], bool]
    vector_name: Callable[[Sym], str]
    lane_name: Callable[[Sym], str]
    kind: str = "int64_t"

    def varies(self, expr: Expr) -> bool:
        """Whether the expression differs between lanes."""
        return any(map(self._symbol_varies, expr.symbols))

    def _symbol_varies(self, symbol: Sym) -> bool:
        return symbol == self.vector_loop or (symbol.kind == "value" and self.is_varying(symbol))

    def varying_values(self, expr: Expr) -> list[Sym]:
        """The value symbols in it that differ between lanes, in a fixed order."""
        return sorted((s for s in expr.symbols if s.kind == "value" and self.is_varying(s)), key=repr)

    def by_lane(self, expr: Expr) -> bool:
        """Whether it must be evaluated lane by lane: a function in it differs between lanes and has no vector form."""
        return any(self._atom_varies(f) and not self._has_vector_form(f) for f in expr.functions)

    def _has_vector_form(self, atom: Func) -> bool:
        if atom.name in ("min", "max"):
            return not any(map(self.by_lane, atom.args))
        return self._division(atom) is not None

    def bends(self, expr: Expr) -> bool:
        """Whether neighbouring lanes have neighbouring elements but at a few places: borders that are folded in."""
        return any(self._atom_varies(f) and f.name in ("min", "max") for f in expr.functions)

    def turns(self, expr: Expr) -> bool:
        """Whether they have, but where a long row has gone round (`(i + 7) % 1024`)."""
        long = (f for f in expr.functions if f.name == "mod" and (f.args[1].as_int or _LEAST_TURN) >= _LEAST_TURN)
        return any(map(self._atom_varies, long))

    def most_step(self, expr: Expr, sign: int = 1) -> int | None:
        """The most by which the expression, or with a sign of -1 its negative, grows from a lane to the next one; None
        where nothing is known."""
        total = 0
        for monomial, coef in expr.terms:
            varying = [atom for atom in monomial if self._atom_varies(atom)]
            if not varying:
                continue
            step = self._most_step_of(varying[0], sign if coef > 0 else -sign) if len(monomial) == 1 else None
            if step is None:
                return None
            total += abs(coef) * step
        return total

    def _most_step_of(self, atom: Atom, sign: int) -> int | None:
        if isinstance(atom, Sym):
            return sign if atom == self.vector_loop else None
        if atom.name == "mod" and sign > 0 and (parts := self._division(atom)) is not None:
            return parts[1]  # or less, where it begins again
        if atom.name not in ("min", "max"):
            return None
        steps = [self.most_step(arg, sign) for arg in atom.args]
        known = [step for step in steps if step is not None]
        return max(known) if len(known) == len(steps) else None

    def lane_text(self, expr: Expr) -> str:
        """The expression as an int64_t, of the lane whose number is `lane`."""
        return scalar_text(expr, self._lane_symbol)

    def _division(self, atom: Func) -> tuple[Expr, int, Expr] | None:
        """(dividend, its step from lane to lane, divisor) where a quotient or remainder has a vector form."""
        if atom.name not in ("floordiv", "mod"):
            return None
        top, divisor = atom.args
        if self.varies(divisor) or not (is_nonnegative(top) and is_positive(divisor)):
            return None
        stride = self.stride(top)
        step = None if stride is None else stride.as_int
        return (top, step, divisor) if step is not None and step > 0 else None

    def stride(self, expr: Expr) -> Expr | None:
        """The distance between neighbouring lanes where it is the same for all lanes."""
        if any(self.is_varying(s) for s in expr.symbols if s.kind == "value"):
            return None
        return expr.coefficient(self.vector_loop)

    def text(self, expr: Expr) -> str:
        """The expression as a vector."""
        if not self.varies(expr):
            return f"lanes.vec({self.kind}({scalar_text(expr, self.name)}))"
        if self.by_lane(expr):
            body = self.lane_text(expr)
            names = [self.vector_name(s) for s in self.varying_values(expr)]
            captures = ", ".join(["&", *(f"{name}_lanes = icpu::spill({name})" for name in names)])
            return f"icpu::per_lane<{self.kind}>(lanes, [{captures}](const int lane) {{ return {body}; }})"
        stride = self.stride(expr)
        if stride is not None and self.vector_loop not in stride.symbols:
            return self._iota(scalar_text(expr, self.name), scalar_text(stride, self.name))
        return self._polynomial(expr)

    def text_by_32_bits(self, expr: Expr) -> str | None:
        """The same, computed in int32_t where that holds all parts of an expression that is more than a stride; else
        None."""
        data = any(symbol.kind == "value" for symbol in expr.symbols)
        if data or not self.varies(expr) or self.by_lane(expr) or not any(map(self._atom_varies, expr.functions)):
            return None
        narrow = replace(self, kind="int32_t").text(expr) if within(expr, *INT32) else None
        return None if narrow is None else f"icpu::convert<int64_t>({narrow})"

    def _lane_symbol(self, symbol: Sym) -> str:
        if symbol == self.vector_loop:
            return f"({self.name(symbol)} + lane)"
        return self.lane_name(symbol) if self._symbol_varies(symbol) else self.name(symbol)

    def _polynomial(self, expr: Expr) -> str:
        same = Expr(tuple(t for t in expr.terms if not self._any_varying(t[0])))
        parts = [self._product(m, c) for m, c in expr.terms if self._any_varying(m)]
        if same.terms:
            parts.append(f"lanes.vec({self.kind}({scalar_text(same, self.name)}))")
        return " + ".join(parts)

    def _atom_varies(self, atom: Atom) -> bool:
        return self._symbol_varies(atom) if isinstance(atom, Sym) else any(map(self.varies, atom.args))

    def _any_varying(self, monomial: Iterable[Atom]) -> bool:
        return any(map(self._atom_varies, monomial))

    def _product(self, monomial: tuple[Atom, ...], coef: int) -> str:
        lanes = [a for a in monomial if self._atom_varies(a)]
        rest = list(monomial)
        for atom in lanes:
            rest.remove(atom)
        factors = [self._vector_atom(atom) for atom in lanes]
        scale = Expr(((tuple(rest), coef),))
        if scale.as_int != 1:
            factors.append(f"lanes.vec({self.kind}({scalar_text(scale, self.name)}))")
        return " * ".join(factors)

    def _vector_atom(self, atom: Atom) -> str:
        if isinstance(atom, Sym):
            return self._iota(self.name(atom), "1") if atom == self.vector_loop else self.vector_name(atom)
        if atom.name in ("min", "max"):
            return f"icpu::{atom.name}imum({self.text(atom.args[0])}, {self.text(atom.args[1])})"
        division = self._division(atom)
        assert division is not None
        top, step, divisor = division
        function = "quotients" if atom.name == "floordiv" else "remainders"
        function += "" if self.kind == "int64_t" else f"<{self.kind}>"
        base, by = scalar_text(top, self.name), scalar_text(divisor, self.name)
        return f"icpu::{function}({base}, {step}, {by}, lanes)"

    def _iota(self, base: str, step: str) -> str:
        function = "iota" if self.kind == "int64_t" else "iota32"
        return f"lanes.{function}({base}, {step})"
