"""Attention as it is computed for the bound of its gradients: with noise where implementations add in other orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor

#: How rows call it, and how a noisy run does.
PLAIN, NOISY = "F.scaled_dot_product_attention(", "noisy_attention(noise, "


def noisy_attention(
    noise: Callable[[Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any
) -> Tensor:
    """The same values as eager's, and gradients of queries and keys with noise.

    The gradient of a key's weight w is w * (grad @ v - grad @ out): two sums of products, each rounded. Where a key has
    all the weight they are equal but for that, and eager's run shows no difference if it adds both in one order. So
    here the second one has noise: w is also the gradient of the logarithm of the sum of all weights."""
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, **options)
    scores = _scores(q, k, attn_mask, **options)
    largest = torch.finfo(scores.dtype).max
    total = scores.clamp(-largest, largest).logsumexp(-1, keepdim=True)
    right = out.detach()
    return out + (noise(right) - right) * (total - total.detach()).to(out.dtype)


def _scores(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Of every query and key."""
    if enable_gqa:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    if scale is None:
        scale = q.shape[-1] ** -0.5 if q.shape[-1] else math.inf
    scores = q @ k.mT * scale
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores
