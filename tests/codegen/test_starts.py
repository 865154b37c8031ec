"""Kernels that differ only in where they begin in their buffers."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.codegen.kernel import LANES, generate
from inductor_cpu.codegen.starts import starts
from inductor_cpu.targets.cpu import target_for
from tests.e2e.support import assert_like_eager
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

Tensor = torch.Tensor


def each(x: Tensor) -> list[Tensor]:
    return [piece.softmax(-1) + 1 for piece in x.chunk(20)]


def joined(x: Tensor) -> Tensor:
    return torch.cat([piece.relu() for piece in reversed(x.cumsum(1).split(2))])


def shifted(x: Tensor) -> Tensor:
    x[2:8].mul_(3)
    return torch.nn.functional.pad(x, (0, 0, 3, 2)) + x[4:6].sum()


@pytest.mark.parametrize("function", [each, joined])
def test_pieces_of_a_split_share_one_function(function: object) -> None:
    target = target_for()
    made = kernels(schedule_of(lower(function, torch.randn(40, 9)), LANES[target.isa.name]))  # type: ignore[arg-type]
    pieces = [kernel for kernel in made if any(starts(kernel))]
    assert len(pieces) >= 19
    assert len({generate(kernel, target).symbol for kernel in pieces}) == 1


def test_what_lies_before_the_first_element_is_no_start() -> None:
    (kernel,) = kernels(schedule_of(lower(lambda x: torch.nn.functional.pad(x, (3, 0)), torch.randn(9))))
    assert starts(kernel) == (0,) * len(kernel.args)


@pytest.mark.parametrize("function", [each, joined, shifted])
def test_parts_of_buffers_are_eagers(function: object) -> None:
    assert_like_eager(function, torch.randn(40, 9))  # type: ignore[arg-type]
