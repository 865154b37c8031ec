"""Inference batch norm into the weights of the convolution or linear beside it.

batch_norm(layer(x))                    ->  layer'(x)
batch_norm(x) in low precision          ->  scale_shift(x)
convolution(batch_norm(x)), no padding  ->  convolution'(x)
with batch_norm(y) = (y - mean) * s + beta, s = gamma / sqrt(var + eps), for each channel
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, args_of, fake, is_call, only_user
from inductor_cpu.graph.layers import cast, layer_of, rescale, rounds_twice, widest
from inductor_cpu.ir.operators import SCALE_SHIFT
from inductor_cpu.ir.ops import LOW_PRECISION

aten = torch.ops.aten


def fold_batch_norms(gm: fx.GraphModule, weights: frozenset[fx.Node]) -> int:
    """Fold every batch norm whose statistics and whose neighbour's weights are static. Returns how many."""
    count = 0
    for node in list(gm.graph.nodes):
        if is_call(node, (aten._native_batch_norm_legit_no_training.default,)):
            result = _result(node)
            if result is not None and all(n is None or n in weights for n in args_of(node)[1:5]):
                folded = _into_layer_before(gm.graph, node, result, weights)
                folded = folded or _into_convolution_after(gm.graph, node, result, weights)
                count += folded or _into_scale_and_shift(gm.graph, node, result)
    gm.graph.eliminate_dead_code()
    return count


def _result(norm: fx.Node) -> fx.Node | None:
    """The normalized value, if nothing else of the batch norm is used."""
    user = only_user(norm)
    return user if user is not None and is_call(user, (operator.getitem,)) and args_of(user)[1] == 0 else None


def _into_layer_before(graph: fx.Graph, norm: fx.Node, result: fx.Node, weights: frozenset[fx.Node]) -> bool:
    y, gamma, beta, mean, var, _momentum, eps = args_of(norm)
    layer = layer_of(y, weights)
    if layer is None or layer.dim != 1 or fake(y).dtype != fake(result).dtype:
        return False
    with graph.inserting_before(norm):
        scale = _scale(graph, gamma, var, eps)
    rescale(graph, layer, result, scale, beta, mean)
    return True


def _into_scale_and_shift(graph: fx.Graph, norm: fx.Node, result: fx.Node) -> bool:
    """Weights of low precision are not folded, that would round them twice: two numbers a channel in float32 remain."""
    x, gamma, beta, mean, var, _momentum, eps = args_of(norm)
    if fake(x).dtype not in LOW_PRECISION or fake(result).dtype != fake(x).dtype:
        return False
    with graph.inserting_before(norm):
        scale = _scale(graph, None if gamma is None else widest(graph, gamma), var, eps)
        shift = add(graph, aten.neg.default, add(graph, aten.mul.Tensor, widest(graph, mean), scale))
        if beta is not None:
            shift = add(graph, aten.add.Tensor, shift, widest(graph, beta))
        new = add(graph, SCALE_SHIFT, x, scale, shift, value=fake(result))
    result.replace_all_uses_with(new)
    return True


def _scale(graph: fx.Graph, gamma: Any, var: Any, eps: Any) -> fx.Node:
    inverse = add(graph, aten.rsqrt.default, add(graph, aten.add.Tensor, widest(graph, var), eps))
    return inverse if gamma is None else add(graph, aten.mul.Tensor, inverse, gamma)


def _into_convolution_after(graph: fx.Graph, norm: fx.Node, result: fx.Node, weights: frozenset[fx.Node]) -> bool:
    """Padding would add zeros after the batch norm, so it must be 0 for the result to be exact."""
    x, gamma, beta, mean, var, _momentum, eps = args_of(norm)
    conv = only_user(result)
    if conv is None or not is_call(conv, (aten.convolution.default,)) or args_of(conv)[0] is not result:
        return False
    _, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args_of(conv)
    if transposed or any(padding) or weight not in weights or (bias is not None and bias not in weights):
        return False
    value = fake(weight)
    if rounds_twice(weight):
        return False
    if fake(x).dtype != value.dtype or fake(result).dtype != value.dtype or fake(x).dim() != value.dim():
        return False
    with graph.inserting_before(conv):
        scale = _scale(graph, gamma, var, eps)
        shift = add(graph, aten.neg.default, add(graph, aten.mul.Tensor, mean, scale))
        if beta is not None:
            shift = add(graph, aten.add.Tensor, shift, beta)
        shape = [int(s) for s in value.shape]
        split = [groups, shape[0] // groups, *shape[1:]]
        by_input = [groups, 1, shape[1]] + [1] * (len(shape) - 2)
        wide = add(graph, aten.reshape.default, widest(graph, weight), split)
        scaled = add(graph, aten.mul.Tensor, wide, add(graph, aten.reshape.default, scale, by_input))
        shifted = add(graph, aten.mul.Tensor, wide, add(graph, aten.reshape.default, shift, by_input))
        total = add(graph, aten.sum.dim_IntList, shifted, list(range(2, len(split))))
        total = add(graph, aten.reshape.default, total, [-1])
        if bias is not None:
            total = add(graph, aten.add.Tensor, total, bias)
        new_weight = cast(graph, add(graph, aten.reshape.default, scaled, shape), value.dtype)
        new_bias = cast(graph, total, value.dtype)
        new = add(
            graph, aten.convolution.default, x, new_weight, new_bias, stride, padding, dilation, transposed,
            output_padding, groups, value=fake(conv),
        )  # fmt: skip
    conv.replace_all_uses_with(new)
    return True
