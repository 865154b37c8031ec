"""Scatters into a graph input: written where the input lies, in place of a copy of all of it and a copy back.

A cache of keys and values is a few new rows in much memory. The program is functional: it scatters into a copy, and the
last thing it does is to copy the result into the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.values import TensorValue

aten = torch.ops.aten

#: Operators whose rules write to `x` itself if `is_overwritten(ctx, node, x)`; they may write elsewhere where a sum in
#: low precision needs more digits.
UPDATES = frozenset(
    {
        aten.index_put.default,
        aten._unsafe_index_put.default,
        aten.index_copy.default,
        aten.index_add.default,
        aten.index_fill.int_Scalar,
        aten.index_fill.int_Tensor,
        aten.scatter.src,
        aten.scatter.value,
        aten.scatter.reduce,
        aten.scatter.value_reduce,
        aten.scatter_add.default,
        aten.scatter_reduce.two,
        aten.slice_scatter.default,
        aten.select_scatter.default,
        aten.diagonal_scatter.default,
    }
)


def may_overwrite(node: fx.Node, env: Mapping[fx.Node, Any]) -> bool:
    """Whether a node is such an operator on an input that the graph sets to the node's result, and nothing else reads
    the input's memory from then on, the node's other operands included. env: all that is lowered so far."""
    if node.target not in UPDATES or not isinstance(node.args[0], fx.Node) or node.args[0].op != "placeholder":
        return False
    given = node.args[0]
    value = env[given]
    ends = [user for user in node.users if user.target is aten.copy_.default and user.args[:2] == (given, node)]
    if len(ends) != 1 or not isinstance(value, TensorValue):
        return False
    operands = [env[other] for other in node.all_input_nodes if other is not given]
    if any(holds(operand, value.buffer) for operand in operands):
        return False
    return not any(
        user is not node and user is not ends[0] and user not in env
        for earlier, held in env.items()
        if holds(held, value.buffer)
        for user in earlier.users
    )


def holds(value: Any, buffer: str) -> bool:
    """Whether a lowered node is, or has in it, a tensor in a buffer."""
    return any(isinstance(leaf, TensorValue) and leaf.buffer == buffer for leaf in pytree.tree_leaves(value))


def is_overwritten(ctx: Lowering, node: fx.Node, x: TensorValue) -> bool:
    """Whether the rule of a node must write to x itself."""
    return node in ctx.overwrites and ctx.buffers[x.buffer].kind == "input"
