"""Mean and variance of long columns, block by block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.lower import block_moments
from tests.lower.accuracy import check_accurate
from tests.lower.harness import lower

aten = torch.ops.aten
EPS = 1e-5


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all operands were large."""
    monkeypatch.setattr(block_moments, "LEAST_BYTES", 0)


def normalized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, EPS)


def image(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape) * 2 + 3).to(dtype).contiguous(memory_format=torch.channels_last)


def moments(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return normalized(x)[1:]


def reductions(x: torch.Tensor, f: Callable[[torch.Tensor], object] = normalized) -> list[LoopNest]:
    return [n for n in lower(f, x).nodes if isinstance(n, LoopNest) and n.reduce_dims]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 24, 14, 14), (3, 5, 7, 24), (2, 4, 1, 300), (130, 8, 1, 2), (40, 3, 2, 2)])
def test_moments_of_blocks_are_those_of_the_columns(
    everywhere: None, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = image(*shape, dtype=dtype)
    assert len(reductions(x)) == 5  # three of blocks, two of what they gave
    check_accurate(normalized, x)


def test_rows_with_gaps_and_other_orders_of_pixels(everywhere: None) -> None:
    wide = image(2, 24, 16, 20)
    for x in (wide[:, :17, :, 1:], wide.transpose(2, 3), wide[1:, :, ::2]):
        assert len(reductions(x, moments)) == 5
        check_accurate(moments, x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 8, 16, 16),
        lambda: image(3, 8, 1, 4),
        lambda: image(2, 8, 1, 149),
        lambda: torch.randn(1, 8, 1, 1).expand(2, 8, 16, 16),
    ],
    ids=["channels first", "few rows", "a prime number of rows", "expanded"],
)
def test_other_columns_are_folded_whole(everywhere: None, make: Callable[[], torch.Tensor]) -> None:
    x = make()
    assert len(reductions(x)) == 2
    check_accurate(normalized, x)


def test_small_images_are_folded_whole() -> None:
    assert len(reductions(image(2, 24, 14, 14))) == 2


def test_variance_far_from_zero_loses_no_digits(everywhere: None) -> None:
    x = (torch.randn(2, 16, 32, 32) + 3000).contiguous(memory_format=torch.channels_last)
    check_accurate(normalized, x)
