"""The activation after a convolution or linear, which becomes its post-op.

Looked through are views (an activation of a view is the view of the activation) and a pair of casts around the
activation, to float32 and back: the post-op computes in float32 and rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from inductor_cpu.graph.edit import RESHAPES, TRANSPOSES, fake, is_call, only_user, view_again
from inductor_cpu.graph.post_ops import NONE, PostOp, unary_post_op

aten = torch.ops.aten

_VIEWS = (*RESHAPES, *TRANSPOSES, aten.unsqueeze.default, aten.squeeze.dim)


@dataclass(frozen=True)
class Tail:
    """last: the node whose value the layer with `post` gives, after the `views` are applied again."""

    last: fx.Node
    post: PostOp
    views: tuple[fx.Node, ...] = ()


def find_tail(layer: fx.Node) -> Tail:
    """The activation of a layer; the layer itself with no post-op when there is none."""
    views: list[fx.Node] = []
    user = only_user(layer)
    while user is not None and is_call(user, _VIEWS):
        views.append(user)
        user = only_user(user)
    if user is None:
        return Tail(layer, NONE)
    dtype = fake(layer).dtype
    widened = dtype != torch.float32 and cast_to(user) == torch.float32
    activation = only_user(user) if widened else user
    post = unary_post_op(activation)
    if activation is None or post is None:
        return Tail(layer, NONE)
    last = only_user(activation) if widened else activation
    if last is None or last.op != "call_function" or fake(last).dtype != dtype or (widened and cast_to(last) != dtype):
        return Tail(layer, NONE)
    return Tail(last, post, tuple(views))


def cast_to(node: fx.Node | None) -> torch.dtype | None:
    """The dtype of a node that does nothing but cast."""
    if node is None or not is_call(node, (aten._to_copy.default,)) or set(node.kwargs) != {"dtype"}:
        return None
    dtype = node.kwargs["dtype"]
    return dtype if isinstance(dtype, torch.dtype) else None


def replace_tail(graph: fx.Graph, tail: Tail, new: fx.Node) -> list[fx.Node]:
    """Put the new layer, and the views after it, in the place of the tail; returns those views. They have the strides
    that they had, for whoever spreads those of the new layer."""
    views: list[fx.Node] = []
    with graph.inserting_before(tail.last):
        for view in tail.views:
            views.append(view_again(graph, view, views[-1] if views else new))
            views[-1].meta["val"] = fake(view)
    tail.last.replace_all_uses_with(views[-1] if views else new)
    return views
