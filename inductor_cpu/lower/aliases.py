"""Where a result lies in the memory of another value: what autograd's caller makes views of anew.

A result that eager mode has as a view (`y[1:]` of an input, or of another result) is made again outside of the graph,
as a view of what it belongs to: with the strides and the storage offset of the tensor that the graph returns. So a
result with the right numbers at another offset would be read as other numbers.
"""

from __future__ import annotations

import contextlib
import operator

import torch
from torch import fx
from torch._guards import detect_fake_mode

from inductor_cpu.ir.index import Expr
from inductor_cpu.lower.context import meta_of
from inductor_cpu.lower.sizes import size_expr, stride_exprs


def root(node: fx.Node) -> fx.Node:
    """The value of which a node is a view, of the same dtype, in eager mode: the node itself if it is no view."""
    while (source := _viewed(node)) is not None and _lies_in(node, source):
        node = source
    return node


def offset_in(node: fx.Node, base: fx.Node) -> Expr:
    """Elements from the start of `base` to the start of a view of it, as in eager mode. Raises Unsupported."""
    return size_expr(meta_of(node).storage_offset()) - size_expr(meta_of(base).storage_offset())


def _lies_in(node: fx.Node, source: fx.Node) -> bool:
    """Whether the fake value of a view is where its source's puts it. Not so if a graph pass replaced the source by a
    value of other strides, which are of no concern to indices of elements, or if dtypes differ."""
    if meta_of(source).dtype != meta_of(node).dtype:
        return False
    call = node.args[0] if node.target is operator.getitem else node
    assert isinstance(call, fx.Node)
    values, named = fx.map_arg((call.args, call.kwargs), meta_of)
    mode = detect_fake_mode([meta_of(source)])
    try:
        with mode or contextlib.nullcontext(), torch.no_grad():
            made = call.target(*values, **named)  # type: ignore[operator]
    except (RuntimeError, ValueError):
        return False  # no view of such strides
    made = made[node.args[1]] if call is not node else made
    return _place(made) == _place(meta_of(node))


def _place(fake: torch.Tensor) -> tuple[tuple[Expr, ...], Expr]:
    return stride_exprs(fake.stride()), size_expr(fake.storage_offset())


def _viewed(node: fx.Node) -> fx.Node | None:
    """The argument whose memory a node is in eager mode; None if the node has memory of its own."""
    call = node.args[0] if node.target is operator.getitem else node
    if not isinstance(call, fx.Node) or not isinstance(call.target, torch._ops.OpOverload):
        return None
    returns = call.target._schema.returns
    shares = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    if not shares or not call.args or not isinstance(call.args[0], fx.Node):
        return None
    # reshape, contiguous, to: they copy where they must, and their schemas do not tell.
    may_copy = call.target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return None if may_copy else call.args[0]
