"""What a kernel has to move and to compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from inductor_cpu.schedule.roofline import Estimate, estimate

from .harness import kernels, scheduled

Tensor = torch.Tensor
KIB = 1024


def estimated(fn: Callable[..., Any], *inputs: Tensor) -> Estimate:
    (kernel,) = kernels(scheduled(fn, *inputs))
    return estimate(kernel)


def test_a_chain_moves_its_operands_and_its_result_once() -> None:
    found = estimated(lambda x, y: (x + y) * x, torch.randn(32, 64), torch.randn(32, 64))
    assert (found.read, found.written) == (16 * KIB, 8 * KIB)
    assert found.bound(16) == "memory"


def test_what_all_rows_share_counts_once() -> None:
    found = estimated(lambda x, w: x * w, torch.randn(32, 64), torch.randn(64))
    assert (found.read, found.written) == (8 * KIB + 256, 8 * KIB)


def test_a_row_that_two_phases_read_counts_once() -> None:
    found = estimated(lambda x: torch.softmax(x, -1), torch.randn(32, 64))
    assert (found.read, found.written) == (8 * KIB, 8 * KIB)


def test_rows_by_index_count_as_often_as_they_are_read() -> None:
    found = estimated(lambda x, i: x[i] + 1, torch.randn(5, 64), torch.randint(0, 5, (16,)))
    assert (found.read, found.written) == (4 * KIB + 128, 4 * KIB)


def test_long_arithmetic_bounds_narrow_vectors_first() -> None:
    found = estimated(lambda x: torch.exp(torch.sin(x)) / (1 + torch.tanh(x)), torch.randn(64, 64))
    assert found.bound(0) == found.bound(8) == "arithmetic"


@pytest.mark.parametrize(("fn", "word"), [(lambda x: x + 1, "memory"), (lambda x: torch.exp(x).sin().tan(), "arith")])
def test_the_notes_of_a_schedule_tell_the_bound(fn: Callable[..., Any], word: str) -> None:
    (line,) = (line for line in scheduled(fn, torch.randn(64, 64)).notes if "adds a byte" in line)
    assert "16.0 KiB in, 16.0 KiB out" in line
    assert word in line
