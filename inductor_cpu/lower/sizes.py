"""From torch's sizes (int, SymInt, SymBool, sympy) to index expressions. A condition is 1 or 0, by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true
from torch.utils._sympy import functions as sympy_functions

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import (
    ONE,
    ZERO,
    Expr,
    Sym,
    const,
    expr_coefficient,
    function,
    lower_bound,
    maximum,
    minimum,
    of,
    product,
    size_symbol,
)
from inductor_cpu.lower.computed import symbol_name

#: The lower bound of an int that may be negative.
ANY_SIGN = -(1 << 62)

#: Numbers below this, times a size (below 2**37), are exact in a double.
_FEW_BITS = 1 << 16

#: sympy function -> name of ours; all take integers and floor.
_FUNCTIONS: dict[Any, str] = {
    sympy_functions.FloorDiv: "floordiv",
    sympy_functions.CleanDiv: "floordiv",
    sympy_functions.IntTrueDiv: "",
    sympy_functions.Mod: "mod",
    sympy_functions.PythonMod: "mod",
}


def _at_least(left: Expr, right: Expr) -> Expr:
    return minimum(maximum(left - right + 1, ZERO), ONE)


def _equal(left: Expr, right: Expr) -> Expr:
    return _at_least(left, right) * _at_least(right, left)


#: sympy comparison -> the expression that is 1 where it holds and 0 where it does not.
_COMPARISONS: dict[Any, Callable[[Expr, Expr], Expr]] = {
    sympy.Ge: _at_least,
    sympy.Gt: lambda left, right: _at_least(left, right + 1),
    sympy.Le: lambda left, right: _at_least(right, left),
    sympy.Lt: lambda left, right: _at_least(right, left + 1),
    sympy.Eq: _equal,
    sympy.Ne: lambda left, right: ONE - _equal(left, right),
}


def condition(expr: Any, env: ShapeEnv) -> Expr:
    """A sympy condition as an expression that is 1 or 0. Raises Unsupported for what is no condition on numbers."""
    if expr in (sympy.true, sympy.false):
        return ONE if expr == sympy.true else ZERO
    compare = _COMPARISONS.get(type(expr))
    if compare is not None and all(arg.is_integer for arg in expr.args):
        return compare(*(from_sympy(arg, env) for arg in expr.args))
    if compare is not None:
        return of(size_symbol(symbol_name(expr), 0))  # a comparison of floats: a call computes it
    if isinstance(expr, sympy.Not):
        return ONE - condition(expr.args[0], env)
    if isinstance(expr, sympy.And):
        return product(condition(arg, env) for arg in expr.args)
    if isinstance(expr, sympy.Or):
        return ONE - product(ONE - condition(arg, env) for arg in expr.args)
    raise Unsupported(None, f"the condition {expr} uses {type(expr).__name__}")


def _piecewise(expr: sympy.Piecewise, env: ShapeEnv) -> Expr:
    """The value of the first piece whose condition holds."""
    result = ZERO
    for value, test in reversed(expr.args):
        holds = condition(test, env)
        result = holds * from_sympy(value, env) + (ONE - holds) * result
    return result


def symbol_of(symbol: sympy.Symbol, env: ShapeEnv) -> Sym:
    """Our symbol for a symbol of the shape environment, with what is known of its sign.

    Backed sizes (s..) are specialised for 0 and 1, so are >= 2 when positive; the range of other backed ints is
    guarded before the call. An unbacked int (u..) is trusted to be nonnegative only if it was a size to begin with:
    the range that assertions give it holds after they ran, and they are converted here too."""
    if symbol.name.startswith("s"):
        ranged = env.var_to_range.get(symbol)
        known = symbol.is_nonnegative or (ranged is not None and bool(ranged.lower >= 0))
        return size_symbol(symbol.name, 2 if symbol.is_positive else 0 if known else ANY_SIGN)
    return size_symbol(symbol.name, 0 if symbol in env.size_like else ANY_SIGN)


def new_symbol(fake: torch.SymInt | torch.SymBool) -> Sym | None:
    """The symbol that an int or bool result of a call defines, if it is a new one."""
    expr = fake.node.expr
    if isinstance(fake, torch.SymBool) and isinstance(expr, sympy.Eq) and expr.args[1] == 1:
        expr = expr.args[0]
    return symbol_of(expr, fake.node.shape_env) if isinstance(expr, sympy.Symbol) else None


def from_sympy(expr: sympy.Expr, env: ShapeEnv) -> Expr:
    """Convert an integer sympy expression. What is no integer arithmetic becomes the symbol of a computed size
    (computed.py). Raises Unsupported if the expression is no integer."""
    if isinstance(expr, sympy.Symbol):
        return of(symbol_of(expr, env))
    if expr.is_Integer:
        return const(int(expr))
    if isinstance(expr, sympy.Add):
        return sum((from_sympy(arg, env) for arg in expr.args), ZERO)
    if isinstance(expr, sympy.Mul):
        total = ONE
        for arg in expr.args:
            total = total * from_sympy(arg, env)
        return total
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and int(expr.exp) >= 0:
        total = ONE
        for _ in range(int(expr.exp)):
            total = total * from_sympy(expr.base, env)
        return total
    simpler = _guarded(expr, env) if isinstance(expr, sympy_functions.FloorDiv) else None
    if simpler is not None:
        return from_sympy(simpler, env)
    name = _FUNCTIONS.get(type(expr))
    if name:
        return function(name, *(from_sympy(arg, env) for arg in expr.args))
    if isinstance(expr, (sympy.Max, sympy_functions.Max)):
        return _fold(maximum, expr.args, env)
    if isinstance(expr, (sympy.Min, sympy_functions.Min)):
        return _fold(minimum, expr.args, env)
    if isinstance(expr, sympy.Piecewise):
        return _piecewise(expr, env)
    exact = _rounded(expr, env)
    if exact is not None:
        return exact
    if expr.is_integer:
        known = env.bound_sympy(expr).lower >= 0
        return of(size_symbol(symbol_name(expr), 0 if known else ANY_SIGN))
    raise Unsupported(None, f"the size expression {expr} uses {type(expr).__name__}")


def _guarded(expr: sympy.Expr, env: ShapeEnv) -> sympy.Expr | None:
    """What a guard says that a quotient by a size equals, if that has smaller quotients by sizes: `s // (s // 2)`,
    which a view as `(-1, 2)` makes, is 2. The index algebra knows no guards, and would see two different strides.
    A guard may name a size that this graph does not have, as one that another guard says is 3: no answer then."""
    if not expr.args[1].free_symbols:
        return None
    equal = [guard.expr.args for guard in env.guards if isinstance(guard.expr, sympy.Eq)]
    numbers = {left: right for left, right in equal if right.is_Integer}
    for pair in equal:
        if expr in pair:
            other = env.replace(pair[pair[0] == expr].xreplace(numbers))
            if other.free_symbols <= expr.free_symbols and _quotients(other) < _quotients(expr):
                return other
    return None


def _quotients(expr: sympy.Expr) -> int:
    """How much arithmetic there is in quotients by sizes."""
    found = expr.atoms(sympy_functions.FloorDiv)
    return sum(int(sympy.count_ops(quotient)) for quotient in found if quotient.args[1].free_symbols)


def _rounded(expr: sympy.Expr, env: ShapeEnv) -> Expr | None:
    """int(c * n) with few bits in c, as scale factors have, and int(n / d): the float is exact, or near enough that
    its floor is. None for any other expression."""
    if type(expr) not in (sympy_functions.TruncToInt, sympy_functions.FloorToInt):
        return None
    (value,) = expr.args
    if isinstance(value, sympy_functions.IntTrueDiv):
        size, divisor = value.args
        if size.is_nonnegative and divisor.is_Integer and 0 < divisor < _FEW_BITS:
            return function("floordiv", from_sympy(size, env), const(int(divisor)))
    if isinstance(value, sympy.Mul) and len(value.args) == 2 and value.args[0].is_Float:
        numerator, denominator = float(value.args[0]).as_integer_ratio()
        size = value.args[1].args[0] if isinstance(value.args[1], sympy_functions.ToFloat) else None
        if size is not None and size.is_nonnegative and 0 < numerator < _FEW_BITS and denominator < _FEW_BITS:
            return function("floordiv", from_sympy(size, env) * numerator, const(denominator))
    return None


def _fold(combine: Any, args: tuple[sympy.Expr, ...], env: ShapeEnv) -> Expr:
    result = from_sympy(args[0], env)
    for arg in args[1:]:
        result = combine(result, from_sympy(arg, env))
    return result


def size_expr(value: int | torch.SymInt | torch.SymBool | Expr) -> Expr:
    """An int, a SymInt, a SymBool (1 or 0) or an expression, as an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, torch.SymBool):
        return condition(value.node.expr, value.node.shape_env)
    if isinstance(value, torch.SymInt):
        node = value.node
        constant = node.maybe_as_int()
        if constant is None and node.hint == 1 and statically_known_true(value == 1):
            constant = 1  # a guard made it broadcast: (s + 1) // 3, say
        return const(constant) if constant is not None else from_sympy(node.expr, node.shape_env)
    return const(int(value))


def stride_exprs(values: Any) -> tuple[Expr, ...]:
    """Strides as expressions. Torch writes max(size, 1) for a size in a stride, so that an empty tensor has no stride
    of 0; the strides of an empty tensor are never used, so this is the size."""
    return tuple(_without_max(size_expr(value)) for value in values)


def _without_max(expr: Expr) -> Expr:
    for atom in expr.functions:
        if atom.name == "max" and ONE in atom.args:
            size = atom.args[0] if atom.args[1] == ONE else atom.args[1]
            rest = Expr(tuple(term for term in expr.terms if atom not in term[0]))
            scale = expr_coefficient(expr, atom)
            if scale is not None:
                return _without_max(rest + scale * size)
    return expr


def size_exprs(values: Any) -> tuple[Expr, ...]:
    """`size_expr` of each."""
    return tuple(size_expr(value) for value in values)


def may_be_empty(size: Expr) -> bool:
    """Whether a size may be 0 in some call. Symbols of inputs are not: that is a graph of its own."""
    return (lower_bound(size) or 0) < 1
