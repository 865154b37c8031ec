"""Attention alone: the heads of a base-size transformer over 128 to 4096 tokens, plain, causal and with a mask."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from bench_suites.suites.case import Case, Request, Row, Suite

LENGTHS: tuple[int, ...] = (128, 197, 512, 1024, 4096)

HEADS, DEPTH = 12, 64

#: One query against a cache, for `bench_suites/gemm`: heads, heads of keys, keys, depth.
DECODE: tuple[tuple[int, int, int, int], ...] = (
    (HEADS, HEADS, 128, DEPTH),
    (HEADS, HEADS, 1024, DEPTH),
    (HEADS, HEADS, 4096, DEPTH),
    (HEADS, HEADS, 16384, DEPTH),
    (32, 8, 8192, 128),
)


class Attention(nn.Module):
    """Attention as models call it: queries, keys and values are parts of one (batch, rows, 3 * features) tensor."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """(batch, rows, features). mask: added to the scores."""
        q, k, v = (part.unflatten(2, (-1, DEPTH)).transpose(1, 2) for part in x.chunk(3, 2))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return out.transpose(1, 2).flatten(2)


def _build(length: int, kind: str, request: Request) -> Case:
    length, heads = (8, 2) if request.tiny else (length, HEADS)
    inputs = [torch.randn(request.batch or 1, length, 3 * heads * DEPTH)]
    if kind == "masked":
        inputs.append(torch.randn(1, heads, length, length))
    return Case(Attention(kind == "causal"), tuple(inputs))


KINDS: tuple[tuple[str, tuple[int, ...]], ...] = (("plain", LENGTHS), ("causal", (1024, 4096)), ("masked", (197, 1024)))

ATTENTION = Suite(
    "attention",
    tuple(
        Row(f"attention_{kind}_{length}", functools.partial(_build, length, kind), modes=("inference",))
        for kind, lengths in KINDS
        for length in lengths
    ),
    inference=1e-4,
    training=1e-4,
    low_precision=1e-3,
)
