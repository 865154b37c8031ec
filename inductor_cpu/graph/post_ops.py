"""The table of oneDNN post-ops: the activations that a convolution or a linear can take over, and their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True)
class PostOp:
    """oneDNN's name, scalars and algorithm of an activation."""

    name: str
    scalars: tuple[float, ...] = ()
    algorithm: str = ""


NONE = PostOp("none")

#: activation -> its post-op from the call's arguments (after the input), None when oneDNN has no such variant.
UNARY: dict[Any, Callable[..., PostOp | None]] = {
    aten.relu.default: lambda: PostOp("relu"),
    aten.sigmoid.default: lambda: PostOp("sigmoid"),
    aten.tanh.default: lambda: PostOp("tanh"),
    aten.silu.default: lambda: PostOp("swish"),
    aten.hardswish.default: lambda: PostOp("hardswish"),
    aten.hardsigmoid.default: lambda: PostOp("hardsigmoid"),
    aten.leaky_relu.default: lambda slope=0.01: PostOp("leaky_relu", (float(slope),)),
    aten.hardtanh.default: lambda low=-1.0, high=1.0: _clamp(low, high),
    aten.relu6.default: lambda: PostOp("hardtanh", (0.0, 6.0)),
    aten.clamp.default: lambda low=None, high=None: _clamp(low, high),
    aten.gelu.default: lambda approximate="none": PostOp("gelu", (), approximate),
}


def _clamp(low: Any, high: Any) -> PostOp | None:
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)) or not low <= high:
        return None
    return PostOp("hardtanh", (float(low), float(high)))


#: operation with another tensor of the same shape -> oneDNN's name for it.
BINARY: dict[Any, str] = {aten.add.Tensor: "add", aten.sub.Tensor: "sub", aten.mul.Tensor: "mul"}


def binary_post_op(node: fx.Node) -> str | None:
    """oneDNN's name of an operation of two tensors; None for any other node."""
    if node.op != "call_function" or node.kwargs or len(node.args) != 2:
        return None
    return BINARY.get(node.target) if all(isinstance(a, fx.Node) for a in node.args) else None


def fuse_binaries(gm: fx.GraphModule, fuse: Callable[[fx.Graph, fx.Node, Mapping[fx.Node, int]], bool]) -> int:
    """Let packed calls take operations of two tensors; returns how many do. fuse: tries it with one operation, given
    the places of all nodes in the graph."""
    order = {node: k for k, node in enumerate(gm.graph.nodes)}
    binaries = [node for node in gm.graph.nodes if binary_post_op(node) is not None]
    count = sum(fuse(gm.graph, node, order) for node in binaries)
    gm.graph.eliminate_dead_code()
    return count


def unary_post_op(node: fx.Node | None) -> PostOp | None:
    """The post-op of an activation node; None for any other node."""
    if node is None or node.op != "call_function" or node.target not in UNARY:
        return None
    return UNARY[node.target](*node.args[1:], **node.kwargs)
