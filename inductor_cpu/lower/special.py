"""Special functions and small numerical helpers, as formulas."""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.pointwise import KIND, aten, compute_dtype, elementwise, formula
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.terms import Term, where
from inductor_cpu.lower.values import TensorValue

Number = int | float

_FLOAT = KIND.INT_TO_FLOAT
_INF = float("inf")


@formula(aten.frac.default, wide=False)
def frac(x: Term) -> Term:
    return x - x.op("trunc")


@formula(aten.deg2rad.default, kind=_FLOAT)
def deg2rad(x: Term) -> Term:
    return x * (math.pi / 180)


@formula(aten.rad2deg.default, kind=_FLOAT)
def rad2deg(x: Term) -> Term:
    return x * (180 / math.pi)


@formula(aten.isfinite.default, kind=KIND.ALWAYS_BOOL, wide=False, floating=False)
def isfinite(x: Term) -> Term:
    if not x.dtype.is_floating_point:
        return x.equals(x)
    return x.op("abs") < _INF


@formula(aten.isposinf.default, kind=KIND.ALWAYS_BOOL, wide=False)
def isposinf(x: Term) -> Term:
    return x.equals(_INF)


@formula(aten.isneginf.default, kind=KIND.ALWAYS_BOOL, wide=False)
def isneginf(x: Term) -> Term:
    return x.equals(-_INF)


def _log_sum(a: Term, b: Term, power: str, scale: float) -> Term:
    """log(base^a + base^b), safe for large arguments; equal infinities give themselves."""
    rest = (-(a - b).op("abs")).op(power).op("log1p")
    return where(a.equals(b) & a.op("isinf"), a, a.maximum(b) + rest * scale)


@formula(aten.logaddexp.default, tensors=2)
def logaddexp(a: Term, b: Term) -> Term:
    return _log_sum(a, b, "exp", 1)


@formula(aten.logaddexp2.default, tensors=2)
def logaddexp2(a: Term, b: Term) -> Term:
    return _log_sum(a, b, "exp2", 1 / math.log(2))


@formula(aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self, tensors=2, kind=_FLOAT, wide=False)
def xlogy(x: Term, y: Term) -> Term:
    return where(y.op("isnan"), math.nan, where(x.equals(0), 0, x * y.op("log")))


@formula(
    aten.special_xlog1py.default,
    aten.special_xlog1py.other_scalar,
    aten.special_xlog1py.self_scalar,
    tensors=2,
    kind=_FLOAT,
    wide=False,
)
def xlog1py(x: Term, y: Term) -> Term:
    return where(y.op("isnan"), math.nan, where(x.equals(0), 0, x * y.op("log1p")))


@formula(aten.special_entr.default, kind=_FLOAT)
def entr(x: Term) -> Term:
    return where(x.op("isnan"), x, where(x > 0, -x * x.op("log"), where(x.equals(0), 0, x.const(-_INF))))


@formula(aten.logit.default, kind=_FLOAT, wide=False)
def logit(x: Term, eps: Number | None = None) -> Term:
    if eps is not None:
        low = x.const(eps)
        x = where(x < low, low, where(x > 1 - low, 1 - low, x))
    return (x / (1 - x)).op("log")


@formula(aten.logit_backward.default, tensors=2)
def logit_backward(grad: Term, x: Term, eps: Number | None = None) -> Term:
    low, outside = (0.0, math.nan) if eps is None or eps < 0 else (eps, 0.0)
    inside = (x >= low) & (x <= 1 - low)
    return where(inside, grad / (x * (1 - x)), outside)


@formula(aten.sinc.default, kind=_FLOAT)
def sinc(x: Term) -> Term:
    turned = x * math.pi
    return where(x.equals(0), 1, turned.op("sin") / turned)


@formula(aten.special_ndtr.default, kind=_FLOAT)
def ndtr(x: Term) -> Term:
    scaled = x * math.sqrt(0.5)
    inside = 0.5 + 0.5 * scaled.op("erf")
    tail = 0.5 * scaled.op("abs").op("erfc")
    return where(scaled.op("abs") < 1, inside, where(scaled > 0, 1 - tail, tail))


def _of_float_and_double(op: str) -> None:
    """The rule of a function that eager mode has no kernel of for low precision: there its error is raised."""

    @rule(getattr(aten, f"special_{op}").default)
    def lower(ctx: Lowering, node: fx.Node, x: Any) -> TensorValue:
        dtype = compute_dtype(node, node.args, _FLOAT)
        if dtype in LOW_PRECISION:
            raise Unsupported(node, f"{op} has no {dtype} kernel")
        return elementwise(ctx, node, op, (x,), dtype)


for _op in ("erfcx", "log_ndtr", "ndtri"):
    _of_float_and_double(_op)


@rule(aten.polygamma.default)
def polygamma(ctx: Lowering, node: fx.Node, order: int, x: Any) -> TensorValue:
    """digamma and its derivative, which is the gradient of digamma."""
    if order not in (0, 1):
        raise Unsupported(node, f"polygamma of order {order} has no formula")
    op = ("digamma", "trigamma")[order]
    return elementwise(ctx, node, op, (x,), compute_dtype(node, node.args[1:], _FLOAT))
