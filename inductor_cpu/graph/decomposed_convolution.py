"""Graphs of torch's quantization (PT2E): convolutions between dequantize operators are products of integers.

With x = (X - p) s and w[n] = W[n] t[n]:

convolution(x, w)[n] + b[n]  ->  (convolution(X, W)[n] - p sum(W[n])) * (s t[n]) + b[n]

Beyond its borders x is 0, so X is p there. Sums of W are computed once. A weight with zero points of its own would need
a sum for each window of X: such a convolution stays one of floats.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.convolution import is_matrix_product
from inductor_cpu.graph.decomposed import (
    MOST_PRODUCTS,
    PER_CHANNEL,
    PER_TENSOR,
    Quantized,
    in_floats,
    integers,
    is_zero,
    name_of,
    product_of_scales,
)
from inductor_cpu.graph.edit import add, args_of, aten, fake, is_call
from inductor_cpu.graph.products import MicroKernelChoice, int_convolution

_F32, _S32 = torch.float32, torch.int32


def convolve_as_integers(gm: fx.GraphModule, weights: frozenset[fx.Node], micro_kernel: MicroKernelChoice) -> int:
    """Replace convolutions of dequantized values with those of integers; returns how many."""
    count = 0
    for node in [node for node in gm.graph.nodes if is_call(node, (aten.convolution.default,)) and node not in weights]:
        x, weight = _activation(node), _weight(node, weights)
        name = choose(micro_kernel, node, x) if x is not None and weight is not None else None
        if x is None or weight is None or name is None:
            continue
        with gm.graph.inserting_before(node):
            node.replace_all_uses_with(_product(gm.graph, node, x, weight, name))
        count += 1
    gm.graph.eliminate_dead_code()
    return count


def choose(micro_kernel: MicroKernelChoice, conv: fx.Node, x: Quantized) -> str | None:
    """The micro kernel for a convolution of 8-bit integers by int8."""
    shape, kernel = fake(conv).shape, fake(args_of(conv)[1]).shape
    if kernel[1:].numel() > MOST_PRODUCTS:
        return None
    rows = shape[0] * shape[2] * shape[3]
    known = rows if isinstance(rows, int) else None
    return micro_kernel(known, kernel[1:].numel(), kernel[0], fake(x.value).dtype, torch.int8)


def _activation(conv: fx.Node) -> Quantized | None:
    """What the input was dequantized from."""
    x, padding = args_of(conv)[0], args_of(conv)[4]
    if name_of(x) not in PER_TENSOR or fake(x).dtype != _F32 or not is_matrix_product(conv):
        return None
    value, scale, zero = args_of(x)[:3]
    dtype = fake(value).dtype
    if dtype not in (torch.int8, torch.uint8) or any(isinstance(s, int) and s == 0 for s in fake(conv).shape):
        return None
    known = isinstance(zero, int) and torch.iinfo(dtype).min <= zero <= torch.iinfo(dtype).max
    return Quantized(value, scale, zero) if known or not any(padding) else None


def _weight(conv: fx.Node, weights: frozenset[fx.Node]) -> Quantized | None:
    """What the weight was dequantized from, with a scale for each output channel or one."""
    weight = args_of(conv)[1]
    name = name_of(weight)
    if weight not in weights or fake(weight).dtype != _F32 or any(not isinstance(s, int) for s in fake(weight).shape):
        return None
    if name not in (*PER_TENSOR, *PER_CHANNEL) or (name in PER_CHANNEL and args_of(weight)[3] != 0):
        return None
    value, scale, zero = args_of(weight)[:3]
    return Quantized(value, scale, zero) if fake(value).dtype == torch.int8 and is_zero(zero) else None


def _product(graph: fx.Graph, conv: fx.Node, x: Quantized, weight: Quantized, name: str) -> fx.Node:
    """The convolution of the head of this file."""
    total = int_convolution(graph, conv, x.value, weight.value, x.zero if isinstance(x.zero, int) else 0, name)
    if not is_zero(x.zero):
        sums = add(graph, aten.sum.dim_IntList, weight.value, [1, 2, 3], dtype=_S32)
        zeros = add(graph, aten.mul.Tensor, sums, integers(graph, x.zero))
        total = add(graph, aten.sub.Tensor, total, _by_channel(graph, zeros))
    scale, bias = product_of_scales(graph, weight.scale, x.scale), args_of(conv)[2]
    return in_floats(graph, total, _by_channel(graph, scale), _by_channel(graph, bias))


def _by_channel(graph: fx.Graph, values: Any) -> Any:
    """Values for each channel, or one, beside images."""
    return add(graph, aten.reshape.default, values, [-1, 1, 1]) if isinstance(values, fx.Node) else values
