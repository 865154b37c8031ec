"""Attention becomes one operator that a kernel of our own computes, where there is one.

_scaled_dot_product_flash_attention_for_cpu(q, k, v)  ->  icpu.attention(q, k, v)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import args_of, aten, fake
from inductor_cpu.ir.operators import ATTENTION

#: dtype -> (the kernel that should compute attention or None, the reason).
AttentionChoice = Callable[[torch.dtype], tuple[str | None, str]]

_FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default


def use_attention_kernels(gm: fx.GraphModule, choose: AttentionChoice) -> list[str]:
    """Replace attention by the operator; returns a line for each kind that stays ATen's, with the reason."""
    kept: dict[str, int] = {}
    for node in gm.graph.find_nodes(op="call_function", target=_FLASH):
        reason = _replace_flash(node, choose)
        if reason is not None:
            kept[reason] = kept.get(reason, 0) + 1
    return [f"{count} x attention stays ATen's: {reason}" for reason, count in kept.items()]


def _replace_flash(node: fx.Node, choose: AttentionChoice) -> str | None:
    """Put our operator in the place of ATen's; or the reason why not."""
    arguments = _arguments(node)
    q, k, v = args_of(node)[:3]
    if arguments["dropout_p"] != 0.0:
        return "it drops weights at random"
    scale = arguments["scale"]
    if scale is None:
        depth = fake(q).shape[-1]
        scale = 1 / math.sqrt(depth) if isinstance(depth, int) and depth > 0 else None
    if not isinstance(scale, (int, float)):
        return "its scale depends on a size"
    kernel, reason = choose(fake(q).dtype)
    if kernel is None:
        return reason
    node.args = (q, k, v, arguments["attn_mask"], float(scale), bool(arguments["is_causal"]), False, kernel)
    node.kwargs = {}
    node.target = ATTENTION
    return None


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by name, with defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    spec = node.target._schema.arguments
    found = {argument.name: argument.default_value for argument in spec}
    return found | dict(zip([a.name for a in spec], args_of(node), strict=False)) | dict(node.kwargs)
