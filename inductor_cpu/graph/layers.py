"""A convolution or linear with static weights as a thing whose output channels can be scaled and shifted.

layer(x) * scale + shift  ->  layer'(x)  with weight' = weight * scale and bias' = bias * scale + shift
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import (
    RESHAPES,
    TRANSPOSES,
    add,
    args_of,
    fake,
    is_call,
    is_cast_of_bytes,
    order_of_dims,
    product_operands,
    view_again,
)
from inductor_cpu.ir.ops import LOW_PRECISION

aten = torch.ops.aten

_LINEARS = (aten.addmm.default, aten.mm.default)


@dataclass(frozen=True)
class Layer:
    """node: the layer; dim: the dimension of the last view's result (of the layer's own without `views`) that holds its
    `channels`; views: what lies between the layer and its reader, layer first."""

    node: fx.Node
    channels: int
    dim: int
    views: tuple[fx.Node, ...] = ()


def layer_of(node: Any, weights: Collection[fx.Node]) -> Layer | None:
    """The layer that a value comes from, through views that keep its channels apart. Nothing else may use it."""
    views: list[fx.Node] = []
    while is_call(node, RESHAPES + TRANSPOSES) and len(node.users) == 1:
        views.insert(0, node)
        node = args_of(node)[0]
    found = _plain_layer(node, weights)
    if found is None or len(node.users) != 1:
        return None
    dim: int | None = found.dim
    for view in views:
        dim = None if dim is None else _dim_after(view, dim)
    return None if dim is None else Layer(found.node, found.channels, dim, tuple(views))


def _plain_layer(node: Any, weights: Collection[fx.Node]) -> Layer | None:
    if not isinstance(node, fx.Node) or node.kwargs:
        return None
    if is_call(node, (aten.convolution.default,)):
        weight, bias = args_of(node)[1:3]
        channels, dim = fake(node).shape[1], 1
    elif is_call(node, _LINEARS):
        bias, _, weight = product_operands(node)
        channels, dim = fake(node).shape[1], 1
        if bias is not None and tuple(fake(bias).shape) != (channels,):
            return None
    else:
        return None
    if is_cast_of_bytes(weight):
        return None  # what is scaled would no longer be bytes
    if fake(weight).dtype not in (torch.float32, torch.float64, torch.bfloat16):
        return None  # f16 has few exponents: what is scaled may be subnormal, or infinite
    static = weight in weights and (bias is None or bias in weights) and not rounds_twice(weight)
    batched = not is_call(node, (aten.convolution.default,)) or fake(args_of(node)[0]).dim() == fake(weight).dim()
    return Layer(node, channels, dim) if static and batched and isinstance(channels, int) else None


def rounds_twice(weight: fx.Node) -> bool:
    """Whether scaling would round weights that are low-precision numbers already. The second rounding is an error that
    eager does not make: five times eager's on a MobileNet in bf16. Weights cast from f32 (autocast) are scaled before
    their one rounding."""
    if fake(weight).dtype not in LOW_PRECISION:
        return False
    source = args_of(weight)[0] if is_call(weight, (aten._to_copy.default,)) else weight
    return fake(source).dtype in LOW_PRECISION


def _dim_after(view: fx.Node, dim: int) -> int | None:
    """Where a dimension is after a view; None when it is mixed with others."""
    before, after = fake(args_of(view)[0]), fake(view)
    if view.target in RESHAPES:
        last = dim == before.dim() - 1 and after.dim() > 0 and after.shape[-1] == before.shape[-1]
        return after.dim() - 1 if last else None
    return order_of_dims(view).index(dim)


def rescale(graph: fx.Graph, layer: Layer, reader: fx.Node, scale: Any, shift: Any, center: Any = None) -> None:
    """Replace `reader`, which is (layer - center) * scale + shift, by a layer with other weights.

    scale, shift, center: nodes of shape (channels,), numbers, or None for none."""
    with graph.inserting_before(reader):
        new = _new_layer(graph, layer, scale, shift, center)
        for view in layer.views:
            new = view_again(graph, view, new)
    reader.replace_all_uses_with(new)


def _new_layer(graph: fx.Graph, layer: Layer, scale: Any, shift: Any, center: Any) -> fx.Node:
    node, value = layer.node, fake(layer.node)
    if node.target is aten.convolution.default:
        x, old, bias, *rest = args_of(node)
        weight = _scaled(graph, old, scale, _conv_shape(fake(old), bool(rest[3]), rest[5]))
        bias = _shifted(graph, bias, scale, shift, center, layer.channels, old)
        return add(graph, node.target, x, weight, bias, *rest, value=value)
    bias, x, old = product_operands(node)
    weight = _scaled(graph, old, scale, ([-1], list(fake(old).shape)))
    bias = _shifted(graph, bias, scale, shift, center, layer.channels, old)
    if bias is None:
        return add(graph, aten.mm.default, x, weight, value=value)
    return add(graph, aten.addmm.default, bias, x, weight, value=value)


def _conv_shape(weight: torch.Tensor, transposed: bool, groups: int) -> tuple[list[int], list[int]]:
    """(shape of the scale, shape of the weight) in which they multiply."""
    shape = [int(s) for s in weight.shape]
    if transposed:  # (in, out / groups, ...): the output channel is split over groups and dimension 1
        return [groups, 1, shape[1]] + [1] * (len(shape) - 2), [groups, shape[0] // groups, *shape[1:]]
    return [-1] + [1] * (len(shape) - 1), shape


def _scaled(graph: fx.Graph, weight: fx.Node, scale: Any, shapes: tuple[list[int], list[int]]) -> fx.Node:
    if scale is None:
        return weight
    by_channel, split = shapes
    value, wide = fake(weight), widest(graph, weight)
    shape = list(value.shape)
    if isinstance(scale, fx.Node):
        scale = add(graph, aten.reshape.default, scale, by_channel)
    if split != shape:
        wide = add(graph, aten.reshape.default, wide, split)
    scaled = add(graph, aten.mul.Tensor, wide, scale)
    return cast(graph, scaled if split == shape else add(graph, aten.reshape.default, scaled, shape), value.dtype)


def _shifted(
    graph: fx.Graph, bias: Any, scale: Any, shift: Any, center: Any, channels: int, like: fx.Node
) -> fx.Node | None:
    """(bias - center) * scale + shift in the dtype of the weight `like`; None for no bias."""
    if bias is None and shift is None and center is None:
        return None
    total = None if bias is None else widest(graph, bias)
    if center is not None:
        total = add(graph, aten.neg.default, center) if total is None else add(graph, aten.sub.Tensor, total, center)
    if total is not None and scale is not None:
        total = add(graph, aten.mul.Tensor, total, scale)
    if isinstance(shift, fx.Node):
        total = shift if total is None else add(graph, aten.add.Tensor, total, shift)
    elif shift is not None:
        if total is None:
            dtype = torch.float64 if fake(like).dtype == torch.float64 else torch.float32
            total = add(graph, aten.new_full.default, like, [channels], shift, dtype=dtype)
        else:
            total = add(graph, aten.add.Tensor, total, shift)
    assert total is not None
    return cast(graph, total, fake(like).dtype)


def widest(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A low-precision weight in float32: what it was cast from, where it was."""
    if fake(node).dtype not in (torch.bfloat16, torch.float16):
        return node
    if is_call(node, (aten._to_copy.default,)) and fake(args_of(node)[0]).dtype == torch.float32:
        return args_of(node)[0]
    return add(graph, aten._to_copy.default, node, dtype=torch.float32)


def cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """`node` in this dtype."""
    return node if fake(node).dtype == dtype else add(graph, aten._to_copy.default, node, dtype=dtype)
