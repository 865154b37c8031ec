"""Floats of 8 bits: what eager mode can do with them are loops, the rest calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.ir.ops import FLOAT8
from tests.e2e.support import assert_like_eager

from .harness import check, externs, lower

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = sorted(FLOAT8, key=str)
ROWS = torch.tensor([2, 0, 2])

MOVES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "cast": lambda x, rows: (x.float(), x.bfloat16(), x.to(torch.int32), x.bool()),
    "transpose": lambda x, rows: x.t().contiguous(),
    "concatenation": lambda x, rows: torch.cat([x, x[:1]]),
    "where": lambda x, rows: torch.where(x.float() > 0, x, x.new_zeros(())),
    "pad": lambda x, rows: F.pad(x, (1, 2), value=0.5),
    "roll": lambda x, rows: x.roll(1, 0),
    "index": lambda x, rows: x[rows],
    "embedding": lambda x, rows: F.embedding(rows, x),
    "write": lambda x, rows: x.index_put((rows[:2],), x[:2]),
    "full": lambda x, rows: torch.full_like(x, 1.3),
    "repeat": lambda x, rows: x.repeat(2, 1),
    "flat": lambda x, rows: x.view(-1)[3:].clone(),
}
CASES = [(name, E4M3) for name in MOVES] + [("cast", dtype) for dtype in DTYPES if dtype != E4M3]


def codes(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256).to(torch.uint8).view(dtype).reshape(4, 64)


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_moves_and_casts_are_loops(name: str, dtype: torch.dtype) -> None:
    finite = torch.randn(4, 64).to(dtype)
    assert not externs(lower(MOVES[name], finite, ROWS))
    got, expected = torch.compile(MOVES[name], backend="icpu")(finite, ROWS), MOVES[name](finite, ROWS)
    for ours, theirs in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, expected)), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.float(), theirs.float())


def test_a_copy_keeps_all_bits_of_a_nan() -> None:
    for dtype in DTYPES:
        x = codes(dtype)
        y = torch.compile(lambda x: x.t().contiguous(), backend="icpu")(x)
        assert torch.equal(y.view(torch.uint8), x.t().contiguous().view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quantizing_by_rows_and_back_is_one_chain(dtype: torch.dtype) -> None:
    def quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        limit = torch.finfo(dtype).max
        scale = x.abs().amax(-1, keepdim=True) / limit
        return ((x / scale).clamp(-limit, limit).to(dtype).float() * scale, scale)

    check(quantized, torch.randn(5, 77))
    assert_like_eager(quantized, torch.randn(5, 77))


def test_operators_that_eager_has_and_loops_do_not_are_calls() -> None:
    check(lambda x: x.abs().float(), torch.randn(3, 5).to(E4M3), calls=["abs.default"])


@pytest.mark.parametrize(
    "compute", [lambda x: x + x, lambda x: x.sum(), lambda x: -x, lambda x: torch.full_like(x, 500.0)]
)
def test_what_eager_refuses_stays_an_error(compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(3, 5).to(E4M3)
    with pytest.raises((RuntimeError, NotImplementedError)):
        compute(x)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.compile(compute, backend="icpu")(x)


def test_a_cache_of_8_bits_is_written_where_it_lies() -> None:
    def update(cache: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache[:, at] = new.to(E5M2)
        return cache.float().sum(0)

    cache, at, new = torch.zeros(2, 8, 16, dtype=E5M2), torch.tensor([3, 4]), torch.randn(2, 2, 16)
    ours, theirs = cache.clone(), cache.clone()
    got = torch.compile(update, backend="icpu")(ours, at, new)
    assert torch.equal(got, update(theirs, at, new))
    assert torch.equal(ours.float(), theirs.float())
