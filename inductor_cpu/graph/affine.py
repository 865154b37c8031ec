"""A multiplication or addition after a convolution or linear, by a number or per channel, goes into its weights.

layer(x) * s, layer(x) / n, layer(x) + t, layer(x) - t  ->  layer'(x), for numbers n and numbers or static tensors s, t
(a divisor that is a tensor may be 0: weights would be infinite)
Frozen batch norms, layer scales and biases that are added by hand have this form.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, args_of, fake, is_call, is_number
from inductor_cpu.graph.layers import Layer, layer_of, rescale
from inductor_cpu.graph.weights import grow

aten = torch.ops.aten

_MULTIPLY, _DIVIDE = aten.mul.Tensor, aten.div.Tensor
_ADD, _SUBTRACT = aten.add.Tensor, aten.sub.Tensor


def fold_affine(gm: fx.GraphModule, weights: frozenset[fx.Node]) -> int:
    """Fold every such operation; returns how many."""
    known, count = dict.fromkeys(weights), 0
    for node in list(gm.graph.nodes):
        if _fold(gm.graph, node, known):
            count += 1
            grow(gm, known)
    gm.graph.eliminate_dead_code()
    return count


def _fold(graph: fx.Graph, node: fx.Node, weights: Collection[fx.Node]) -> bool:
    if not is_call(node, (_MULTIPLY, _DIVIDE, _ADD, _SUBTRACT)) or node.kwargs or len(args_of(node)) != 2:
        return False
    if node in weights:
        return False
    for value, operand in _operand_pairs(node):
        layer = layer_of(value, weights)
        if layer is None or fake(node).shape != fake(value).shape or fake(node).dtype != fake(value).dtype:
            continue
        if not _fits(operand, layer, fake(value).dim(), weights):
            continue
        if node.target is _DIVIDE and not is_number(operand):
            continue
        with graph.inserting_before(node):
            amount = _per_channel(graph, operand, layer)
            if node.target is _DIVIDE:
                amount = 1.0 / amount
            if node.target is _SUBTRACT:
                amount = -amount if is_number(amount) else add(graph, aten.neg.default, amount)
        scales = node.target in (_MULTIPLY, _DIVIDE)
        rescale(graph, layer, node, amount if scales else None, None if scales else amount)
        return True
    return False


def _operand_pairs(node: fx.Node) -> list[tuple[Any, Any]]:
    """(value of the layer, other operand), both ways round where the operator commutes."""
    left, right = args_of(node)
    return [(left, right), (right, left)] if node.target in (_MULTIPLY, _ADD) else [(left, right)]


def _fits(operand: Any, layer: Layer, rank: int, weights: Collection[fx.Node]) -> bool:
    """Whether an operand is one number, or one for each channel."""
    if is_number(operand):
        return math.isfinite(operand) and operand != 0
    if operand not in weights:
        return False
    value = fake(operand)
    if not value.dtype.is_floating_point or value.dim() > rank:
        return False
    if value.numel() == 1:
        return True
    aligned = [1] * (rank - value.dim()) + list(value.shape)
    return all(s == (layer.channels if d == layer.dim else 1) for d, s in enumerate(aligned))


def _per_channel(graph: fx.Graph, operand: Any, layer: Layer) -> Any:
    """A number, or a node of shape (channels,)."""
    if is_number(operand):
        return float(operand)
    flat = add(graph, aten.reshape.default, operand, [-1])
    return flat if fake(operand).numel() == layer.channels else add(graph, aten.expand.default, flat, [layer.channels])
