"""Weights packed for tiles of windows, and the gradient of a convolution's weights, by templates of our own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from inductor_cpu.ir.nodes import TilePacking, WeightGradient
from inductor_cpu.ir.winograd import PACKED_TILES, WEIGHT_GRADIENT
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import permuted


@rule(PACKED_TILES)
def packed_tiles(ctx: Lowering, node: fx.Node, weight: TensorValue, turned: bool, micro_kernel: str) -> TensorValue:
    """The weight is read where it lies."""
    view = ctx.strided(weight) or ctx.strided(ctx.copy(node, weight))
    assert view is not None
    made = ctx.new_buffer(torch.float32, size_exprs(meta_of(node).shape))
    ctx.nodes.append(TilePacking(ctx.fresh("tiles"), micro_kernel, view, turned, made.name, (node.name,)))
    return ctx.whole(made)


@rule(WEIGHT_GRADIENT)
def weight_gradient(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    gradients: TensorValue,
    padding: Sequence[int],
    micro_kernel: str,
) -> TensorValue:
    """The operands are read where they lie if their channels are next to each other."""
    image, results = (ctx.with_rows(node, permuted(value, [0, 2, 3, 1])) for value in (x, gradients))
    columns, channels, down, across = size_exprs(meta_of(node).shape)
    made = ctx.new_buffer(torch.float32, (columns, down, across, channels))
    name, pad = ctx.fresh("weight_gradient"), (int(padding[0]), int(padding[1]))
    ctx.nodes.append(WeightGradient(name, micro_kernel, image, results, pad, made.name, (node.name,)))
    return permuted(ctx.whole(made), [0, 3, 1, 2])
