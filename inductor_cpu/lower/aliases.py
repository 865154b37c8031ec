"""Where a result lies in the memory of another value: what autograd's caller makes views of anew.

A result that eager mode has as a view (`y[1:]` of an input, or of another result) is made again outside of the graph,
as a view of what it belongs to: with the strides and the storage offset of the tensor that the graph returns. So a
result with the right numbers at another offset would be read as other numbers.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode

from inductor_cpu.ir.index import Expr
from inductor_cpu.lower.context import meta_of
from inductor_cpu.lower.sizes import size_expr, stride_exprs

#: Views that read other numbers than their memory holds.
_CHANGED = (torch.ops.aten._conj.default, torch.ops.aten._neg_view.default)


def roots(nodes: Iterable[fx.Node]) -> dict[fx.Node, fx.Node]:
    """For each node the value of which it is a view, of the same dtype, in eager mode: itself if it is no view."""
    calls: dict[fx.Node, Any] = {}  # a split into many pieces is one call
    return {node: _root(node, calls) for node in nodes}


def _root(node: fx.Node, calls: dict[fx.Node, Any]) -> fx.Node:
    while (source := _viewed(node)) is not None and _lies_in(node, source, calls):
        node = source
    return node


def offset_in(node: fx.Node, base: fx.Node) -> Expr:
    """Elements from the start of `base` to the start of a view of it, as in eager mode. Raises Unsupported."""
    return size_expr(meta_of(node).storage_offset()) - size_expr(meta_of(base).storage_offset())


def _lies_in(node: fx.Node, source: fx.Node, calls: dict[fx.Node, Any]) -> bool:
    """Whether the fake value of a view is where its source's puts it. Not so if a graph pass replaced the source by a
    value of other strides, which are of no concern to indices of elements, or if dtypes differ."""
    if meta_of(source).dtype != meta_of(node).dtype:
        return False
    call = node.args[0] if node.target is operator.getitem else node
    assert isinstance(call, fx.Node)
    if call not in calls:
        calls[call] = _called(call, source)
    made = calls[call]
    if made is None:
        return False
    made = made[node.args[1]] if call is not node else made
    return _place(made) == _place(meta_of(node))


def _called(call: fx.Node, source: fx.Node) -> Any:
    """The fake result of a call; None if there is no view of such strides. The shape environment learns nothing: a new
    guard may give other expressions to sizes of values that are lowered already."""
    values, named = fx.map_arg((call.args, call.kwargs), meta_of)
    mode = detect_fake_mode([meta_of(source)])
    env = None if mode is None else mode.shape_env
    try:
        with (
            mode or contextlib.nullcontext(),
            env.suppress_guards() if env else contextlib.nullcontext(),
            torch.no_grad(),
        ):
            return call.target(*values, **named)  # type: ignore[operator]
    except (RuntimeError, ValueError):
        return None


def _place(fake: torch.Tensor) -> tuple[tuple[Expr, ...], Expr]:
    return stride_exprs(fake.stride()), size_expr(fake.storage_offset())


def _viewed(node: fx.Node) -> fx.Node | None:
    """The argument whose memory a node is in eager mode; None if the node has memory of its own."""
    call = node.args[0] if node.target is operator.getitem else node
    if not isinstance(call, fx.Node) or not isinstance(call.target, torch._ops.OpOverload) or call.target in _CHANGED:
        return None
    if call.target is torch.ops.aten._unsafe_view.default:  # a view, although its schema does not tell
        return call.all_input_nodes[0]
    returns = call.target._schema.returns
    shares = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    if not shares or not call.args or not isinstance(call.args[0], fx.Node):
        return None
    # reshape, contiguous, to: they copy where they must, and their schemas do not tell.
    may_copy = call.target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return None if may_copy else call.args[0]
