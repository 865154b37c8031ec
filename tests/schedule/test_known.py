"""Indices that are arithmetic of positions: loads at affine addresses, without checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.loop_nest import Load, Scalar
from inductor_cpu.ir.ops import INDEX_CHECKS
from tests.lower.harness import lower
from tests.schedule.harness import check_program, kernels, run_schedule, schedule_of

Tensor = torch.Tensor
PLACES = torch.arange


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, PLACES(30)[:, None] + PLACES(3)],
        lambda x: x[:, 31 - PLACES(32)] * 2,
        lambda x: x[:, 3 * PLACES(10) + 2],
        lambda x: torch.nn.functional.unfold(x.view(1, 2, 8, 16), 3, padding=1, stride=2),
    ],
    ids=["windows", "reversed", "apart", "unfold"],
)
def test_arithmetic_of_positions_is_an_address(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(8, 32)
    check_program(lower(function, x), [x])
    body = [instr for kernel in kernels(schedule_of(lower(function, x))) for instr in kernel.body]
    assert not [instr for instr in body if isinstance(instr, Scalar) and instr.op in INDEX_CHECKS]
    assert all(symbol.kind == "loop" for load in body if isinstance(load, Load) for symbol in load.index[0].symbols)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, PLACES(30)[:, None] + PLACES(4)],
        lambda x: x[:, PLACES(32) + PLACES(32) * PLACES(32)[:, None]],
    ],
    ids=["out of range", "a product of positions"],
)
def test_what_may_not_be_an_address_is_checked(function: Callable[[Tensor], Tensor]) -> None:
    (kernel,) = kernels(schedule_of(lower(function, torch.randn(8, 32))))
    assert [instr for instr in kernel.body if isinstance(instr, Scalar) and instr.op in INDEX_CHECKS]


def test_arithmetic_that_leaves_64_bits_is_that_of_integers() -> None:
    def by_sign(x: Tensor) -> Tensor:
        return torch.where(-2 - PLACES(5) - 2**62 - 2**62 < 0, x, -x)

    x = torch.randn(5)
    (result,) = run_schedule(schedule_of(lower(by_sign, x)), [x])
    assert torch.equal(result, by_sign(x))
