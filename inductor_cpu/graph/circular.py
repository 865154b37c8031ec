"""Circular padding becomes joins of slices, before the graph is differentiated.

torch spells it out as copies into parts of a new tensor, one side after the other. As a functional program these are
five passes over the whole tensor for two dimensions; joins write each element once for each dimension.

pad(x, [left, right], mode="circular")  ->  cat([x[..., -left:], x, x[..., :right]], -1)

The calls in Dynamo's graph get another function; it runs, and decides, while AOTAutograd traces the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

_pad: Any = torch._C._nn.pad


def join_circular_padding(gm: fx.GraphModule) -> None:
    """Give the calls of Dynamo's graph `gm` that pad circularly a function that joins."""
    calls = [n for n in gm.graph.nodes if n.op == "call_function" and n.target is _pad and _is_circular(n)]
    for node in calls:
        node.target = pad_around
    if calls:
        gm.recompile()


def _is_circular(node: fx.Node) -> bool:
    mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("mode")
    return mode == "circular"


def pad_around(
    input: torch.Tensor, pad: Sequence[int], mode: str = "circular", value: float | None = None
) -> torch.Tensor:
    """What torch's `pad` gives, contiguous as its result. Left to torch: what cuts, what is not known to go round once
    at most, and what torch refuses (other ranks, odd numbers of sides, a value)."""
    sides = list(zip(pad[::2], pad[1::2], strict=False))
    spatial = input.dim() - 2
    if value or len(pad) != 2 * len(sides) or len(sides) not in (spatial, spatial + 1):
        return _pad(input, pad, mode, value)
    if not all(_is_once_around(input.shape[-1 - k], *side) for k, side in enumerate(sides)):
        return _pad(input, pad, mode, value)
    result = input
    for k, (left, right) in enumerate(sides):
        dim, size = input.dim() - 1 - k, input.shape[-1 - k]
        before = [result.narrow(dim, size - left, left)] if left else []
        after = [result.narrow(dim, 0, right)] if right else []
        result = torch.cat([*before, result, *after], dim)
    return result.contiguous()


def _is_once_around(size: Any, left: Any, right: Any) -> bool:
    if not (isinstance(left, int) and isinstance(right, int) and min(left, right) >= 0):
        return False
    return statically_known_true(size >= max(left, right))
