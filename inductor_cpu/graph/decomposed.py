"""Graphs of torch's quantization (PT2E): the operators `quantized_decomposed`.

A linear between dequantize operators is a product of integers. With x = (X - p) s and w[n] = (W[n] - q[n]) t[n]:

x @ w[n] + b[n]  ->  (X @ W[n] - p sum(W[n]) - q[n] (sum(X) - depth p)) * (s t[n]) + b[n]

X @ W is packed_int_mm, sums of W are computed once, those of X only where q is given. What follows (an activation,
quantize) becomes the epilogue of the product. All other operators of quantization become ATen operators with the same
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import (
    RESHAPES,
    TRANSPOSES,
    add,
    args_of,
    aten,
    fake,
    is_call,
    order_of_dims,
    product_operands,
    view_again,
)
from inductor_cpu.graph.linear import PRODUCTS
from inductor_cpu.graph.products import MicroKernelChoice
from inductor_cpu.graph.quantized import choose, int_product

_F32, _S32 = torch.float32, torch.int32


def name_of(node: Any) -> str:
    """ "quantize_per_tensor.default", say; empty for other operators."""
    target = node.target if isinstance(node, fx.Node) and node.op == "call_function" else None
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "quantized_decomposed":
        return ""
    return f"{target.overloadpacket.__name__}.{target._overloadname}"


#: Operators that dequantize, by what has a scale.
PER_TENSOR = ("dequantize_per_tensor.default", "dequantize_per_tensor.tensor")
PER_CHANNEL = ("dequantize_per_channel.default",)


@dataclass(frozen=True)
class Quantized:
    """An integer matrix with its scale and zero point: numbers, tensors of one element or, for weights, vectors."""

    value: fx.Node
    scale: Any
    zero: Any


#: Sums of so many products of bytes are numbers of 32 bits, whatever the bytes and zero points are.
MOST_PRODUCTS = (2**31 - 1) // (255 * 128)


def multiply_as_integers(gm: fx.GraphModule, weights: frozenset[fx.Node], micro_kernel: MicroKernelChoice) -> int:
    """Replace linears of dequantized values with products of integers; returns how many."""
    count = 0
    for node in [node for node in gm.graph.nodes if is_call(node, PRODUCTS) and node not in weights]:
        bias, x, weight = product_operands(node)
        sizes = (*fake(node).shape, *fake(weight).shape)
        if node.kwargs or weight not in weights or any(isinstance(s, int) and s == 0 for s in sizes):
            continue
        if fake(weight).shape[0] > MOST_PRODUCTS:
            continue
        with gm.graph.inserting_before(node):
            columns = fake(weight).shape[1]
            found, by_rows = _activation(gm.graph, x), _weight(gm.graph, weight)
            name = choose(micro_kernel, found.value, columns) if found is not None and by_rows is not None else None
            if found is None or by_rows is None or name is None:
                continue
            node.replace_all_uses_with(_product(gm.graph, node, found, by_rows, bias, name))
        count += 1
    gm.graph.eliminate_dead_code()
    return count


def _activation(graph: fx.Graph, x: Any) -> Quantized | None:
    """What a matrix was dequantized from, through reshapes."""
    views: list[fx.Node] = []
    while is_call(x, RESHAPES):
        views.insert(0, x)
        x = args_of(x)[0]
    if name_of(x) not in PER_TENSOR or fake(x).dtype != _F32:
        return None
    value, scale, zero = args_of(x)[:3]
    if fake(value).dtype not in (torch.int8, torch.uint8):
        return None
    for view in views:
        value = view_again(graph, view, value)
    return Quantized(value, scale, zero)


def _weight(graph: fx.Graph, weight: fx.Node) -> Quantized | None:
    """What a (depth, columns) weight was dequantized from, as (columns, depth), with a scale for each column or one."""
    turned = is_call(weight, TRANSPOSES) and order_of_dims(weight) == [1, 0]
    made = args_of(weight)[0] if turned else weight
    if not (name := name_of(made)) or fake(made).dtype != _F32 or fake(made).dim() != 2:
        return None
    value, scale, zero = args_of(made)[:3]
    if fake(value).dtype != torch.int8:
        return None
    if name in PER_CHANNEL and args_of(made)[3] != (0 if turned else 1):
        return None  # a scale for each depth
    if name not in (*PER_TENSOR, *PER_CHANNEL):
        return None
    return Quantized(value if turned else add(graph, aten.permute.default, value, [1, 0]), scale, zero)


def _product(graph: fx.Graph, node: fx.Node, x: Quantized, weight: Quantized, bias: Any, name: str) -> fx.Node:
    """The linear of the head of this file."""
    total = int_product(graph, x.value, weight.value, name)
    if not is_zero(x.zero):
        sums = add(graph, aten.sum.dim_IntList, weight.value, [1], dtype=_S32)
        total = add(graph, aten.sub.Tensor, total, add(graph, aten.mul.Tensor, sums, integers(graph, x.zero)))
    if not is_zero(weight.zero):
        sums = add(graph, aten.sum.dim_IntList, x.value, [1], True, dtype=_S32)
        depth = int(fake(weight.value).shape[1])
        if not is_zero(x.zero):
            zero = integers(graph, x.zero)
            all_zeros = add(graph, aten.mul.Tensor, zero, depth) if isinstance(zero, fx.Node) else zero * depth
            sums = add(graph, aten.sub.Tensor, sums, all_zeros)
        total = add(graph, aten.sub.Tensor, total, add(graph, aten.mul.Tensor, sums, integers(graph, weight.zero)))
    return in_floats(graph, total, product_of_scales(graph, weight.scale, x.scale), bias)


def in_floats(graph: fx.Graph, total: fx.Node, scale: Any, bias: Any) -> fx.Node:
    """total * scale + bias in float32."""
    result = add(graph, aten._to_copy.default, total, dtype=_F32)
    result = add(graph, aten.mul.Tensor, result, scale)
    return result if bias is None else add(graph, aten.add.Tensor, result, bias)


def is_zero(zero: Any) -> bool:
    """Whether a zero point is known to be 0."""
    return zero is None or (isinstance(zero, int) and zero == 0)


def integers(graph: fx.Graph, zero: Any) -> Any:
    """A zero point in int32."""
    return add(graph, aten._to_copy.default, zero, dtype=_S32) if isinstance(zero, fx.Node) else zero


def product_of_scales(graph: fx.Graph, first: Any, second: Any) -> Any:
    """The product of two scales, in float32: a number or a tensor."""
    if not isinstance(first, fx.Node):
        first, second = second, first
    if not isinstance(first, fx.Node):
        return float(first) * float(second)
    # Those that are computed from a tensor are doubles.
    floats = [
        add(graph, aten._to_copy.default, scale, dtype=_F32)
        if isinstance(scale, fx.Node) and fake(scale).dtype != _F32
        else scale
        for scale in (first, second)
    ]
    return add(graph, aten.mul.Tensor, *floats)


# -- the operators themselves ----------------------------------------------------------------------------------------
def expand_quantization(gm: fx.GraphModule) -> int:
    """Replace operators of quantization with ATen operators that give the same bits; returns how many."""
    count = 0
    for node in list(gm.graph.nodes):
        build = _EXPANSIONS.get(name_of(node))
        if build is None or fake(args_of(node)[0]).dtype == torch.float64:
            continue
        with gm.graph.inserting_before(node):
            new = build(gm.graph, node, *args_of(node))
        if fake(new).dtype != fake(node).dtype:
            with gm.graph.inserting_before(node):
                new = add(gm.graph, aten._to_copy.default, new, dtype=fake(node).dtype)
        node.replace_all_uses_with(new)
        count += 1
    gm.graph.eliminate_dead_code()
    return count


def _quantize(
    graph: fx.Graph, node: fx.Node, x: fx.Node, scale: float, zero: int, low: int, high: int, *_: Any
) -> fx.Node:
    if is_call(x, (aten.relu.default,)) and low >= zero and scale > 0:
        x = args_of(x)[0]  # what relu makes 0 becomes `low` without it, too
    wide = add(graph, aten._to_copy.default, x, dtype=_F32) if fake(x).dtype != _F32 else x
    rounded = add(graph, aten.round.default, add(graph, aten.mul.Tensor, wide, 1.0 / scale))
    shifted = add(graph, aten.add.Tensor, rounded, zero) if zero != 0 else rounded
    return add(graph, aten.clamp.default, shifted, low, high)


def _dequantize(graph: fx.Graph, node: fx.Node, x: fx.Node, scale: float, zero: int, *_: Any) -> fx.Node:
    wide = add(graph, aten._to_copy.default, x, dtype=fake(node).dtype)
    centered = add(graph, aten.sub.Tensor, wide, zero) if zero != 0 else wide
    return add(graph, aten.mul.Tensor, centered, scale)


def _dequantize_channels(
    graph: fx.Graph, node: fx.Node, x: fx.Node, scales: fx.Node, zeros: fx.Node | None, axis: int, *_: Any
) -> fx.Node:
    rank = fake(x).dim()
    sizes = [-1 if d == axis % rank else 1 for d in range(rank)]
    if zeros is not None:
        x = add(graph, aten.sub.Tensor, x, add(graph, aten.reshape.default, zeros, sizes))
    return add(graph, aten.mul.Tensor, x, add(graph, aten.reshape.default, scales, sizes))


_EXPANSIONS: dict[str, Callable[..., fx.Node]] = {
    "quantize_per_tensor.default": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_channel.default": _dequantize_channels,
}
