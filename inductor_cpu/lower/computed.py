"""Sizes that are no integer arithmetic, such as int(1.5 * s0): a call computes them, and they are symbols to the rest.

The symbol of such an expression is named after its text, so that whoever meets the expression makes the same symbol;
the lowering defines it, by an extern call, before the first node that needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_PREFIX = "computed_"


def symbol_name(expr: sympy.Basic) -> str:
    """The name of the symbol that stands for the value of `expr`."""
    return _PREFIX + hashlib.sha256(str(expr).encode()).hexdigest()[:16]


def definition(name: str, exprs: Iterable[sympy.Basic]) -> sympy.Basic | None:
    """The part of these expressions that a name stands for; None if it is not a computed size of theirs."""
    if not name.startswith(_PREFIX):
        return None
    for expr in exprs:
        for part in sympy.preorder_traversal(expr):
            if symbol_name(part) == name:
                return part
    return None


@dataclass(frozen=True)
class SizeFunction:
    """`expr` as a function of the values of its symbols, with Python's arithmetic, as the shape environment has it. The
    value of a float is given as a 0-dim tensor.

    kind: "int" (also for conditions: 1 or 0), or "tensor": a float, as a 0-dim float64 tensor."""

    expr: sympy.Basic
    symbols: tuple[sympy.Symbol, ...]
    kind: str = "int"

    def __call__(self, *values: int | torch.Tensor) -> int | torch.Tensor:
        numbers = [value.item() if isinstance(value, torch.Tensor) else value for value in values]
        value: Any = sympy_interp(PythonReferenceAnalysis, dict(zip(self.symbols, numbers, strict=True)), self.expr)
        return int(value) if self.kind == "int" else torch.tensor(float(value), dtype=torch.float64)

    def __str__(self) -> str:
        return f"size {self.expr}"


def size_function(expr: sympy.Basic, kind: str = "int") -> SizeFunction:
    """The function of an expression; its arguments are in the order of their names."""
    return SizeFunction(expr, tuple(sorted(expr.free_symbols, key=str)), kind)
