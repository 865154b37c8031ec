"""Attention: the table of its kernels, and what it means in plain torch: the reference for the kernels, and what graphs
use that run by operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class AttentionKernel:
    """A way to compute attention. header, code: file in templates/attention with the micro kernel of its two
    products, and its class; dtypes: of queries, keys and values; isas: what it may be compiled for; micro_kernel: the
    row of `MICRO_KERNELS` that must be usable, or None."""

    name: str
    header: str
    code: str
    dtypes: frozenset[torch.dtype]
    isas: frozenset[str]
    micro_kernel: str | None


_FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})

#: The fastest first. The kernel of floats converts what it packs.
ATTENTION_KERNELS: Mapping[str, AttentionKernel] = {
    row.name: row
    for row in (
        AttentionKernel(
            "amx_bf16", "amx_bf16.h", "AmxBf16", frozenset({torch.bfloat16}), frozenset({"avx512"}), "amx_bf16"
        ),
        AttentionKernel("vec_f32", "vec_f32.h", "VecF32", _FLOATS, frozenset({"avx512", "avx2"}), None),
    )
}


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    nan_rows: bool,
    become: Callable[[torch.Tensor], torch.Tensor] = lambda scores: scores,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q @ k^T * scale + mask) @ v, in float32: (batch, heads, rows, columns) of q's dtype, and the logarithms
    of the softmax's divisors, float32 (batch, heads, rows). The operands are those of `ir.nodes.Attention`; the
    mask need not be expanded. become: from scores to what the softmax is of."""
    groups = q.shape[1] // max(k.shape[1], 1)
    k, v = (x.float().repeat_interleave(groups, 1) for x in (k, v))
    scores = become(q.float() @ k.transpose(2, 3) * scale)
    if causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
    weights, logs = scores.softmax(-1), scores.logsumexp(-1)
    if not nan_rows:
        empty = (scores == -math.inf).all(-1)
        weights, logs = weights.masked_fill(empty.unsqueeze(-1), 0.0), logs.masked_fill(empty, 0.0)
    out = weights @ v
    layout = torch.empty(out.shape[0], out.shape[2], out.shape[1], out.shape[3], dtype=q.dtype).transpose(1, 2)
    return layout.copy_(out), logs
