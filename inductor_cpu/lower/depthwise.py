"""Convolutions of each channel by itself: a sum over the taps of the window, with the channels as lanes, in loops or by
a micro kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import fx

from inductor_cpu.ir.depthwise import DEPTHWISE_CONVOLUTION, PACKED_DEPTHWISE_CONVOLUTION
from inductor_cpu.ir.index import Expr, as_expr
from inductor_cpu.ir.windows import of_each_channel
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.pooling import regular_window, window_mask
from inductor_cpu.lower.products import convolution_result, patches_of, scaled_and_shifted
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue


@rule(DEPTHWISE_CONVOLUTION)
def depthwise_convolution(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    weight: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> TensorValue:
    """Sums in float32, scaled and shifted for each channel, rounded once. weight: (ky, kx, channels)."""
    fake = meta_of(node)
    sizes, kernel = size_exprs(fake.shape), meta_of(cast(fx.Node, node.args[1])).shape[:2]
    windows = [
        regular_window(x.sizes[2 + d], sizes[2 + d], kernel[d], stride[d], padding[d], dilation[d]) for d in (0, 1)
    ]

    def compute(body: Body, at: tuple[Expr, ...], taps: tuple[Expr, ...]) -> int:
        n, c, *out = at
        mask = window_mask(body, windows, out, taps)
        position = [window.at(o, k) for window, o, k in zip(windows, out, taps, strict=True)]
        value = body.cast(body.load(x, (n, c, *position), mask), torch.float32)
        total = body.reduce("sum", body.op("mul", value, body.load(weight, (*taps, c))))
        return scaled_and_shifted(body, total, scale, bias, (c,))  # the store rounds

    extents = [as_expr(window.extent) for window in windows]
    return ctx.reduction(node, compute, extents, sizes, fake.dtype, dense_strides(fake))


@rule(PACKED_DEPTHWISE_CONVOLUTION)
def packed_depthwise_convolution(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    packed: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> TensorValue:
    """The same by a micro kernel."""
    windows = [(int(v[0]), int(v[1])) for v in (kernel, stride, padding, dilation)]
    operand = patches_of(ctx, node, x, windows, of_each_channel(kernel))
    return convolution_result(ctx, node, operand, packed, scale, bias, x.sizes[1], micro_kernel)
