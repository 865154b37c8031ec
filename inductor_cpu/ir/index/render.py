"""Index expressions as text of another language."""

from __future__ import annotations

from collections.abc import Callable

from inductor_cpu.ir.index.atoms import Sym
from inductor_cpu.ir.index.expr import Expr


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
