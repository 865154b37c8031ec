"""A convolution that adds another tensor: oneDNN adds its result to that tensor's memory, if nobody reads it later.

Measured: 1.03 to 1.3 times as fast in f32, 1.05 to 1.7 in bf16, because the other tensor is read and written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from inductor_cpu.ir.index import ZERO
from inductor_cpu.ir.nodes import Extern
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.extern import argument, reason_for, same_strides
from inductor_cpu.lower.in_place import holds
from inductor_cpu.lower.sizes import stride_exprs
from inductor_cpu.lower.values import TensorValue

_ADDING = torch.ops.mkldnn._convolution_pointwise.binary
_UPDATING = torch.ops.mkldnn._convolution_pointwise_.binary

#: Position of the name of the operation among the arguments.
_OPERATION = 8


def can_update(ctx: Lowering, node: fx.Node, env: Mapping[fx.Node, Any]) -> bool:
    """Whether a call is such a convolution and may write its other operand. env: all that is lowered so far.

    The operand must be all of a buffer that the program made, laid out as the result; and no value in that buffer may
    have a reader that is not lowered yet, or be what the call convolves: oneDNN reads that again for other channels."""
    if node.target is not _ADDING or node.args[_OPERATION] != "add":
        return False
    x, other = (env[arg] if isinstance(arg, fx.Node) else None for arg in node.args[:2])
    if not isinstance(other, TensorValue) or holds(x, other.buffer):
        return False
    buffer, view = ctx.buffers[other.buffer], ctx.strided(other)
    if buffer.kind not in ("temp", "extern") or view is None or view.offset != ZERO or view.sizes != buffer.sizes:
        return False
    if not same_strides(view, stride_exprs(meta_of(node).stride())):
        return False
    return not any(
        user is not node and user not in env
        for earlier, value in env.items()
        if holds(value, other.buffer)
        for user in earlier.users
    )


def update(ctx: Lowering, node: fx.Node, args: tuple[Any, ...]) -> TensorValue:
    """The call that writes its other operand, whose value is the result. args: lowered."""
    x, other, *rest = args
    view = ctx.strided(other)
    assert view is not None
    ctx.nodes.append(
        Extern(
            name=ctx.fresh("extern"),
            target=_UPDATING,
            args=(view, argument(ctx, node, x), *(argument(ctx, node, a) for a in rest)),
            kwargs=(),
            outputs=(None,),
            reason=reason_for(node),
            mutates=(view.buffer,),
            origins=(node.name,),
        )
    )
    value: TensorValue = other
    return value
