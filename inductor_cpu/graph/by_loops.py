"""Matrix products, and convolutions of single pixels, as sums over their depth, which become loops: small ones, narrow
ones, and few rows of a type without instructions.

mm(x, w), bmm(x, w)              ->  sum(x[..., None] * w[..., None, :, :], -2), of floats, rounded once
addmm(b, x, w), baddbmm(b, x, w) ->  the same, times alpha, and beta * b added before rounding
with a depth of one              ->  x * w
convolution(x, w, b)             ->  the same of its pixels, channels-last
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import StrideSpreader, add, args_of, aten, channels_last, fake
from inductor_cpu.graph.products import replace_convolution

#: Floats that are not widened.
_WIDE = (torch.float32, torch.float64)


def multiply_by_loops(graph: fx.Graph, product: fx.Node, weight_is_static: bool = False) -> None:
    """Put a sum over products of floats in the place of a matrix product, at the graph's insertion point.
    weight_is_static: its columns may be laid side by side once."""
    *added, x, weight = args_of(product)
    beta, alpha = (product.kwargs.get(factor, 1) for factor in ("beta", "alpha"))
    if weight_is_static and 1 not in fake(weight).shape and not fake(weight).is_contiguous():
        weight = add(graph, aten.clone.default, weight, memory_format=torch.contiguous_format)
    total = _sum_of_products(graph, _as_floats(graph, x), _as_floats(graph, weight))
    if alpha != 1:
        total = add(graph, aten.mul.Scalar, total, alpha)
    if added and beta != 0:
        term = _as_floats(graph, added[0])
        total = add(graph, aten.add.Tensor, total, term if beta == 1 else add(graph, aten.mul.Scalar, term, beta))
    value = fake(product)
    if value.dtype not in _WIDE:
        total = add(graph, aten._to_copy.default, total, dtype=value.dtype, value=value)
    else:
        total.meta["val"] = value  # with the product's strides
    product.replace_all_uses_with(total)


def convolve_by_loops(graph: fx.Graph, conv: fx.Node, spreader: StrideSpreader) -> None:
    """Put a sum over products of floats in the place of a convolution with a static weight, whose windows are all the
    pixels, one by one, and of a scale_shift that only it has."""

    def build(x: fx.Node, scale: fx.Node | None, bias: Any) -> fx.Node:
        columns, channels = (int(size) for size in fake(args_of(conv)[1]).shape[:2])
        matrix = add(graph, aten.reshape.default, args_of(conv)[1], [columns, channels])
        by_depth = add(
            graph, aten.clone.default, add(graph, aten.permute.default, matrix, [1, 0]),
            memory_format=torch.contiguous_format,
        )  # fmt: skip
        pixels = add(graph, aten.permute.default, x, [0, 2, 3, 1])
        total = _sum_of_products(graph, _as_floats(graph, pixels), _as_floats(graph, by_depth))
        if scale is not None:
            total = add(graph, aten.mul.Tensor, total, scale)
        if bias is not None:
            total = add(graph, aten.add.Tensor, total, _as_floats(graph, bias))
        if fake(conv).dtype not in _WIDE:
            total = add(graph, aten._to_copy.default, total, dtype=fake(conv).dtype)
        return add(graph, aten.permute.default, total, [0, 3, 1, 2], value=channels_last(fake(conv)))

    replace_convolution(graph, conv, build, spreader)


def _as_floats(graph: fx.Graph, value: Any) -> fx.Node:
    return value if fake(value).dtype in _WIDE else add(graph, aten._to_copy.default, value, dtype=torch.float32)


def _sum_of_products(graph: fx.Graph, x: fx.Node, weight: fx.Node) -> fx.Node:
    if fake(weight).shape[-2] == 1:
        return add(graph, aten.mul.Tensor, x, weight)
    left, right = add(graph, aten.unsqueeze.default, x, -1), add(graph, aten.unsqueeze.default, weight, -3)
    return add(graph, aten.sum.dim_IntList, add(graph, aten.mul.Tensor, left, right), [-2])
