"""Long reductions of columns become two kernels, blocks of rows first; shorter ones and other shapes stay one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.kernel import Kernel
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of, scheduled

ROWS, COLUMNS = 2048, 256


def loops_of(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[tuple[list[int], list[int]]]:
    def sizes(kernel: Kernel) -> tuple[list[int], list[int]]:
        outer, inner = (
            [loop.size.as_int or 0 for loop in loops if loop.size] for loops in (kernel.outer, kernel.inner)
        )
        return outer, inner

    return [sizes(kernel) for kernel in kernels(schedule_of(lower(function, *inputs)))]


def test_a_long_sum_of_columns_folds_blocks_of_rows_first() -> None:
    found = loops_of(lambda x: x.sum(0), torch.empty(ROWS, COLUMNS))
    assert found == [([16, COLUMNS], [128]), ([COLUMNS], [16])]


def test_wide_rows_make_smaller_blocks() -> None:
    found = loops_of(lambda x: x.sum(0), torch.empty(ROWS, 4096))
    assert found == [([128, 4096], [16]), ([4096], [128])]


def test_short_rows_make_higher_blocks() -> None:
    found = loops_of(lambda x: x.sum(0), torch.empty(65536, 64))
    assert found == [([256, 64], [256]), ([64], [256])]


@pytest.mark.parametrize(
    ("rows", "columns", "why"),
    [(512, 256, "little memory"), (4099, 256, "no number divides the rows")],
)
def test_other_sums_of_columns_stay_one_kernel(rows: int, columns: int, why: str) -> None:
    assert len(loops_of(lambda x: x.sum(0), torch.empty(rows, columns))) == 1, why


def test_rows_that_are_folded_along_memory_stay_one_kernel() -> None:
    assert len(loops_of(lambda x: x.sum(1), torch.empty(COLUMNS, ROWS))) == 1


def test_two_passes_over_the_columns_stay_one_kernel() -> None:
    assert len(loops_of(lambda x: x.var(0), torch.empty(ROWS, COLUMNS))) == 1


def test_all_batches_of_an_image_with_channels_last_are_blocks() -> None:
    x = torch.empty(8, 256, 14, 14, memory_format=torch.channels_last)
    found = loops_of(lambda x: x.sum((0, 2, 3)), x)
    assert found == [([14, 256], [112]), ([256], [14])]


FUNCTIONS = {
    "sum": lambda x: x.sum(0),
    "mean of squares": lambda x: (x * x).mean(0),
    "amax": lambda x: x.amax(0),
    "prod": lambda x: (1 + x / 1000).prod(0),
    "any": lambda x: (x > 3).any(0),
    "all": lambda x: (x < 3).all(0),
    "two sums of one pass": lambda x: x.sum(0) / (1 + x.abs().sum(0)),
    "a sum and what follows": lambda x: torch.relu(x.sum(0)) + x[0],
    "count": lambda x: (x > 0).sum(0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_blocks_give_what_the_whole_gives(name: str) -> None:
    torch.manual_seed(0)
    assert len(kernels(scheduled(FUNCTIONS[name], torch.randn(ROWS, COLUMNS)))) == 2  # interpreted, and compared
