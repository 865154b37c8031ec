"""Sizes that floats decide: few bits in the factor are integer arithmetic, anything else is computed by a call."""

from __future__ import annotations

import math

import pytest
import torch

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.nodes import Extern, Program
from tests.lower.harness import lower


def calls(program: Program) -> list[str]:
    return [str(node.target) for node in program.nodes if isinstance(node, Extern)]


@pytest.mark.parametrize(
    ("factor", "computed"), [(0.5, 0), (1.5, 0), (2.0, 0), (0.3125, 0), (0.7, 1), (1 / 3, 1), (1e9 + 0.5, 1)]
)
def test_length_that_is_a_fraction_of_a_size(factor: float, computed: int) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + torch.arange(math.trunc(x.shape[0] * factor) % 1000)

    program = lower(fn, torch.ones(6), dynamic=True)
    assert len([call for call in calls(program) if call.startswith("size ")]) == computed
    for rows in (6, 5, 9, 30, 1000):
        x = torch.ones(rows)
        torch.testing.assert_close(run(program, [x])[0], fn(x))


@pytest.mark.parametrize("divisor", [2, 3, 7, 49])
def test_length_that_is_a_quotient(divisor: int) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(math.trunc(x.shape[0] / divisor)) + 1

    program = lower(fn, torch.ones(6), dynamic=True)
    assert not [call for call in calls(program) if call.startswith("size ")]
    for rows in (6, 48, 49, 50, 343):
        torch.testing.assert_close(run(program, [torch.ones(rows)])[0], fn(torch.ones(rows)))


def test_root_and_rounding_of_a_size_are_calls_made_once() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = math.trunc(x.shape[0] ** 0.5)
        return x.new_zeros(n + 1) + n, x.new_zeros(n, round(x.shape[0] / 2)) - n

    program = lower(fn, torch.ones(6), dynamic=True)
    assert len(calls(program)) == len(set(calls(program))) == 2
    for rows in (6, 5, 7, 16, 99):
        for have, want in zip(run(program, [torch.ones(rows)]), fn(torch.ones(rows)), strict=True):
            torch.testing.assert_close(have, want)
