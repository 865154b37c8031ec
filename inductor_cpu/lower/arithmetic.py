"""Elementwise arithmetic with parameters: scaled sums, divisions, powers, fused multiply ops, clamps, selections."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr
from inductor_cpu.lower.body import Body, check_held, represent
from inductor_cpu.lower.checks import held
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.pointwise import (
    KIND,
    Compute,
    aten,
    check_constants,
    compute_dtype,
    elementwise,
    formula,
    operand,
    overloads,
    prims,
)
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.terms import Term, where
from inductor_cpu.lower.values import TensorValue

Number = bool | int | float


# -- sums ------------------------------------------------------------------------------------------------------------
def _scaled(op: str, alpha: Number) -> Compute:
    """a + alpha * b, a - alpha * b, of floats rounded once as in ATen's kernels."""

    def compute(body: Body, a: int, b: int) -> int:
        left, right = Term(body, a), Term(body, b)
        if left.dtype.is_floating_point:
            return right.op("fma", alpha if op == "add" else -alpha, left).value
        return left.op(op, right * alpha).value

    return compute


def _sum(ctx: Lowering, node: fx.Node, op: str, left: int, a: Any, b: Any, alpha: Any) -> TensorValue:
    check_constants(node, (alpha,))
    args, nodes = ((a, b), node.args[:2]) if left == 0 else ((b, a), (node.args[1], node.args[0]))
    dtype = compute_dtype(node, nodes, KIND.DEFAULT)
    if op == "sub" and any(_is_bool(x) for x in (a, b)):
        raise Unsupported(node, "a difference of bools, which is an error")
    if (isinstance(alpha, float) and not dtype.is_floating_point) or (isinstance(alpha, bool) and dtype != torch.bool):
        raise Unsupported(node, f"a factor that is {alpha} for {dtype}, which is an error")
    if alpha == 1 or (dtype == torch.bool and alpha):
        return elementwise(ctx, node, op, args, dtype)
    if dtype == torch.bool:
        raise Unsupported(node, "a bool sum with alpha 0")
    return elementwise(ctx, node, _scaled(op, represent(alpha, dtype)), args, dtype, wide=True)


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, TensorValue) and x.dtype == torch.bool)


@rule(*overloads("add"))
def add(ctx: Lowering, node: fx.Node, a: Any, b: Any, alpha: Any = 1) -> TensorValue:
    return _sum(ctx, node, "add", 0, a, b, alpha)


@rule(*overloads("sub"))
def sub(ctx: Lowering, node: fx.Node, a: Any, b: Any, alpha: Any = 1) -> TensorValue:
    return _sum(ctx, node, "sub", 0, a, b, alpha)


@rule(*overloads("rsub"))
def rsub(ctx: Lowering, node: fx.Node, a: Any, b: Any, alpha: Any = 1) -> TensorValue:
    return _sum(ctx, node, "sub", 1, a, b, alpha)


@rule(*overloads("mul"))
def mul(ctx: Lowering, node: fx.Node, a: Any, b: Any) -> TensorValue:
    return elementwise(ctx, node, "mul", (a, b), compute_dtype(node, node.args, KIND.DEFAULT))


@rule(aten.square.default)
def square(ctx: Lowering, node: fx.Node, a: Any) -> TensorValue:
    return elementwise(ctx, node, "mul", (a, a), compute_dtype(node, node.args, KIND.BOOL_TO_LONG))


# -- divisions -------------------------------------------------------------------------------------------------------
def _floor_quotient(a: Term, b: Term) -> Term:
    """The floor of the exact quotient, not of the rounded one, with eager's treatment of zeros and infinities."""
    rest = a.op("fmod", b)
    quotient = (a - rest) / b
    quotient = where(rest.differs(0) & ((b < 0) ^ (rest < 0)), quotient - 1, quotient)
    down = quotient.op("floor")
    down = where(quotient - down > 0.5, down + 1, down)
    down = where(quotient.equals(0), (a / b * 0.0).op("copysign", a / b), down)
    return where(b.equals(0), a / b, down)


def _divide(ctx: Lowering, node: fx.Node, a: Any, b: Any, rounding_mode: str | None) -> TensorValue:
    if rounding_mode is None:
        return elementwise(ctx, node, "div", (a, b), compute_dtype(node, node.args[:2], KIND.INT_TO_FLOAT))
    dtype = compute_dtype(node, node.args[:2], KIND.DEFAULT)
    if not dtype.is_floating_point:
        return elementwise(ctx, node, "floordiv" if rounding_mode == "floor" else "truncdiv", (a, b), dtype)

    def compute(body: Body, x: int, y: int) -> int:
        a_, b_ = Term(body, x), Term(body, y)
        return (_floor_quotient(a_, b_) if rounding_mode == "floor" else (a_ / b_).op("trunc")).value

    # Eager rounds every step to a low-precision dtype, but none of them beside a divisor of one element.
    return elementwise(ctx, node, compute, (a, b), dtype, unrounded=(1,))


@rule(aten.div.Tensor, aten.div.Scalar, aten.div.Tensor_mode, aten.div.Scalar_mode)
def div(ctx: Lowering, node: fx.Node, a: Any, b: Any, rounding_mode: str | None = None) -> TensorValue:
    return _divide(ctx, node, a, b, rounding_mode)


@rule(prims.div.default)
def prims_div(ctx: Lowering, node: fx.Node, a: Any, b: Any) -> TensorValue:
    return _divide(ctx, node, a, b, None if meta_of(node).dtype.is_floating_point else "trunc")


@rule(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(ctx: Lowering, node: fx.Node, a: Any, b: Any) -> TensorValue:
    return _divide(ctx, node, a, b, "floor")


# -- powers ----------------------------------------------------------------------------------------------------------
#: Exponents that eager computes with other ops; for f16 only those of _HALF_POWERS.
_POWERS: dict[float, Any] = {
    0.5: lambda x: x.op("sqrt"),
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -0.5: lambda x: x.op("rsqrt"),
    -1.0: lambda x: x.op("reciprocal"),
    -2.0: lambda x: (x * x).op("reciprocal"),
}
_HALF_POWERS = (2.0, -1.0)


def _power(dtype: torch.dtype) -> str:
    return "pow" if dtype.is_floating_point else "ipow"


@rule(aten.pow.Tensor_Tensor, aten.pow.Scalar, prims.pow.default)
def power(ctx: Lowering, node: fx.Node, base: Any, exponent: Any) -> TensorValue:
    if compute_dtype(node, node.args, KIND.DEFAULT) == torch.bool:
        raise Unsupported(node, "a power of bools by bools, which is an error")
    dtype = compute_dtype(node, node.args, KIND.BOOL_TO_LONG)
    return elementwise(ctx, node, _power(dtype), (base, exponent), dtype)


@rule(aten.pow.Tensor_Scalar)
def power_of_number(ctx: Lowering, node: fx.Node, base: Any, exponent: Any) -> TensorValue:
    dtype = compute_dtype(node, node.args, KIND.BOOL_TO_LONG)
    if not isinstance(exponent, (int, float)):
        return elementwise(ctx, node, _power(dtype), (base, exponent), dtype)
    if meta_of(node).dtype == torch.bool:
        raise Unsupported(node, "a power of bools")
    if represent(exponent, dtype) != exponent and not dtype.is_floating_point:
        raise Unsupported(node, f"an exponent of {dtype} that is {exponent}")
    if exponent == 0 or exponent == 1:
        return elementwise(ctx, node, lambda body, x: body.const(1, dtype) if exponent == 0 else x, (base,), dtype)
    special = _POWERS.get(float(exponent))
    if dtype == torch.float16 and exponent not in _HALF_POWERS:
        special = None
    if special is not None and (dtype.is_floating_point or exponent > 0):
        return elementwise(ctx, node, lambda body, x: special(Term(body, x)).value, (base,), dtype)
    if not dtype.is_floating_point and exponent < 0:
        raise Unsupported(node, "a negative power of integers")
    return elementwise(ctx, node, _power(dtype), (base, exponent), dtype)


@rule(aten.float_power.Tensor_Tensor, aten.float_power.Tensor_Scalar, aten.float_power.Scalar)
def float_power(ctx: Lowering, node: fx.Node, base: Any, exponent: Any) -> TensorValue:
    return elementwise(ctx, node, "pow", (base, exponent), torch.float64)


# -- fused multiplies ------------------------------------------------------------------------------------------------
@rule(aten.addcmul.default)
def addcmul(ctx: Lowering, node: fx.Node, x: Any, a: Any, b: Any, value: Any = 1) -> TensorValue:
    check_constants(node, (value,))
    dtype = compute_dtype(node, node.args[:3], KIND.DEFAULT)
    if dtype == torch.bool:
        raise Unsupported(node, "addcmul of bools")

    def compute(body: Body, *values: int) -> int:
        x_, a_, b_ = (Term(body, v) for v in values)
        factor = a_ if value == 1 else value * a_
        return (factor.op("fma", b_, x_) if x_.dtype.is_floating_point else x_ + factor * b_).value

    return elementwise(ctx, node, compute, (x, a, b), dtype, wide=True)


@formula(aten.addcdiv.default, tensors=3)
def addcdiv(x: Term, a: Term, b: Term, value: Number = 1) -> Term:
    return x + (a if value == 1 else value * a) / b


@rule(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(ctx: Lowering, node: fx.Node, start: Any, end: Any, weight: Any) -> TensorValue:
    """start + weight * (end - start), from the nearer end so that weights 0 and 1 are exact, and rounded once."""
    dtype = compute_dtype(node, node.args[:2], KIND.DEFAULT)
    if not dtype.is_floating_point:
        raise Unsupported(node, f"{node.target} of {dtype}, which is an error")

    def compute(body: Body, *values: int) -> int:
        a, b, w = (Term(body, v) for v in values)
        near = w.op("abs") < 0.5
        return where(near, w, w - 1).op("fma", b - a, where(near, a, b)).value

    by_number = not isinstance(weight, TensorValue)
    return elementwise(ctx, node, compute, (start, end, weight), dtype, wide=True, unrounded=(2,) if by_number else ())


# -- clamps and selections -------------------------------------------------------------------------------------------
def _bounded(ctx: Lowering, node: fx.Node, x: Any, low: Any, high: Any) -> TensorValue:
    """min(max(x, low), high), NaN stays NaN; a bound may be None."""
    used = [n for n in (node.args[0], low, high) if n is not None]
    fakes = [_fake_of(n) for n in used]
    dtype = compute_dtype(node, fakes, KIND.DEFAULT)
    given = [value for value in (low, high) if value is not None]
    for value in given:
        check_held(value, dtype)

    def compute(body: Body, value: int, *bounds: int) -> int:
        term = Term(body, value)
        for bound, limit in zip(
            bounds, [o for o, v in (("maximum", low), ("minimum", high)) if v is not None], strict=True
        ):
            other = Term(body, bound)
            # Of equal values (zeros of both signs) the second is the result: eager keeps x beside a number.
            term = term.op(limit, other) if isinstance(given[0], TensorValue) else other.op(limit, term)
        return term.value

    return elementwise(ctx, node, compute, (x, *given), dtype)


def _fake_of(value: Any) -> Any:
    """What type promotion needs to know of a lowered argument."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, TensorValue):
        return torch.empty((1,) * value.ndim, dtype=value.dtype, device="meta")
    return 0 if isinstance(value, Expr) else value


@rule(aten.clamp.default, aten.clamp.Tensor)
def clamp(ctx: Lowering, node: fx.Node, x: Any, min: Any = None, max: Any = None) -> TensorValue:
    return _bounded(ctx, node, x, min, max)


@rule(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(ctx: Lowering, node: fx.Node, x: Any, min: Any) -> TensorValue:
    return _bounded(ctx, node, x, min, None)


@rule(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(ctx: Lowering, node: fx.Node, x: Any, max: Any) -> TensorValue:
    return _bounded(ctx, node, x, None, max)


def select_values(ctx: Lowering, node: fx.Node, condition: Any, yes: Any, no: Any, dtype: torch.dtype) -> TensorValue:
    """where(condition, yes, no) in a dtype; all broadcast to the node's shape."""
    if not isinstance(condition, TensorValue) or condition.dtype not in (torch.bool, torch.uint8):
        raise Unsupported(node, "a condition that is no bool tensor")

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        chosen = operand(ctx, body, at, condition, torch.bool)
        return body.op("where", chosen, operand(ctx, body, at, yes, dtype), operand(ctx, body, at, no, dtype))

    return ctx.pointwise(node, compute)


@rule(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar, prims.where.default)
def where_rule(ctx: Lowering, node: fx.Node, condition: Any, yes: Any, no: Any) -> TensorValue:
    return select_values(ctx, node, condition, yes, no, meta_of(node).dtype)


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(ctx: Lowering, node: fx.Node, x: TensorValue, mask: Any, value: Any) -> TensorValue:
    check_held(value, x.dtype)
    return select_values(ctx, node, mask, held(ctx, node, value, x.dtype), x, x.dtype)


# -- others ----------------------------------------------------------------------------------------------------------
@rule(aten.round.decimals)
def round_decimals(ctx: Lowering, node: fx.Node, x: Any, decimals: int = 0) -> TensorValue:
    dtype = compute_dtype(node, node.args[:1], KIND.DEFAULT)
    if decimals == 0 or not dtype.is_floating_point:
        return elementwise(ctx, node, "round", (x,), dtype)

    def compute(body: Body, value: int) -> int:
        term, scale = Term(body, value), 10.0 ** abs(decimals) if abs(decimals) < 309 else math.inf
        return ((term * scale).op("round") / scale if decimals > 0 else (term / scale).op("round") * scale).value

    return elementwise(ctx, node, compute, (x,), dtype, wide=True)


@formula(aten.heaviside.default, tensors=2, wide=False, floating=False)
def heaviside(x: Term, at_zero: Term) -> Term:
    return where(x.equals(0), at_zero, (x > 0).cast(x.dtype))


@formula(aten.nan_to_num.default, wide=False, floating=False)
def nan_to_num(x: Term, nan: Number | None = None, posinf: Number | None = None, neginf: Number | None = None) -> Term:
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(x.dtype)
    x = where(x.op("isnan"), 0.0 if nan is None else nan, x)
    x = where(x.equals(float("inf")), limits.max if posinf is None else posinf, x)
    return where(x.equals(float("-inf")), limits.min if neginf is None else neginf, x)
