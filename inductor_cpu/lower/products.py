"""Matrix products by kernels of our own: a `Gemm` and the nest that is its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import fx

from inductor_cpu.ir.index import ONE, Expr, as_expr, contiguous_strides
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import Gemm, Patches
from inductor_cpu.ir.operators import (
    PACKED_BMM,
    PACKED_CONVOLUTION,
    PACKED_INT_CONVOLUTION,
    PACKED_INT_MM,
    PACKED_LINEAR,
    PACKED_OPERAND,
    SCALE_SHIFT,
)
from inductor_cpu.ir.windows import Pieces, pieces_of
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point


@rule(PACKED_LINEAR)
def packed_linear(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    packed: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    columns: int,
    kernel: str,
) -> TensorValue:
    """x @ packed, scaled and with the bias added before the one rounding."""
    return _product(ctx, node, ctx.with_rows(node, x), packed, scale, bias, as_expr(columns), kernel)


@rule(PACKED_BMM)
def packed_bmm(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    packed: TensorValue,
    added: TensorValue | None,
    beta: float,
    alpha: float,
    columns: int,
    kernel: str,
) -> TensorValue:
    """Each of the batch of x times its packed operand: the rows of all of them are the rows of one product."""
    sizes = size_exprs(meta_of(node).shape)

    def finish(body: Body, at: tuple[Expr, ...], total: int) -> int:
        if alpha != 1:
            total = body.op("mul", total, body.const(alpha, torch.float32))
        if added is None:
            return total
        place = (at[0] // sizes[1], at[0] % sizes[1], at[1])[3 - added.ndim :]
        term = body.cast(body.load(added, place), torch.float32)
        if beta != 1:
            term = body.op("mul", term, body.const(beta, torch.float32))
        return body.op("add", total, term)

    rows = _finished_product(ctx, node, ctx.with_rows(node, x), packed, finish, as_expr(columns), kernel)
    n, row, column = point(loop_dims(sizes))
    return rows.view(sizes, (n * sizes[1] + row, column))


@rule(PACKED_OPERAND)
def packed_operand(ctx: Lowering, node: fx.Node, weight: TensorValue, kernel: str) -> TensorValue:
    """Matrices (columns, depth) with zeros beyond the last panel's columns and the last step's depth."""
    *batch, columns, depth = weight.sizes
    _, _, tiles, groups, tile, pair = size_exprs(meta_of(node).shape)[len(batch) :]

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        *before, panel, step, nth, group, column, value = at
        place = ((panel * tiles + nth) * tile + column, (step * groups + group) * pair + value)
        inside = [body.op("lt", body.index(p), body.index(s)) for p, s in zip(place, (columns, depth), strict=True)]
        return body.load(weight, (*before, *place), body.op("logical_and", *inside))

    return ctx.pointwise(node, compute)


@rule(PACKED_INT_MM)
def packed_int_mm(
    ctx: Lowering, node: fx.Node, x: TensorValue, packed: TensorValue, columns: int, kernel: str
) -> TensorValue:
    """x @ packed in int32."""
    return _product(ctx, node, ctx.with_rows(node, x), packed, None, None, as_expr(columns), kernel)


@rule(PACKED_CONVOLUTION)
def packed_convolution(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    packed: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> TensorValue:
    """The windows of x as rows, times packed, scaled and with the bias added before the one rounding."""
    windows = [(int(v[0]), int(v[1])) for v in (kernel, stride, padding, dilation)]
    operand = _windows(ctx, node, x, windows, micro_kernel, columns)
    return convolution_result(ctx, node, operand, packed, scale, bias, as_expr(columns), micro_kernel)


@rule(PACKED_INT_CONVOLUTION)
def packed_int_convolution(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    packed: TensorValue,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    outside: int,
    micro_kernel: str,
) -> TensorValue:
    """The windows of x as rows, times packed, in int32."""
    windows = [(int(v[0]), int(v[1])) for v in (kernel, stride, padding, dilation)]
    operand = _windows(ctx, node, x, windows, micro_kernel, columns, outside)
    return convolution_result(ctx, node, operand, packed, None, None, as_expr(columns), micro_kernel)


def _windows(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    windows: Sequence[tuple[int, int]],
    micro_kernel: str,
    columns: int,
    outside: int = 0,
) -> View | Patches:
    """The first operand of a convolution of x; a 1 x 1 convolution is a linear layer over pixels. windows: kernel,
    stride, padding and dilation; columns: of the weight."""
    kernel, stride, padding, dilation = windows
    pieces = pieces_of(MICRO_KERNELS[micro_kernel], kernel, stride, dilation, _channels(node), columns)
    patches = patches_of(ctx, node, x, windows, pieces, outside)
    image = patches.image
    if _is_pointwise(image, kernel, stride, padding):
        batch, height, width, channels = image.sizes
        return View(image.buffer, (batch * height * width, channels), (image.strides[2], ONE), image.offset)
    return patches


def patches_of(
    ctx: Lowering, node: fx.Node, x: TensorValue, windows: Sequence[tuple[int, int]], pieces: Pieces, outside: int = 0
) -> Patches:
    """The windows of x in a convolution. windows: kernel, stride, padding and dilation."""
    kernel, stride, padding, dilation = windows
    batch, channels, height, width = x.sizes
    n, y, w, c = point(loop_dims((batch, height, width, channels)))
    image = ctx.with_rows(node, x.view((batch, height, width, channels), (n, c, y, w)))
    down, across = size_exprs(meta_of(node).shape)[2:]
    return Patches(image, kernel, stride, padding, dilation, (down, across), pieces, outside)


def convolution_result(
    ctx: Lowering,
    node: fx.Node,
    operand: View | Patches,
    packed: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    columns: Expr,
    micro_kernel: str,
) -> TensorValue:
    """The result of a convolution, scaled and with a bias."""
    rows = _product(ctx, node, operand, packed, scale, bias, columns, micro_kernel)
    batch, channels, down, across = size_exprs(meta_of(node).shape)
    n, c, y, w = point(loop_dims((batch, channels, down, across)))
    return rows.view((batch, channels, down, across), ((n * down + y) * across + w, c))


@rule(SCALE_SHIFT)
def scale_shift(ctx: Lowering, node: fx.Node, x: TensorValue, scale: TensorValue, shift: TensorValue) -> TensorValue:
    """x * scale + shift for each channel, in float32."""

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        wide = body.cast(body.load(x, at), torch.float32)
        return body.op("add", body.op("mul", wide, body.load(scale, at[1:2])), body.load(shift, at[1:2]))

    return ctx.pointwise(node, compute)


def _channels(node: fx.Node) -> int:
    """Of the weight of a convolution, and so of its input."""
    x = node.args[0]
    assert isinstance(x, fx.Node)
    return int(meta_of(x).shape[1])


def _is_pointwise(image: View, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether each pixel is a row of its own, and pixels are equally far apart."""
    (_, height, width, _), (by_image, by_line, by_pixel, _) = image.sizes, image.strides
    even = (height == 1 or by_line == by_pixel * width) and (
        image.sizes[0] == 1 or by_image == by_pixel * width * height
    )
    return even and (*kernel, *stride) == (1, 1, 1, 1) and not any(padding)


def _product(
    ctx: Lowering,
    node: fx.Node,
    operand: View | Patches,
    packed: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    columns: Expr,
    micro_kernel: str,
) -> TensorValue:
    """(rows, columns) of the node's dtype, scaled and with a bias."""

    def finish(body: Body, at: tuple[Expr, ...], total: int) -> int:
        return scaled_and_shifted(body, total, scale, bias, at[1:])

    return _finished_product(ctx, node, operand, packed, finish, columns, micro_kernel)


def _finished_product(
    ctx: Lowering,
    node: fx.Node,
    operand: View | Patches,
    packed: TensorValue,
    finish: Callable[[Body, tuple[Expr, ...], int], int],
    columns: Expr,
    micro_kernel: str,
) -> TensorValue:
    """(rows, columns) of the node's dtype: finish(body, position, total)."""
    sizes = (prod(operand.sizes[:-1], start=ONE), columns)
    accumulator = ctx.whole(ctx.new_buffer(MICRO_KERNELS[micro_kernel].total, sizes, kind="accumulator"))
    ctx.nodes.append(Gemm(ctx.fresh("gemm"), micro_kernel, operand, packed.buffer, accumulator.buffer, (node.name,)))

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        return finish(body, at, body.load(accumulator, at))

    return ctx.pointwise(node, compute, sizes, meta_of(node).dtype, contiguous_strides(sizes))


def scaled_and_shifted(
    body: Body, total: int, scale: TensorValue | None, bias: TensorValue | None, channel: Sequence[Expr]
) -> int:
    """total * scale + bias of a channel, in its dtype; what is None is left out."""
    for name, vector in (("mul", scale), ("add", bias)):
        if vector is not None:
            total = body.op(name, total, body.cast(body.load(vector, channel), torch.float32))
    return total
