"""Masks and encodings of positions, whose integers are held in 32 bits: as eager computes them, in vectors of each
instruction set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu import config
from inductor_cpu.targets.cpu import target_for
from tests.e2e.support import assert_like_eager, assert_same, compile_counted

Tensor = torch.Tensor
WIDTHS = [bits for bits in (256, 512) if bits <= target_for().isa.bits]


@pytest.fixture(params=WIDTHS)
def simdlen(request: pytest.FixtureRequest) -> Iterator[int]:
    with config.patch({"cpp.simdlen": request.param}):
        yield request.param


def masks(x: Tensor, lengths: Tensor, few: Tensor) -> list[Tensor]:
    """Causal, triangular and windowed masks, padding, and borders of an image."""
    rows, columns = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[2])
    return [
        x + torch.where(rows >= columns, 0.0, float("-inf")).to(x.dtype),
        x.tril(),
        x.tril(-3),
        x.triu(5),
        x.masked_fill((rows - columns).abs() >= 7, -1e4),
        torch.where(columns < lengths[:, None, None], x, 0.0),
        torch.where(columns < few[:, None, None], x, 0.0),
        (columns - 2**31 + x.shape[2] < lengths[:, None]) & (columns >= 3),
        torch.where((columns % 7 < 3) ^ (columns // 16 == 1), x, 1.0),
        F.pad(x, (2, 3, 1, 0), value=2.0),
        (columns + (2**31 - 40)) * 2 > 2**32 + columns,
    ]


def encodings(x: Tensor) -> list[Tensor]:
    """Numbers made of positions."""
    rows, columns = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[2])
    distance = rows - columns
    return [
        x - distance.abs().to(x.dtype) * 0.5,
        distance.clamp(-8, 8).float() / 3,
        (columns * 16_777_217).float(),  # more digits than a float has
        (columns * 50_000_001).to(torch.bfloat16),
        (columns * 70_000_000 * distance.sign()).double(),
        (columns * 5 // 3 - 7).to(torch.int8),
        torch.where(distance < 0, distance * -2, distance + 1).to(torch.int32),
        (columns + 0).to(torch.float16) + (rows * 2 + 1).to(torch.float16),
    ]


def sinusoids(x: Tensor) -> Tensor:
    place, step = torch.arange(x.shape[1]).to(x.dtype)[:, None], torch.arange(0, x.shape[2], 2).to(x.dtype)
    angle = place * torch.exp(step * (-9.2 / x.shape[2]))
    return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_masks_of_positions_are_eagers(dtype: torch.dtype, simdlen: int) -> None:
    x, lengths = torch.randn(3, 37, 45).to(dtype), torch.tensor([45, 3, 0])
    assert_like_eager(masks, x, lengths, lengths.int(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_numbers_made_of_positions_are_eagers(dtype: torch.dtype, simdlen: int) -> None:
    assert_like_eager(encodings, torch.randn(3, 37, 45).to(dtype), rtol=0, atol=0)


def test_sinusoids_of_positions_are_as_near_to_float64_as_those_of_eager(simdlen: int) -> None:
    x = torch.zeros(2, 50, 64)
    exact = sinusoids(x.double())
    compiled, _ = compile_counted(sinusoids)
    worst = (sinusoids(x).double() - exact).abs().max()
    assert (compiled(x).double() - exact).abs().max() <= 1.5 * worst


def test_masks_are_eagers_for_sizes_that_change(simdlen: int) -> None:
    compiled, reports = compile_counted(masks, dynamic=True)
    for rows, columns in ((37, 45), (20, 64), (5, 9)):
        x, lengths = torch.randn(3, rows, columns), torch.tensor([columns, 3, 0])
        assert_same(compiled(x, lengths, lengths.int()), masks(x, lengths, lengths.int()), rtol=0, atol=0)
    assert len(reports) == 1
