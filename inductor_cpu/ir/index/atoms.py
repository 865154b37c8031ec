"""What the monomials of an index expression are made of: symbols, and integer functions of other expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    # Expressions are made of atoms, and atoms of expressions: only the types go both ways.
    from inductor_cpu.ir.index.expr import Expr

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


def atom_text(atom: Atom) -> str:
    """What atoms are sorted by."""
    return atom.text
