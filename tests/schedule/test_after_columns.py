"""What follows long reductions of columns point by point is a kernel of its own; after shorter ones it is a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.schedule.harness import check_program, kernels, schedule_of, scheduled

from ..lower.harness import lower

ROWS, COLUMNS = 5000, 64


def centered(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


def gradient(grad: torch.Tensor, y: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> Any:
    """As of a batch norm after which a relu follows."""
    grad = torch.ops.aten.threshold_backward(grad, y, 0)
    total, dot = grad.sum(0), (grad * x).sum(0)
    return (grad - total / len(x) - x * (dot * scale)) * scale, total, dot


def rows_of(function: Callable[..., Any], *inputs: torch.Tensor) -> list[tuple[int, int]]:
    """Outer and inner loops of each kernel."""
    return [(len(kernel.outer), len(kernel.inner)) for kernel in kernels(schedule_of(lower(function, *inputs)))]


def test_what_follows_long_columns_is_a_loop_over_whole_rows() -> None:
    assert rows_of(centered, torch.empty(ROWS, COLUMNS)) == [(2, 1), (1, 1), (2, 0)]  # by blocks of rows


def test_only_what_depends_on_the_rows_is_computed_again() -> None:
    x = torch.empty(ROWS, COLUMNS)
    blocks, sums, after = kernels(schedule_of(lower(gradient, x, x, x, torch.empty(COLUMNS))))
    assert [[len(phase.reduces) for phase in kernel.phases] for kernel in (blocks, sums)] == [[2], [2]]
    handed = [arg.buffer for arg in after.args if "handed" in arg.buffer]
    assert len(handed) == 2  # the mean of grad and the scaled dot; the scale is an input


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (centered, (torch.empty(200, COLUMNS),)),
        (lambda x: x - x.mean(1, keepdim=True), (torch.empty(COLUMNS, ROWS),)),
        (lambda x: x.var(0), (torch.empty(ROWS, COLUMNS),)),
    ],
    ids=["the cache has them", "rows", "nothing follows"],
)
def test_other_reductions_stay_one_kernel(
    function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]
) -> None:
    assert len(rows_of(function, *inputs)) == 1


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What overwrites the rows comes after all that reads them."""
    mean = x.mean(0)
    x.copy_(y)
    return y - mean


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "centered": lambda x, y: centered(x),
    "a standard score": lambda x, y: (x - x.mean(0)) / x.std(0),
    "gradient": lambda x, y: gradient(x, y, y, y[0]),
    "softmax": lambda x, y: torch.softmax(x, 0),
    "an intermediate result": lambda x, y: (r := torch.relu(x) * y, r - r.sum(0)),
    "statistics that change": lambda x, y: (x - x.mean(0).add_(y[0]), y[0].mul_(2)),
    "in place": in_place,
    "where all is known": lambda x, y: torch.where(x.sum(0) > 0, x, y),
}


@pytest.mark.parametrize("lanes", [8, 0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_kernels_give_the_values_of_the_program(name: str, lanes: int) -> None:
    inputs = torch.randn(12000, 24), torch.randn(12000, 24)
    schedule = check_program(lower(FUNCTIONS[name], *(x.clone() for x in inputs)), inputs, tolerance=1e-3, lanes=lanes)
    assert any("long columns" in note for note in schedule.notes) == (lanes > 0 and name != "in place")


def test_the_gradient_of_a_batch_norm_is_sums_and_a_kernel_of_rows() -> None:
    def function(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor) -> Any:
        mask = [True, True, True]
        args = (grad, x, weight, None, None, mean, mean, True, 1e-5, mask)
        return torch.ops.aten.native_batch_norm_backward(*args)

    x = torch.empty(8, 32, 30, 30, memory_format=torch.channels_last)
    schedule = scheduled(function, x, x, torch.empty(32), torch.empty(32))
    assert [(len(k.outer), len(k.inner)) for k in kernels(schedule)] == [(2, 1), (1, 1), (2, 0)]
