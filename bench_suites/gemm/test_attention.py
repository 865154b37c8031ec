"""Attention alone, against torch's: whole sequences, and one query against a cache of keys."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from bench_suites.gemm.contest import Row, compete, ours
from bench_suites.gemm.machine import its_peak, read
from bench_suites.suites.attention import DECODE, DEPTH, HEADS, LENGTHS

#: Times faster than torch's, by length.
BARS = {197: 3.0, 4096: 1.5}
DECODE_SHARE = 0.9
MASKED_LENGTHS = (197, 1024)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Attention(nn.Module):
    """Heads share keys where there are fewer of them."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(batch, heads, rows, depth). mask: what is added to the scores, or which of them count."""
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal, enable_gqa=grouped)


def _mask(kind: str, length: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Which keys a query may see, all of them of its own half; or a number for each pair and head."""
    if kind == "boolean":
        half = torch.arange(length) * 2 // length
        return half[:, None] == half
    return torch.randn(1, HEADS, length, length).to(dtype) if kind == "additive" else None


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_sequence(benchmark: Any, rows: list[Row], threads: int, kind: str, length: int) -> None:
    """All queries of a sequence."""
    limit = its_peak(kind, threads)
    q, k, v = (torch.randn(1, HEADS, length, DEPTH).to(DTYPES[kind]) for _ in range(3))
    module = Attention()
    calls = {"icpu": ours(module, q, k, v), "torch": lambda: module(q, k, v)}
    work = 4.0 * HEADS * length * length * DEPTH
    row = compete(benchmark, Row(f"attention {kind}", f"{HEADS} x {length} x {DEPTH}", threads, work, limit), calls)
    if kind == "bf16" and length in BARS:
        row.bar("times torch", row.times("torch"), BARS[length])
    rows.append(row)


@pytest.mark.parametrize("length", MASKED_LENGTHS)
@pytest.mark.parametrize("mask", ["causal", "boolean", "additive"])
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_masked(benchmark: Any, rows: list[Row], threads: int, kind: str, mask: str, length: int) -> None:
    """Scores that do not count are computed, too, as far as the work of a row goes."""
    limit = its_peak(kind, threads)
    q, k, v = (torch.randn(1, HEADS, length, DEPTH).to(DTYPES[kind]) for _ in range(3))
    module, added = Attention(mask == "causal"), _mask(mask, length, DTYPES[kind])
    calls = {"icpu": ours(module, q, k, v, added), "torch": lambda: module(q, k, v, added)}
    work = 4.0 * HEADS * length * length * DEPTH
    rows.append(
        compete(
            benchmark, Row(f"attention {kind}", f"{HEADS} x {length} x {DEPTH} {mask}", threads, work, limit), calls
        )
    )


@pytest.mark.parametrize("length", MASKED_LENGTHS)
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("kind", DTYPES)
def test_backward(benchmark: Any, rows: list[Row], threads: int, kind: str, causal: bool, length: int) -> None:
    """Gradients of queries, keys and values: five products of all scores, half of them where they are causal."""
    limit = its_peak(kind, threads)
    inputs = [torch.randn(1, HEADS, length, DEPTH).to(DTYPES[kind]).requires_grad_() for _ in range(3)]
    grad, module = torch.randn(1, HEADS, length, DEPTH).to(DTYPES[kind]), Attention(causal)
    torch._dynamo.reset()
    results = {"icpu": torch.compile(module, backend="icpu")(*inputs), "torch": module(*inputs)}
    calls = {
        name: functools.partial(torch.autograd.grad, result, inputs, grad, retain_graph=True)
        for name, result in results.items()
    }
    work = 10.0 * HEADS * length * length * DEPTH / (2 if causal else 1)
    shape = f"{HEADS} x {length} x {DEPTH}{' causal' * causal}"
    rows.append(compete(benchmark, Row(f"attention backward {kind}", shape, threads, work, limit), calls))


def _soft_cap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 20 * torch.tanh(score / 20)


def _slope(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + (h + 1) * 0.01 * (k - q)


#: A function of scores, and one of which of them count.
FLEXIBLE: dict[str, tuple[Any, Any]] = {
    "unchanged": (None, None),
    "slope": (_slope, None),
    "causal": (None, lambda b, h, q, k: q >= k),
    "capped causal": (_soft_cap, lambda b, h, q, k: q >= k),
    "window": (None, lambda b, h, q, k: (q - k).abs() < 64),
}


@pytest.mark.parametrize("length", MASKED_LENGTHS)
@pytest.mark.parametrize("name", FLEXIBLE)
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_flexible(benchmark: Any, rows: list[Row], threads: int, kind: str, name: str, length: int) -> None:
    """flex_attention against stock Inductor's; the share of the limit is that of all scores, also those that no list of
    blocks has."""
    limit = its_peak(kind, threads)
    score, mask = FLEXIBLE[name]
    blocks = None if mask is None else create_block_mask(mask, None, None, length, length, device="cpu")
    q, k, v = (torch.randn(1, HEADS, length, DEPTH).to(DTYPES[kind]) for _ in range(3))
    torch._dynamo.reset()
    compiled = {
        name: torch.compile(functools.partial(flex_attention, score_mod=score, block_mask=blocks), backend=backend)
        for name, backend in (("icpu", "icpu"), ("stock", "inductor"))
    }
    calls = {name: functools.partial(call, q, k, v) for name, call in compiled.items()}
    work = 4.0 * HEADS * length * length * DEPTH
    row = Row(f"flex attention {kind}", f"{HEADS} x {length} x {DEPTH} {name}", threads, work, limit)
    rows.append(compete(benchmark, row, calls))


@pytest.mark.parametrize("case", DECODE, ids=lambda c: "x".join(map(str, c)))
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_decode(benchmark: Any, rows: list[Row], threads: int, kind: str, case: tuple[int, int, int, int]) -> None:
    """One query a head; the limit is how fast the bytes of keys and values are read."""
    heads, kv_heads, keys, depth = case
    q = torch.randn(1, heads, 1, depth).to(DTYPES[kind])
    k, v = (torch.randn(1, kv_heads, keys, depth).to(DTYPES[kind]) for _ in range(2))
    module = Attention()
    calls = {"icpu": ours(module, q, k, v), "torch": lambda: module(q, k, v), "read": lambda: read(threads, [k, v])}
    name = f"{heads}/{kv_heads} x {keys} x {depth}"
    row = compete(benchmark, Row(f"decode {kind}", name, threads, float(k.nbytes + v.nbytes)), calls)
    row.bar("share", row.share, DECODE_SHARE)
    rows.append(row)
