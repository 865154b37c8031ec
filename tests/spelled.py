"""Attention as programs spell it out, with operands as models have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
Function = Any


def operands(dtype: torch.dtype = torch.float32, heads: int = 3, rows: int = 40, keys: int = 57) -> list[Tensor]:
    """Queries, keys and values as a model has them, (batch, heads, rows, columns), not contiguous."""
    sizes = (rows, heads, 32), (keys, heads, 32), (keys, heads, 24)
    return [torch.randn(2, *size).to(dtype).transpose(1, 2).requires_grad_() for size in sizes]


def outcomes(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The result and the gradients of all inputs that have one, from one seed."""
    torch.manual_seed(4)
    out = function(*inputs)
    marks = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    return [out, *torch.autograd.grad(out, [x for x in inputs if x.requires_grad], marks)]


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])


def weights_of(scores: Tensor) -> Tensor:
    """As models make them of low precision."""
    wide = torch.float32 if scores.dtype != torch.float64 else None
    return F.softmax(scores, dim=-1, dtype=wide).to(scores.dtype)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores_of(q, k).softmax(-1) @ v


def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (weights_of(scores_of(q, k) + mask) @ v).transpose(1, 2).contiguous()


def dropped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (F.dropout(weights_of(scores_of(q, k) + mask), 0.2) @ v).transpose(1, 2).flatten(2)


def hidden(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return scores_of(q, k).masked_fill(mask == 0, -math.inf).softmax(-1) @ v


def hidden_by_a_number(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask != 0, scores_of(q, k), -1e4).softmax(-1) @ v


def in_three_dimensions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(torch.bmm(q[0] * 0.3, k[0].mT).softmax(2), v[0])
