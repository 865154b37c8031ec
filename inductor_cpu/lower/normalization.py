"""Layer, group, batch and RMS normalization, computed in the accumulator's dtype; results round once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.moments import as_result, centered_squares
from inductor_cpu.lower.reductions import Axes, accumulator, divide_by, fold, number
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_expr, size_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point

aten = torch.ops.aten

#: (body, input position) -> the value of a statistic or parameter there, in the accumulator's dtype.
At = Callable[[Body, tuple[Expr, ...]], int]


def _inverse_deviation(
    ctx: Lowering, node: fx.Node, squares: TensorValue, count: Expr | None, eps: float
) -> TensorValue:
    """1 / sqrt(squares / count + eps), in the dtype and shape of `squares`; count None: squares is a variance."""
    acc = squares.dtype

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.load(squares, at)
        if count is not None:
            value = body.op("div", value, number(body, count, acc))
        return body.op("reciprocal", body.op("sqrt", body.op("add", value, body.const(eps, acc))))

    return ctx.pointwise(node, compute, squares.sizes, acc)


def _apply(ctx: Lowering, node: fx.Node, x: TensorValue, fake: torch.Tensor, compute: At) -> TensorValue:
    """The normalized tensor: a pointwise nest in the shape of x with the dtype and strides of `fake`."""
    return ctx.pointwise(node, compute, x.sizes, fake.dtype, dense_strides(fake))


def _scale_and_shift(body: Body, value: int, weight: int | None, bias: int | None) -> int:
    if weight is not None:
        value = body.op("mul", value, weight)
    return value if bias is None else body.op("add", value, bias)


def _param(body: Body, tensor: TensorValue | None, at: Sequence[Expr], acc: torch.dtype) -> int | None:
    return None if tensor is None else body.cast(body.load(tensor, at), acc)


# -- over the last dimensions ----------------------------------------------------------------------------------------
def _last_axes(x: TensorValue, count: int) -> Axes:
    return Axes(x.sizes, tuple(range(x.ndim - count, x.ndim)))


@rule(aten.native_layer_norm.default)
def native_layer_norm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    normalized_shape: Sequence[Any],
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> Any:
    """(x - mean) * rstd * weight + bias, mean, rstd over the last dimensions."""
    out, fake_mean, fake_rstd = meta_of(node)
    axes, acc = _last_axes(x, len(normalized_shape)), accumulator(x.dtype)
    mean, squares = centered_squares(ctx, node, x, axes, acc)
    rstd = _inverse_deviation(ctx, node, squares, axes.count, eps)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        inner = at[x.ndim - len(normalized_shape) :]
        value = body.op("sub", body.cast(body.load(x, at), acc), body.load(mean, at))
        value = body.op("mul", value, body.load(rstd, at))
        return _scale_and_shift(body, value, _param(body, weight, inner, acc), _param(body, bias, inner, acc))

    return (
        _apply(ctx, node, x, out, compute),
        as_result(ctx, node, mean, axes, True, fake_mean),
        as_result(ctx, node, rstd, axes, True, fake_rstd),
    )


@rule(aten._fused_rms_norm.default)
def fused_rms_norm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    normalized_shape: Sequence[Any],
    weight: TensorValue | None,
    eps: float | None,
) -> Any:
    """x * rsqrt(mean(x^2) + eps) * weight, and that rsqrt; eps None is the epsilon of x's dtype."""
    out, fake_rstd = meta_of(node)
    axes, acc = _last_axes(x, len(normalized_shape)), accumulator(x.dtype)
    epsilon = torch.finfo(x.dtype).eps if eps is None else eps

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.cast(body.load(x, at), acc)
        return body.op("mul", value, value)

    def finish(body: Body, value: int, at: tuple[Expr, ...]) -> int:
        mean = divide_by(axes.count)(body, value, at)
        return body.op("rsqrt", body.op("add", mean, body.const(epsilon, acc)))

    rstd = fold(ctx, node, axes, "sum", element, acc, finish=finish)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.op("mul", body.cast(body.load(x, at), acc), body.load(rstd, at))
        inner = at[x.ndim - len(normalized_shape) :]
        return _scale_and_shift(body, value, _param(body, weight, inner, acc), None)

    return _apply(ctx, node, x, out, compute), as_result(ctx, node, rstd, axes, True, fake_rstd)


# -- over groups of channels -----------------------------------------------------------------------------------------
@rule(aten.native_group_norm.default)
def native_group_norm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    n: Any,
    c: Any,
    hw: Any,
    group: int,
    eps: float,
) -> Any:
    """x * scale + shift per channel, mean, rstd [N, group]; scale = rstd * weight, shift = bias - scale * mean."""
    out, fake_mean, fake_rstd = meta_of(node)
    acc, batch, width = accumulator(x.dtype), x.sizes[0], size_expr(c) // group
    grouped_sizes = (batch, size_expr(group), width, *x.sizes[2:])
    n_at, g_at, d_at, *rest = point(loop_dims(grouped_sizes))
    grouped = x.view(grouped_sizes, (n_at, g_at * width + d_at, *rest))
    axes = Axes(grouped_sizes, tuple(range(2, len(grouped_sizes))))
    mean, squares = centered_squares(ctx, node, grouped, axes, acc)
    rstd = _inverse_deviation(ctx, node, squares, axes.count, eps)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        channel = at[1:2]
        stat = (at[0], at[1] // width, *[ZERO] * (len(grouped_sizes) - 2))
        scale = _scale_and_shift(body, body.load(rstd, stat), _param(body, weight, channel, acc), None)
        shift = body.op("neg", body.op("mul", scale, body.load(mean, stat)))
        shift = _scale_and_shift(body, shift, None, _param(body, bias, channel, acc))
        return body.op("add", body.op("mul", body.cast(body.load(x, at), acc), scale), shift)

    return (
        _apply(ctx, node, x, out, compute),
        as_result(ctx, node, mean, axes, False, fake_mean),
        as_result(ctx, node, rstd, axes, False, fake_rstd),
    )


# -- over the batch --------------------------------------------------------------------------------------------------
def _batch_axes(x: TensorValue) -> Axes:
    return Axes(x.sizes, tuple(d for d in range(x.ndim) if d != 1))


def _channelwise(
    ctx: Lowering, node: fx.Node, x: TensorValue, fake: torch.Tensor, mean: At, invstd: At, weight: Any, bias: Any
) -> TensorValue:
    """x * alpha + beta with alpha = invstd * weight, beta = bias - mean * alpha; mean, invstd take an x position. Nests
    of their own: the scheduler knows whether two rows in memory cost less than to compute them for each pixel."""
    acc, spatial = accumulator(x.dtype), (ZERO,) * (x.ndim - 2)

    def scale(body: Body, at: tuple[Expr, ...]) -> int:
        factor = _param(body, weight, at, acc)
        return _scale_and_shift(body, invstd(body, (ZERO, *at, *spatial)), factor, None)

    alpha = ctx.pointwise(node, scale, x.sizes[1:2], acc)

    def shift(body: Body, at: tuple[Expr, ...]) -> int:
        drift = body.op("mul", mean(body, (ZERO, *at, *spatial)), body.load(alpha, at))
        own = _param(body, bias, at, acc)
        return body.op("neg", drift) if own is None else body.op("sub", own, drift)

    beta = ctx.pointwise(node, shift, x.sizes[1:2], acc)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        scaled = body.op("mul", body.cast(body.load(x, at), acc), body.load(alpha, at[1:2]))
        return body.op("add", scaled, body.load(beta, at[1:2]))

    return _apply(ctx, node, x, fake, compute)


def _inference(
    ctx: Lowering, node: fx.Node, x: TensorValue, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> TensorValue:
    """Batch normalization with given statistics."""
    acc = accumulator(x.dtype)

    def load_mean(body: Body, at: tuple[Expr, ...]) -> int:
        return body.cast(body.load(mean, at[1:2]), acc)

    def of_channel(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.op("add", body.cast(body.load(var, at), acc), body.const(eps, acc))
        return body.op("reciprocal", body.op("sqrt", value))

    # A nest of its own: the scheduler knows whether a row in memory costs less than a root and a division an element.
    invstd = ctx.pointwise(node, of_channel, var.sizes, acc)
    result = meta_of(node)[0]
    return _channelwise(ctx, node, x, result, load_mean, lambda body, at: body.load(invstd, at[1:2]), weight, bias)


def _training(
    ctx: Lowering, node: fx.Node, x: TensorValue, weight: Any, bias: Any, eps: float
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue, TensorValue]:
    """Batch normalization with the batch's own statistics: (out, save_mean, save_invstd, mean, sum of squares);
    the last two in the accumulator's dtype and in the shape [1, C, 1...]."""
    out, fake_mean, fake_invstd = meta_of(node)[:3]
    axes = _batch_axes(x)
    mean, squares = centered_squares(ctx, node, x, axes, accumulator(x.dtype))
    invstd = _inverse_deviation(ctx, node, squares, axes.count, eps)
    result = _channelwise(
        ctx,
        node,
        x,
        out,
        lambda body, at: body.load(mean, at),
        lambda body, at: body.load(invstd, at),
        weight,
        bias,
    )
    save_mean = as_result(ctx, node, mean, axes, False, fake_mean)
    return result, save_mean, as_result(ctx, node, invstd, axes, False, fake_invstd), mean, squares


def _updated(
    ctx: Lowering, node: fx.Node, running: TensorValue, momentum: float, fake: torch.Tensor, batch: At
) -> TensorValue:
    """momentum * batch + (1 - momentum) * running, per channel."""

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        new = batch(body, (ZERO, *at))
        acc = body.dtype(new)
        old = body.op("mul", body.const(1 - momentum, acc), body.cast(body.load(running, at), acc))
        return body.op("add", body.op("mul", body.const(momentum, acc), new), old)

    return ctx.pointwise(node, compute, running.sizes, fake.dtype, dense_strides(fake))


def _running(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    old: tuple[TensorValue, TensorValue],
    momentum: float,
    stats: tuple[TensorValue, TensorValue],
    fakes: Sequence[torch.Tensor],
) -> tuple[TensorValue, TensorValue]:
    """The new running mean and (unbiased) running variance."""
    mean, squares = stats
    axes, spatial = _batch_axes(x), (ZERO,) * (x.ndim - 2)

    def batch_mean(body: Body, at: tuple[Expr, ...]) -> int:
        return body.load(mean, (*at, *spatial))

    def batch_var(body: Body, at: tuple[Expr, ...]) -> int:
        return body.op("div", body.load(squares, (*at, *spatial)), number(body, axes.count - 1, squares.dtype))

    return (
        _updated(ctx, node, old[0], momentum, fakes[0], batch_mean),
        _updated(ctx, node, old[1], momentum, fakes[1], batch_var),
    )


def _empty_results(ctx: Lowering, node: fx.Node, start: int) -> tuple[TensorValue, ...]:
    """The results from number `start` on, which must have no elements."""
    found = []
    for fake in meta_of(node)[start:]:
        sizes = size_exprs(fake.shape)
        if not any(size == 0 for size in sizes):
            raise Unsupported(node, "a batch normalization with given statistics that also returns some")
        found.append(ctx.pointwise(node, lambda body, at: body.const(0, torch.float32), sizes, fake.dtype))
    return tuple(found)


@rule(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    momentum: float,
    eps: float,
) -> Any:
    """out and two empty tensors."""
    return _inference(ctx, node, x, weight, bias, mean, var, eps), *_empty_results(ctx, node, 1)


rule(aten._batch_norm_no_update.default)(batch_norm_no_training)


@rule(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    weight: Any,
    bias: Any,
    running_mean: TensorValue,
    running_var: TensorValue,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """(out, save_mean, save_invstd, new running mean, new running var)."""
    if not training:
        raise Unsupported(node, "a batch normalization that returns the running statistics it was given")
    *results, mean, squares = _training(ctx, node, x, weight, bias, eps)
    old = (running_mean, running_var)
    return *results, *_running(ctx, node, x, old, momentum, (mean, squares), meta_of(node)[-2:])


@rule(aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    weight: Any,
    bias: Any,
    running_mean: TensorValue,
    running_var: TensorValue,
    momentum: float,
    eps: float,
) -> Any:
    """(out, save_mean, save_invstd, reserve, new running mean, new running var); the reserve is empty."""
    *results, mean, squares = _training(ctx, node, x, weight, bias, eps)
    reserve = meta_of(node)[3]
    empty = ctx.pointwise(node, lambda body, at: body.const(0, reserve.dtype), size_exprs(reserve.shape), reserve.dtype)
    old = (running_mean, running_var)
    return *results, empty, *_running(ctx, node, x, old, momentum, (mean, squares), meta_of(node)[-2:])


@rule(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    ctx: Lowering, node: fx.Node, x: TensorValue, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """(out, save_mean, save_invstd), always from the batch's own statistics."""
    return _training(ctx, node, x, weight, bias, eps)[:3]


@rule(aten.native_batch_norm.default)
def native_batch_norm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """(out, save_mean, save_invstd) where no running statistics are updated."""
    if training and (running_mean is not None or running_var is not None):
        raise Unsupported(node, "native_batch_norm updates its running statistics in place")
    if training:
        return _training(ctx, node, x, weight, bias, eps)[:3]
    return _inference(ctx, node, x, weight, bias, running_mean, running_var, eps), *_empty_results(ctx, node, 1)
