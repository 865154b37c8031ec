"""Integer index expressions: polynomials over symbols, floor divisions and remainders.

An expression is a sum of monomials with integer coefficients. The atoms of a monomial are loop variables, size symbols
and SSA values (`Sym`) or functions (`Func`: floordiv, mod, min, max) of other expressions. Construction simplifies, so
equal expressions are equal values for every case that views produce. Sympy would do the same fifty times slower, and
this runs for every access of every loop; sympy is only read at the border (`from_sympy`).

A `Sym` carries its own range, 0 <= lo <= value < size, so that simplification needs no context.

`expr` is the top: it knows `division`, which knows `ranges`, which knows `atoms`; `render` reads what they make.
"""

from inductor_cpu.ir.index.atoms import INT_FUNCTIONS, Atom, Func, Monomial, Sym
from inductor_cpu.ir.index.division import divide_exact, expr_coefficient, recombine
from inductor_cpu.ir.index.expr import (
    ONE,
    ZERO,
    Expr,
    IntoExpr,
    as_expr,
    const,
    contiguous_strides,
    function,
    loop_var,
    maximum,
    minimum,
    of,
    product,
    size_symbol,
    value_symbol,
)
from inductor_cpu.ir.index.ranges import INT32, below, is_nonnegative, is_positive, lower_bound, upper_bound, within
from inductor_cpu.ir.index.render import render

__all__ = [
    "Atom",
    "Expr",
    "Func",
    "INT32",
    "INT_FUNCTIONS",
    "IntoExpr",
    "Monomial",
    "ONE",
    "Sym",
    "ZERO",
    "as_expr",
    "below",
    "const",
    "contiguous_strides",
    "divide_exact",
    "expr_coefficient",
    "function",
    "is_nonnegative",
    "is_positive",
    "loop_var",
    "lower_bound",
    "maximum",
    "minimum",
    "of",
    "product",
    "recombine",
    "render",
    "size_symbol",
    "upper_bound",
    "value_symbol",
    "within",
]
