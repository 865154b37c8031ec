"""Variance, standard deviation and vector norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.lower.block_moments import blocked_squares
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.pointwise import check_constants
from inductor_cpu.lower.reductions import (
    Axes,
    Finish,
    accumulator,
    axes_of,
    divide_by,
    fold,
    loader,
    node_result,
    number,
    squared_difference,
)
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.values import TensorValue, loop_dims, point

aten = torch.ops.aten


# -- variance --------------------------------------------------------------------------------------------------------
def centered_squares(
    ctx: Lowering, node: fx.Node, x: TensorValue, axes: Axes, acc: torch.dtype
) -> tuple[TensorValue, TensorValue]:
    """(mean, sum of squared differences from it) in `acc`, with the folded dimensions as ones."""
    blocked = blocked_squares(ctx, node, x, axes, acc)
    if blocked is not None:
        return blocked
    average = fold(ctx, node, axes, "sum", loader(x, acc), acc, finish=divide_by(axes.count))
    return average, fold(ctx, node, axes, "sum", squared_difference(x, average, acc), acc)


def as_result(
    ctx: Lowering, node: fx.Node, tensor: TensorValue, axes: Axes, keepdim: bool, fake: torch.Tensor
) -> TensorValue:
    """An internal tensor that has the folded dimensions as ones, in the shape and dtype of a result."""
    sizes = axes.result(keepdim)
    position = axes.position(point(loop_dims(sizes)), (ZERO,) * len(axes.loops), keepdim)
    view = tensor.view(sizes, position)
    if fake.dtype == view.dtype:
        return view
    return ctx.pointwise(node, lambda body, at: body.load(view, at), sizes, fake.dtype, dense_strides(fake))


def _variance(root: bool, with_mean: bool) -> Any:
    def lower(
        ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False
    ) -> Any:
        if not x.dtype.is_floating_point:
            raise Unsupported(node, f"a variance of {x.dtype}, which is an error")
        if not isinstance(correction, Expr):
            check_constants(node, (correction,))
        fakes = meta_of(node) if with_mean else (meta_of(node),)
        # The square of a large number is out of f32's range, while the root of their mean is not.
        wide = root and x.dtype in (torch.float32, torch.bfloat16)
        axes, acc = axes_of(x, dim), torch.float64 if wide else accumulator(x.dtype)
        average = fold(ctx, node, axes, "sum", loader(x, acc), acc, finish=divide_by(axes.count))
        spread = node_result(
            ctx,
            node,
            axes,
            "sum",
            squared_difference(x, average, acc),
            acc,
            keepdim,
            _divide_corrected(axes.count, 1 if correction is None else correction, root),
            fakes[0],
        )
        return (spread, as_result(ctx, node, average, axes, keepdim, fakes[-1])) if with_mean else spread

    return lower


def _divide_corrected(count: Expr, correction: float | Expr, root: bool) -> Finish:
    """Divide by max(count - correction, 0): too few elements give inf or NaN, as in eager."""

    def finish(body: Body, value: int, at: Sequence[Expr]) -> int:
        dtype = body.dtype(value)
        known = count.as_int
        if known is not None and not isinstance(correction, Expr):
            divisor = body.const(max(known - correction, 0), dtype)
        else:
            less = number(body, correction, dtype) if isinstance(correction, Expr) else body.const(correction, dtype)
            divisor = body.op("sub", number(body, count, dtype), less)
            divisor = body.op("maximum", divisor, body.const(0, dtype))
        value = body.op("div", value, divisor)
        return body.op("sqrt", value) if root else value

    return finish


rule(aten.var.correction)(_variance(root=False, with_mean=False))
rule(aten.std.correction)(_variance(root=True, with_mean=False))
rule(aten.var_mean.correction)(_variance(root=False, with_mean=True))
rule(aten.std_mean.correction)(_variance(root=True, with_mean=True))


# -- vector norms ----------------------------------------------------------------------------------------------------
@rule(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> TensorValue:
    """(sum |x|^ord)^(1/ord); inf and -inf: largest and smallest |x|; 0: how many are not zero."""
    check_constants(node, (ord,))
    order, out = float(ord), meta_of(node).dtype
    acc = accumulator(out)
    kind = "max" if order == math.inf else "min" if order == -math.inf else "sum"

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.cast(body.cast(body.load(x, at), out), acc)
        return _power(body, value, order)

    def finish(body: Body, value: int, at: Sequence[Expr]) -> int:
        if order == 2:
            return body.op("sqrt", value)
        if order in (0.0, 1.0) or math.isinf(order):
            return value
        return body.op("pow", value, body.const(1.0 / order, acc))

    return node_result(ctx, node, axes_of(x, dim), kind, element, acc, keepdim, finish)


def _power(body: Body, value: int, order: float) -> int:
    dtype = body.dtype(value)
    if order == 0:
        return body.cast(body.op("ne", value, body.const(0, dtype)), dtype)
    if order == 2:
        return body.op("mul", value, value)
    value = body.op("abs", value)
    return value if order == 1 or math.isinf(order) else body.op("pow", value, body.const(order, dtype))


@rule(aten.norm.Scalar, aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype, aten.norm.ScalarOpt_dtype)
def norm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> TensorValue:
    """The same as linalg_vector_norm; p=None is 2."""
    return linalg_vector_norm(ctx, node, x, 2 if p is None else p, dim, keepdim, dtype=dtype)
