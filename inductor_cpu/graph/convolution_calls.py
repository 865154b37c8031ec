"""ATen's convolutions and their gradients, as nodes of a graph: their arguments, and how results are replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.edit import args_of, aten, copy_with_strides, fake, hints, is_call

CONVOLUTION, GRADIENT = aten.convolution.default, aten.convolution_backward.default


@dataclass(frozen=True)
class ConvolutionCall:
    """What a convolution and its gradient have in common. results: of the convolution, a fake value."""

    x: fx.Node
    weight: fx.Node
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    groups: int
    results: torch.Tensor


def read_convolution(node: fx.Node) -> ConvolutionCall | None:
    """A convolution or its gradient; None for another node."""
    if not is_call(node, (CONVOLUTION, GRADIENT)):
        return None
    args = args_of(node)
    if node.target is CONVOLUTION:
        x, weight, _, stride, padding, dilation, transposed, _, groups = args
        return ConvolutionCall(x, weight, stride, padding, dilation, transposed, groups, fake(node))
    gradients, x, weight, _, stride, padding, dilation, transposed, _, groups, _ = args
    return ConvolutionCall(x, weight, stride, padding, dilation, transposed, groups, fake(gradients))


def replace_value(graph: fx.Graph, node: fx.Node, new: fx.Node) -> None:
    """Put a value into the place of another one, copied to its strides if they are others."""
    if not _lie_alike(fake(node), fake(new)):
        new = copy_with_strides(graph, node, new, fake(node).stride())
    node.replace_all_uses_with(new)


def replace_gradients(graph: fx.Graph, node: fx.Node, made: Mapping[int, fx.Node]) -> None:
    """Put values into the places of some results of a convolution's gradient (0: of the image, 1: of the weights, 2: of
    the bias), which computes the others alone."""
    for user in [user for user in node.users if args_of(user)[1] in made]:
        replace_value(graph, user, made[args_of(user)[1]])
    *_, wanted = args_of(node)
    rest: Any = [bool(want) and n not in made for n, want in enumerate(wanted)]
    node.update_arg(len(node.args) - 1, rest)


def _lie_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether strides agree, but of dimensions with one element."""
    strides = zip(hints(a.stride()), hints(b.stride()), a.shape, strict=True)
    return all(ours == theirs or statically_known_true(size == 1) for ours, theirs, size in strides)
