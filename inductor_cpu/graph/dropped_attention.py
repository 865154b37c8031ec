"""scaled_dot_product_attention with dropout becomes an operator of ours, before the graph is differentiated.

torch spells it out otherwise, forward and backward: products, softmax and dropout, with the matrix of scores in memory.

scaled_dot_product_attention(q, k, v, mask, p)
    ->  kept = empty(batch, heads, rows, keys).bernoulli_(1 - p);  icpu.attention(q, k, v, mask, ..., kept, 1 - p)

The draw is that of eager's dropout, element for element, so that the same numbers drop the same weights. The calls in
Dynamo's graph get another function; it runs, and decides, while AOTAutograd traces the graph.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from inductor_cpu.graph.attention import AttentionChoice
from inductor_cpu.ir.operators import ATTENTION

log = logging.getLogger("inductor_cpu.graph")

#: Pairs of a dtype and the kernel that computes its attention.
Kernels = tuple[tuple[torch.dtype, str], ...]

_attention = functional.scaled_dot_product_attention


def drop_in_attention(gm: fx.GraphModule, choose: AttentionChoice) -> None:
    """Give the calls of Dynamo's graph `gm` that may drop weights of attention functions that use kernels of ours."""
    functions: dict[Any, Callable[..., Any]] = {
        _attention: attend,
        functional.multi_head_attention_forward: attend_with_heads,
    }
    calls = [n for n in gm.graph.nodes if n.op == "call_function" and n.target in functions and _may_drop(n)]
    if not calls:
        return
    choices = ((dtype, choose(dtype)[0]) for dtype in (torch.float32, torch.bfloat16, torch.float16))
    kernels: Kernels = tuple((dtype, kernel) for dtype, kernel in choices if kernel is not None)
    for node in calls:
        node.kwargs = {**node.kwargs, "kernels": kernels}
        node.target = functions[node.target]
    gm.recompile()


def _may_drop(node: fx.Node) -> bool:
    """Whether a call has a probability of dropping that is not known to be 0."""
    place = 4 if node.target is _attention else 10
    probability = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)
    return bool(probability != 0.0) and node.kwargs.get("training", True) is not False


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kernels: Kernels,
) -> torch.Tensor:
    """scaled_dot_product_attention."""
    converts = torch.is_autocast_enabled("cpu") and torch.float64 not in (query.dtype, key.dtype, value.dtype)
    dtype = torch.get_autocast_dtype("cpu") if converts else query.dtype
    kernel = dict(kernels).get(dtype)
    if dropout_p != 0.0 and kernel is not None:
        q, k, v = (x.to(dtype) for x in (query, key, value))
        mask = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.to(dtype)
        unit = 1 / math.sqrt(q.shape[-1]) if scale is None and isinstance(q.shape[-1], int) else scale
        reason = _why_not(q, k, v, mask, dropout_p, is_causal, unit, enable_gqa)
        if reason is None:
            kept = torch.empty((*q.shape[:3], k.shape[2]), dtype=torch.bool).bernoulli_(1 - dropout_p)
            dropping = kept, 1 - dropout_p
            result = ATTENTION(q, k, v, mask, unit, is_causal, False, kernel, *dropping, dense=True)[0]
            assert isinstance(result, torch.Tensor)
            return result
        log.info("attention with dropout is spelled out: %s", reason)
    return _attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def attend_with_heads(*args: Any, kernels: Kernels, **kwargs: Any) -> Any:
    """multi_head_attention_forward, which Dynamo does not look into: the function itself, with another attention among
    its globals, and the copy, which it hands to modes of torch functions."""
    own = functional.multi_head_attention_forward
    names = {**own.__globals__, "scaled_dot_product_attention": functools.partial(attend, kernels=kernels)}
    copy = FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)
    names[own.__name__] = copy
    return copy(*args, **kwargs)


def _why_not(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: object,
    causal: object,
    scale: object,
    shared: bool,
) -> str | None:
    """Why the kernels do not compute a call."""
    if not isinstance(dropout, float) or not 0 < dropout < 1 or not isinstance(causal, bool):
        return "its settings are known at run time only, or it drops everything"
    if any(x.dim() != 4 for x in (q, k, v)) or not isinstance(scale, (int, float)):
        return "its operands have no four dimensions, or its scale depends on a size"
    if any(x.numel() == 0 for x in (q, k, v)):
        return "it has no elements"
    if k.shape[:3] != v.shape[:3] or k.shape[0] != q.shape[0] or (k.shape[1] != q.shape[1] and not shared):
        return "its operands are broadcast"
    if mask is not None and (causal or mask.requires_grad or mask.dim() > 4):
        return "its mask has a gradient, or is one of two"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func transforms it"
    return None
