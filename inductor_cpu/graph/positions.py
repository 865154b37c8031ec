"""Positions that max pooling chose are kept for its gradient as int32 where that holds them: half the memory, and half
the vectors to compare.

`shorten_positions` runs in the graph of both directions, before AOTAutograd splits it, `lengthen_positions` in that of
the gradients afterwards: of two conversions after each other it may choose to keep what the second one gives.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.edit import add, args_of, carry, fake, is_call

aten = torch.ops.aten

#: The gradient of max pooling -> the dimensions of a plane. Its input is the second argument, positions are the last.
_GRADIENTS: dict[Any, int] = {
    aten.max_pool2d_with_indices_backward.default: 2,
    aten.max_pool3d_with_indices_backward.default: 3,
    aten.adaptive_max_pool2d_backward.default: 2,
    aten.adaptive_max_pool3d_backward.default: 3,
}


def shorten_positions(gm: fx.GraphModule) -> int:
    """Let each gradient of max pooling read its positions as int32; how many do."""
    gradients = [node for node in gm.graph.nodes if is_call(node, _GRADIENTS) and _fits(node)]
    for node in gradients:
        positions = args_of(node)[-1]
        with gm.graph.inserting_after(positions):
            short = add(gm.graph, aten._to_copy.default, positions, dtype=torch.int32)
        carry(positions, short)
        node.replace_input_with(positions, short)
    return len(gradients)


def lengthen_positions(gm: fx.GraphModule) -> None:
    """Give the gradients of max pooling positions in int64 again, as their operators ask."""
    for node in list(gm.graph.nodes):
        if is_call(node, _GRADIENTS) and fake(args_of(node)[-1]).dtype == torch.int32:
            with gm.graph.inserting_before(node):
                long = add(gm.graph, aten._to_copy.default, args_of(node)[-1], dtype=torch.int64)
            carry(node, long)
            node.replace_input_with(args_of(node)[-1], long)
    gm.recompile()


def _fits(gradient: fx.Node) -> bool:
    """Whether int32 is known to hold every position of a plane."""
    plane = fake(args_of(gradient)[1]).shape[-_GRADIENTS[gradient.target] :]
    return statically_known_true(math.prod(plane) < torch.iinfo(torch.int32).max)
