"""Gradients of pooling: each input element asks the few windows that hold it, so that no two points write one element.

The windows that hold an input element are themselves a window, over the outputs: `_holders` and `_adaptive_holders`.
Within planes the maxima of windows that overlap are scattered instead: of k x k windows one alone chose an element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import (
    ONE,
    ZERO,
    Expr,
    as_expr,
    contiguous_strides,
    is_nonnegative,
    maximum,
    minimum,
    product,
)
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.copies import copied
from inductor_cpu.lower.pooling import Window, adaptive_window, counted, per_dim, regular_window, window_mask
from inductor_cpu.lower.reductions import accumulator, number
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.scatter import write
from inductor_cpu.lower.terms import Term
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import reshaped

aten = torch.ops.aten

#: What a window gives to an input element: share(body, output position, input position, mask of existing outputs).
Share = Callable[[Body, tuple[Expr, ...], tuple[Expr, ...], int | None], int]


def _holders(size: Expr, outputs: Expr, kernel: int, stride: int, padding: int, dilation: int) -> Window:
    """The outputs whose windows reach over an input position, those that skip it by their dilation among them.

    Window o covers [o * stride - padding, o * stride - padding + reach), so position i lies in those from
    ceil((i + padding - reach + 1) / stride) to floor((i + padding) / stride)."""
    reach = (kernel - 1) * dilation + 1
    most = -(-reach // stride)
    below = max(0, -((padding - reach + stride) // stride))  # outputs before the first that position 0 asks

    def start(i: Expr) -> Expr:
        return (i + (padding - reach + stride + below * stride)) // stride - below

    def stop(i: Expr) -> Expr:
        return minimum((i + padding) // stride + 1, outputs)

    always = reach % stride == 0 and is_nonnegative(outputs - 1 - (size - 1 + padding) // stride)
    return Window(outputs, size, most, start, clipped=below > 0, stop=None if always else stop)


def _gather(
    ctx: Lowering, node: fx.Node, grad: TensorValue, sizes: tuple[Expr, ...], holders: Sequence[Window], share: Share
) -> TensorValue:
    """The sum of the shares of all windows that hold an element, in the order of the outputs, as eager adds them."""
    fake = meta_of(node)
    lead = len(sizes) - len(holders)
    loops = [d for d, window in enumerate(holders) if as_expr(window.extent) != ONE]
    acc = accumulator(grad.dtype)

    def compute(body: Body, at: tuple[Expr, ...], inner: tuple[Expr, ...]) -> int:
        ks = [ZERO] * len(holders)
        for d, k in zip(loops, inner, strict=True):
            ks[d] = k
        mask = window_mask(body, holders, at[lead:], ks)
        outs = tuple(window.at(i, k) for window, i, k in zip(holders, at[lead:], ks, strict=True))
        value = body.cast(share(body, (*at[:lead], *outs), at, mask), acc)
        return body.reduce("sum", value) if loops else value

    return ctx.reduction(
        node, compute, [as_expr(holders[d].extent) for d in loops], sizes, fake.dtype, dense_strides(fake)
    )


# -- maximum ---------------------------------------------------------------------------------------------------------
def _chosen(ctx: Lowering, node: fx.Node, grad: TensorValue, x: TensorValue, indices: TensorValue, holders: Any) -> Any:
    """The gradient of windows that chose the element; `indices` are those of the operator's own forward."""
    dims = len(holders)
    if not _has_channels_last(meta_of(node), dims) and any(as_expr(window.extent) != ONE for window in holders):
        return _scattered(ctx, node, grad, x, indices, dims)

    def share(body: Body, out: tuple[Expr, ...], at: tuple[Expr, ...], mask: int | None) -> int:
        flat = ZERO
        for size, i in zip(x.sizes[-dims:], at[-dims:], strict=True):
            flat = flat * size + i
        chosen = body.op("eq", body.load(indices, out, mask), body.index(flat))
        return body.op("where", chosen, body.load(grad, out, mask), body.const(0, grad.dtype))

    return _gather(ctx, node, grad, x.sizes, holders, share)


def _scattered(
    ctx: Lowering, node: fx.Node, grad: TensorValue, x: TensorValue, indices: TensorValue, dims: int
) -> TensorValue:
    """Planes of zeros to which each window adds its gradient where its maximum is. Low precision is summed in f32 and
    rounded once. A position that no plane has, as ATen's -1, adds nothing."""
    lead, plane = x.sizes[:-dims], product(x.sizes[-dims:])
    wide = accumulator(grad.dtype)

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, int]:
        chosen = Term(body, body.cast(body.load(indices, at), torch.int64))
        inside = (chosen >= 0) & (chosen < Term(body, body.index(plane)))
        place = [*at[: len(lead)], body.as_index(chosen.value, plane)]
        return place, body.cast(body.load(grad, at), wide), inside.value

    zeros = ctx.pointwise(
        node, lambda body, at: body.const(0, wide), (*lead, plane), wide, contiguous_strides((*lead, plane))
    )
    write(ctx, node, zeros, grad.sizes, compute, "add")
    total = reshaped(zeros, x.sizes)
    return total if wide == grad.dtype else copied(ctx, node, total)


def _has_channels_last(fake: torch.Tensor, dims: int) -> bool:
    """Whether lanes can be channels, which have their windows in common."""
    return fake.dim() > dims and fake.stride(-dims - 1) == 1


def _max_pool_backward(dims: int) -> Any:
    def lower(
        ctx: Lowering,
        node: fx.Node,
        grad: TensorValue,
        x: TensorValue,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: TensorValue,
    ) -> TensorValue:
        return _chosen(
            ctx, node, grad, x, indices, _regular_holders(grad, x, dims, kernel_size, stride, padding, dilation)
        )

    return lower


def _adaptive_max_pool_backward(dims: int) -> Any:
    def lower(ctx: Lowering, node: fx.Node, grad: TensorValue, x: TensorValue, indices: TensorValue) -> TensorValue:
        return _chosen(ctx, node, grad, x, indices, _adaptive_holders(node, grad, x, dims))

    return lower


def _regular_holders(
    grad: TensorValue, x: TensorValue, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> list[Window]:
    kernel = per_dim(kernel, dims)
    numbers = zip(kernel, per_dim(stride, dims, kernel), per_dim(padding, dims), per_dim(dilation, dims), strict=True)
    sizes = zip(x.sizes[-dims:], grad.sizes[-dims:], strict=True)
    return [_holders(size, outputs, *four) for (size, outputs), four in zip(sizes, numbers, strict=True)]


def _adaptive_holders(node: fx.Node, grad: TensorValue, x: TensorValue, dims: int) -> list[Window]:
    """Window o of S inputs and O outputs covers [floor(o S / O), ceil((o + 1) S / O)), which holds i if and only if o
    is in [floor(i O / S), ceil((i + 1) O / S)): the adaptive windows of O inputs and S outputs."""
    sizes = zip(grad.sizes[-dims:], x.sizes[-dims:], strict=True)
    return [adaptive_window(node, outputs, size) for outputs, size in sizes]


rule(aten.max_pool2d_with_indices_backward.default)(_max_pool_backward(2))
rule(aten.max_pool3d_with_indices_backward.default)(_max_pool_backward(3))
rule(aten.adaptive_max_pool2d_backward.default)(_adaptive_max_pool_backward(2))
rule(aten.adaptive_max_pool3d_backward.default)(_adaptive_max_pool_backward(3))


# -- average ---------------------------------------------------------------------------------------------------------
def _avg_pool_backward(dims: int) -> Any:
    def lower(
        ctx: Lowering,
        node: fx.Node,
        grad: TensorValue,
        x: TensorValue,
        kernel_size: Any,
        steps: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> TensorValue:
        kernel = per_dim(kernel_size, dims)
        pads, strides = per_dim(padding, dims), per_dim(steps, dims, kernel)
        windows = [
            regular_window(size, outputs, extent, stride, pad, 1)
            for size, outputs, extent, stride, pad in zip(
                x.sizes[-dims:], grad.sizes[-dims:], kernel, strides, pads, strict=True
            )
        ]

        def divisor(outs: tuple[Expr, ...]) -> Expr:
            if divisor_override is not None:
                return as_expr(divisor_override)
            terms = zip(windows, outs, pads, strict=True)
            return _count(counted(window, out, pad, count_include_pad) for window, out, pad in terms)

        holders = _regular_holders(grad, x, dims, kernel, strides, pads, 1)
        return _divided(ctx, node, grad, x, holders, divisor)

    return lower


def _adaptive_avg_pool_backward(dims: int) -> Any:
    def lower(ctx: Lowering, node: fx.Node, grad: TensorValue, x: TensorValue) -> TensorValue:
        windows = [
            adaptive_window(node, size, outputs)
            for size, outputs in zip(x.sizes[-dims:], grad.sizes[-dims:], strict=True)
        ]

        def divisor(outs: tuple[Expr, ...]) -> Expr:
            return _count(window.length(out) for window, out in zip(windows, outs, strict=True))

        return _divided(ctx, node, grad, x, _adaptive_holders(node, grad, x, dims), divisor)

    return lower


def _count(lengths: Iterable[Expr]) -> Expr:
    """How many elements a window has, at least one: 0 / 0 of a window that does not exist would spoil the sum."""
    return maximum(product(lengths), 1)


def _divided(
    ctx: Lowering,
    node: fx.Node,
    grad: TensorValue,
    x: TensorValue,
    holders: Sequence[Window],
    divisor: Callable[[tuple[Expr, ...]], Expr],
) -> TensorValue:
    """Each window gives its elements its gradient over their number, or over what the program says instead."""
    if not grad.dtype.is_floating_point:
        raise Unsupported(node, f"average pooling of {grad.dtype}")
    acc, dims = accumulator(grad.dtype), len(holders)

    def share(body: Body, out: tuple[Expr, ...], at: tuple[Expr, ...], mask: int | None) -> int:
        loaded = body.cast(body.load(grad, out, mask), acc)
        return body.op("div", loaded, number(body, divisor(out[-dims:]), acc))

    return _gather(ctx, node, grad, x.sizes, holders, share)


rule(aten.avg_pool2d_backward.default)(_avg_pool_backward(2))
rule(aten.avg_pool3d_backward.default)(_avg_pool_backward(3))
rule(aten._adaptive_avg_pool2d_backward.default)(_adaptive_avg_pool_backward(2))
rule(aten._adaptive_avg_pool3d_backward.default)(_adaptive_avg_pool_backward(3))
