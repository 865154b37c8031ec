"""Matrix products as sums over their depth, which become loops: small ones, narrow ones, and few rows of a type without
instructions.

mm(x, w), bmm(x, w)              ->  sum(x[..., None] * w[..., None, :, :], -2), of floats, rounded once
addmm(b, x, w), baddbmm(b, x, w) ->  the same, times alpha, and beta * b added before rounding
with a depth of one              ->  x * w
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, args_of, aten, fake


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
    if value.dtype != torch.float32:
        total = add(graph, aten._to_copy.default, total, dtype=value.dtype, value=value)
    else:
        total.meta["val"] = value  # with the product's strides
    product.replace_all_uses_with(total)


def _as_floats(graph: fx.Graph, value: Any) -> fx.Node:
    return (
        value if fake(value).dtype == torch.float32 else add(graph, aten._to_copy.default, value, dtype=torch.float32)
    )


def _sum_of_products(graph: fx.Graph, x: fx.Node, weight: fx.Node) -> fx.Node:
    if fake(weight).shape[-2] == 1:
        return add(graph, aten.mul.Tensor, x, weight)
    left, right = add(graph, aten.unsqueeze.default, x, -1), add(graph, aten.unsqueeze.default, weight, -3)
    return add(graph, aten.sum.dim_IntList, add(graph, aten.mul.Tensor, left, right), [-2])
