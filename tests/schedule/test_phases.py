"""Which values of a row a kernel keeps for its later phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from inductor_cpu.schedule.schedule import schedule_program
from tests.lower.harness import lower

from .harness import CORES, LANES, kernels

Tensor = torch.Tensor
MIB = 1 << 20


def kept(fn: Callable[..., Any], x: Tensor, cache: int) -> int:
    """How many values the only kernel of a function keeps, for a second-level cache of so many bytes."""
    schedule = schedule_program(lower(fn, x), LANES, CORES, cache=cache)
    (kernel,) = kernels(schedule)
    return len(kernel.kept)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


@pytest.mark.parametrize(
    ("columns", "cache", "expected"),
    [(1000, 0, 1), (16384, 0, 1), (16400, MIB // 4, 0), (32000, 2 * MIB, 1), (32000, MIB // 4, 0)],
)
def test_exponentials_of_a_row_are_kept_where_a_cache_holds_them(columns: int, cache: int, expected: int) -> None:
    assert kept(softmax, torch.randn(4, columns), cache) == expected


def test_rows_of_a_block_of_columns_count_with_all_its_lanes() -> None:
    x = torch.randn(2048, 64)
    assert kept(lambda x: torch.softmax(x, 0), x, MIB // 4) == 0
    assert kept(lambda x: torch.softmax(x, 0), x, MIB) == 1


def test_what_is_cheap_to_compute_again_is_kept_in_short_rows_only() -> None:
    def normalized(x: Tensor) -> Tensor:
        y = x / 3.7
        return y - y.sum(-1, keepdim=True)

    assert kept(normalized, torch.randn(4, 1000), 2 * MIB) == 1
    assert kept(normalized, torch.randn(4, 32000), 2 * MIB) == 0


def test_a_short_chain_is_kept_where_its_ops_are_rounded() -> None:
    def masked(x: Tensor) -> Tensor:
        return torch.softmax(x * 0.3 + 1.5, -1)

    assert kept(masked, torch.randn(4, 384, dtype=torch.bfloat16), 2 * MIB) == 2
    assert kept(masked, torch.randn(4, 384), 2 * MIB) == 1
