"""Attention and its gradients become operators that kernels of our own compute, where there are some.

_scaled_dot_product_flash_attention_for_cpu(q, k, v)  ->  icpu.attention(q, k, v)
_scaled_dot_product_flash_attention_for_cpu_backward(grad_out, q, k, v, out, log_sums)
    ->  icpu.attention_backward(grad_out, q, k, v, out, log_sums)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import args_of, aten, fake
from inductor_cpu.ir.operators import ATTENTION, ATTENTION_BACKWARD

#: dtype -> (the kernel that should compute attention or None, the reason).
AttentionChoice = Callable[[torch.dtype], tuple[str | None, str]]

#: ATen's operator -> (ours, how many tensors it begins with, what else ours takes before the name of its kernel: that
#: rows without any key are 0).
_OURS: dict[Any, tuple[Any, int, tuple[bool, ...]]] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: (ATTENTION, 3, (False,)),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (ATTENTION_BACKWARD, 6, ()),
}


def use_attention_kernels(gm: fx.GraphModule, choose: AttentionChoice) -> list[str]:
    """Replace attention by the operators; returns a line for each kind that stays ATen's, with the reason."""
    kept: dict[str, int] = {}
    for target in _OURS:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            reason = _replace_flash(node, choose)
            if reason is not None:
                kept[reason] = kept.get(reason, 0) + 1
    return [f"{count} x attention stays ATen's: {reason}" for reason, count in kept.items()]


def _replace_flash(node: fx.Node, choose: AttentionChoice) -> str | None:
    """Put our operator in the place of ATen's; or the reason why not."""
    arguments = _arguments(node)
    q = arguments["query"]
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
    ours, tensors, flags = _OURS[node.target]
    given = (*args_of(node)[:tensors], arguments["attn_mask"], float(scale), bool(arguments["is_causal"]))
    node.args = (*given, *flags, kernel)
    node.kwargs = {}
    node.target = ours
    return None


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by name, with defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    spec = node.target._schema.arguments
    found = {argument.name: argument.default_value for argument in spec}
    return found | dict(zip([a.name for a in spec], args_of(node), strict=False)) | dict(node.kwargs)
