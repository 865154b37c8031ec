"""Which temporaries are laid out in rows although eager mode lays them out otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.index import Expr, as_expr
from tests.lower.harness import lower
from tests.schedule.harness import check_program, schedule_of

Tensor = torch.Tensor
ROWS, COLUMNS = 300, 48


def rows_in_order(x: Tensor, y: Tensor) -> Tensor:
    """A sum that lies as x does, and what reads it after a call of ATen."""
    sums = x.t() + y
    return sums[torch.argsort(sums.sum(1))] * y


def also_given_to_an_operator(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    sums = x.t() + y
    return torch.linalg.qr(sums)[1], sums[torch.argsort(sums.sum(1))] * y


def also_a_result(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    sums = x.t() + y
    return sums, sums[torch.argsort(sums.sum(1))] * y


def as_many_along_columns(x: Tensor, y: Tensor) -> Tensor:
    sums = x.t() + y
    return (sums * torch.argsort(sums.sum(1))[0]).sum(1)


def more_along_columns(x: Tensor, y: Tensor) -> Tensor:
    sums = x.t() + y
    return sums * torch.argsort(sums.sum(1))[0]


def all_along_columns(x: Tensor, y: Tensor) -> Tensor:
    sums = x.t().exp() + x.t().sin() * x.t().cos()
    return torch.argsort(sums.sum(1))[:, None] * sums


def layout(function: Callable[..., object], dynamic: bool = False) -> tuple[Expr, ...]:
    """The strides of the matrix that is in memory between the kernels, once the schedule is right."""
    inputs = [torch.randn(COLUMNS, ROWS), torch.randn(ROWS, COLUMNS)]
    program = lower(function, *inputs, dynamic=dynamic)
    check_program(program, inputs)
    schedule = schedule_of(program)
    found = [schedule.program.buffer(name) for name, _ in schedule.places]
    (matrix,) = (buffer for buffer in found if len(buffer.sizes) == 2 and buffer.sizes[1] != 1)
    return matrix.strides


def test_a_temp_that_rows_are_read_beside_has_rows() -> None:
    assert layout(rows_in_order) == (as_expr(COLUMNS), as_expr(1))


def test_sizes_may_be_unknown() -> None:
    strides = layout(rows_in_order, dynamic=True)
    assert strides[0].as_int is None
    assert strides[1] == 1


@pytest.mark.parametrize(
    "function", [also_given_to_an_operator, as_many_along_columns, more_along_columns, all_along_columns]
)
def test_a_temp_keeps_its_strides(function: Callable[..., object]) -> None:
    """An operator gets what eager mode gives it, and nothing is won."""
    assert layout(function) == (as_expr(1), as_expr(ROWS))


def test_a_result_keeps_its_strides() -> None:
    inputs = [torch.randn(COLUMNS, ROWS), torch.randn(ROWS, COLUMNS)]
    check_program(lower(also_a_result, *inputs), inputs)
    sums, product = torch.compile(also_a_result, backend="icpu")(*inputs)
    assert [sums.stride(), product.stride()] == [value.stride() for value in also_a_result(*inputs)]
    assert sums.stride() == (1, ROWS)
