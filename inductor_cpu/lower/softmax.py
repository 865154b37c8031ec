"""Softmax and its relatives, as separate nests in the natural order. Low precision computes in f32 and rounds once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.reductions import Axes, Element, accumulator, axes_of, fold, loader, node_result
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.values import TensorValue

aten = torch.ops.aten


def _shifted(x: TensorValue, shift: TensorValue, acc: torch.dtype) -> Element:
    """x - shift, with shift broadcast along the folded dimension."""
    return lambda body, at: body.op("sub", body.cast(body.load(x, at), acc), body.load(shift, at))


def _exp(x: TensorValue, result: torch.dtype) -> str:
    """The exp whose bits are enough for a result of this type."""
    return "low_exp" if x.dtype in LOW_PRECISION and result in LOW_PRECISION else "exp"


def _exp_of_shifted(x: TensorValue, result: torch.dtype, acc: torch.dtype) -> str:
    """The same for x - largest in the type `acc`, which is never positive."""
    exp = _exp(x, result)
    return "exp_of_nonpositive" if exp == "exp" and acc == torch.float32 else exp


def _exponentials(
    ctx: Lowering, node: fx.Node, x: TensorValue, axes: Axes, acc: torch.dtype, kind: str
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """(largest element by the fold `kind`, exp(x - largest), sum of those) along the axes. The sum is NaN if any
    element is, so that the largest number ("fmax") will do where nothing but the sum is used."""
    largest = fold(ctx, node, axes, kind, loader(x, acc), acc)
    shifted = _shifted(x, largest, acc)
    exp = _exp_of_shifted(x, meta_of(node).dtype, acc)
    powers = ctx.pointwise(node, lambda body, at: body.op(exp, shifted(body, at)), dtype=acc)
    return largest, powers, fold(ctx, node, axes, "sum", loader(powers), acc)


@rule(aten._softmax.default)
def softmax(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    """exp(x - max) / sum. A row of -inf gives NaN."""
    _, powers, total = _exponentials(ctx, node, x, axes_of(x, dim), accumulator(x.dtype), "fmax")
    result = meta_of(node).dtype
    return ctx.pointwise(node, lambda body, at: _share(body, powers, total, at, result))


def _share(body: Body, powers: TensorValue, total: TensorValue, at: tuple[Expr, ...], result: torch.dtype) -> int:
    """powers / total, where the total is one number for many powers, of which one is 1."""
    whole = body.load(total, at)
    if result in LOW_PRECISION:
        return body.op("mul", body.load(powers, at), body.op("reciprocal", whole))
    return body.op("quotient", body.load(powers, at), whole, body.op("reciprocal", whole))


@rule(aten._safe_softmax.default)
def safe_softmax(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, dtype: Any = None) -> TensorValue:
    """softmax in which a row of -inf gives zeros."""
    acc = accumulator(meta_of(node).dtype)
    largest, powers, total = _exponentials(ctx, node, x, axes_of(x, dim), acc, "max")

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        empty = body.op("eq", body.load(largest, at), body.const(-math.inf, acc))
        value = _share(body, powers, total, at, meta_of(node).dtype)
        return body.op("where", empty, body.const(0, acc), value)

    return ctx.pointwise(node, compute)


@rule(aten._log_softmax.default)
def log_softmax(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    """x - max - log(sum exp(x - max)). Where the sum is near 1, its logarithm is as exact as what was added to 1."""
    axes, acc = axes_of(x, dim), accumulator(x.dtype)
    exp = _exp_of_shifted(x, meta_of(node).dtype, acc)
    largest = fold(ctx, node, axes, "fmax", loader(x, acc), acc)
    shifted = _shifted(x, largest, acc)

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        return body.op(exp, shifted(body, at))

    total = fold(ctx, node, axes, "sum", element, acc, finish=lambda body, value, at: body.op("log", value))
    return ctx.pointwise(node, lambda body, at: body.op("sub", shifted(body, at), body.load(total, at)))


@rule(aten.logsumexp.default)
def logsumexp(ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any, keepdim: bool = False) -> TensorValue:
    """log(sum exp(x)), shifted by the largest element where that is finite: the sum is a number above 0 if that is
    infinity, which is added, and 0 if it is -infinity. Integers compute in the result's dtype."""
    axes, acc = axes_of(x, dim), accumulator(meta_of(node).dtype)
    exp = _exp_of_shifted(x, meta_of(node).dtype, acc)
    largest = fold(ctx, node, axes, "fmax", loader(x, acc), acc)

    def finite(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.load(largest, at)
        return body.op("where", body.op("isinf", value), body.const(0, acc), value)

    shift = ctx.pointwise(node, finite, largest.sizes, acc)
    shifted = _shifted(x, shift, acc)

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        return body.op(exp, shifted(body, at))

    def finish(body: Body, value: int, at: tuple[Expr, ...]) -> int:
        return body.op("add", body.op("log", value), body.load(largest, _full(axes, at, keepdim)))

    return node_result(ctx, node, axes, "sum", element, acc, keepdim, finish)


def _full(axes: Axes, at: tuple[Expr, ...], keepdim: bool) -> tuple[Expr, ...]:
    """The position in a tensor that has the folded dimensions as ones."""
    return axes.position(at, (ZERO,) * len(axes.loops), keepdim)


# -- backward --------------------------------------------------------------------------------------------------------
@rule(aten._softmax_backward_data.default)
def softmax_backward(
    ctx: Lowering, node: fx.Node, grad: TensorValue, output: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    """(grad - sum(grad * output)) * output."""
    acc = accumulator(grad.dtype)

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        return body.op("mul", body.cast(body.load(grad, at), acc), body.cast(body.load(output, at), acc))

    total = fold(ctx, node, axes_of(grad, dim), "sum", element, acc)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        difference = body.op("sub", body.cast(body.load(grad, at), acc), body.load(total, at))
        return body.op("mul", difference, body.cast(body.load(output, at), acc))

    return ctx.pointwise(node, compute)


@rule(aten._log_softmax_backward_data.default)
def log_softmax_backward(
    ctx: Lowering, node: fx.Node, grad: TensorValue, output: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    """grad - exp(output) * sum(grad)."""
    acc, exp = accumulator(grad.dtype), _exp(output, meta_of(node).dtype)
    total = fold(ctx, node, axes_of(grad, dim), "sum", loader(grad, acc), acc)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        share = body.op("mul", body.op(exp, body.cast(body.load(output, at), acc)), body.load(total, at))
        return body.op("sub", body.cast(body.load(grad, at), acc), share)

    return ctx.pointwise(node, compute)
