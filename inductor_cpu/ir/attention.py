"""Attention and its gradients: the table of kernels, and what they mean in plain torch: the reference for the kernels,
and what graphs use that run by operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
        AttentionKernel(
            "dot_bf16", "dot_bf16.h", "DotBf16", frozenset({torch.bfloat16}), frozenset({"avx512"}), "dot_bf16"
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
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    in_parts: bool = False,
    dense: bool = False,
    become: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q @ k^T * scale + mask) @ v, in float32: (batch, heads, rows, columns) of q's dtype, and the logarithms
    of the softmax's divisors, float32 (batch, heads, rows), or in_parts (batch, heads, rows, 2): numbers whose sums
    they are. The operands are those of `ir.nodes.Attention`; the mask need not be expanded. kept: which weights are not
    dropped, with probability `keep`. become: from scores to what the softmax is of; the logarithm of a row without keys
    then is -infinity."""
    groups = q.shape[1] // max(k.shape[1], 1)
    k, v = (x.float().repeat_interleave(groups, 1) for x in (k, v))
    scores = q.float() @ k.transpose(2, 3) * scale
    scores = _masked(scores if become is None else become(scores), mask, causal, fill)
    weights, base = scores.softmax(-1), scores.new_zeros(scores.shape[:3])
    if in_parts and scores.shape[3] > 0:
        base = scores.amax(-1)
    parts = [base, (scores - base.unsqueeze(-1)).logsumexp(-1)]
    if not nan_rows:
        empty = (scores == -math.inf).all(-1)
        weights = weights.masked_fill(empty.unsqueeze(-1), 0.0)
        parts = [x.masked_fill(empty, 0.0) for x in parts] if become is None else parts
    logs = torch.stack(parts, -1) if in_parts else parts[0] + parts[1]
    out = (weights if kept is None else weights * kept / keep) @ v
    place = q.new_empty(out.shape) if dense else by_rows(out.shape, q)
    return place.copy_(out), logs


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, causal: bool, fill: float | None) -> torch.Tensor:
    """Scores under a mask, of a program or of causal attention."""
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[2:], dtype=torch.bool).tril(), -math.inf)
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -math.inf if fill is None else fill)
    return scores + mask.float()


def attend_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    log_sums: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    dense: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k, v and of a mask that is added, (batch, heads, rows, keys), from that of `out`, in float32,
    in their dtype; out, log_sums: what `attend` gave.

    Source: Dao et al., FlashAttention, 2022, appendix B.4."""
    kv_heads = k.shape[1]
    groups = q.shape[1] // max(kv_heads, 1)
    wide_k, wide_v = (x.float().repeat_interleave(groups, 1) for x in (k, v))
    grad_out, q, out = grad_out.float(), q.float(), out.float()
    scores = _masked(q @ wide_k.transpose(2, 3) * scale, mask, causal, fill)
    for part in log_sums.unbind(-1) if log_sums.dim() == 4 else (log_sums,):
        scores = scores - part.unsqueeze(-1)
    weights = scores.exp()
    noise = torch.ones(()) if kept is None else kept / keep
    products = grad_out @ wide_v.transpose(2, 3) * noise
    slopes = weights * (products - (grad_out * out).sum(-1, keepdim=True))
    if scores.shape[3] == 1:  # the weight of a single key is 1, whatever its score
        slopes = slopes * 0.0
    elif causal:
        slopes[:, :, :1] *= 0.0
    if mask is not None and mask.dtype == torch.bool:
        slopes = slopes.masked_fill(~mask, 0.0)
    grads = slopes @ wide_k * scale, slopes.transpose(2, 3) @ q * scale, (weights * noise).transpose(2, 3) @ grad_out
    sums = (grads[0], *(x.unflatten(1, (kv_heads, groups)).sum(2) for x in grads[1:]))
    places = (k.new_empty(x.shape) if dense else by_rows(x.shape, k) for x in sums)
    q_grad, k_grad, v_grad = (place.copy_(x) for place, x in zip(places, sums, strict=True))
    return q_grad, k_grad, v_grad, slopes.to(k.dtype)


def by_rows(sizes: Sequence[int | torch.SymInt], like: torch.Tensor) -> torch.Tensor:
    """Memory for (batch, heads, rows, columns) where in each row the heads are next to each other."""
    batch, heads, rows, columns = sizes
    return like.new_empty((batch, rows, heads, columns)).transpose(1, 2)
