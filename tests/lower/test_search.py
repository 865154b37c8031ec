"""Binary searches: eager's places, also among equal elements, NaN and elements that are not sorted."""

from __future__ import annotations

import pytest
import torch

from tests.e2e.support import assert_same, compile_counted
from tests.lower.harness import check

NAN, INF = float("nan"), float("inf")


def both(sequence: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
    return [
        torch.bucketize(values, sequence),
        torch.bucketize(values, sequence, right=True, out_int32=True),
        torch.searchsorted(sequence, values, side="right"),
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8], ids=str)
def test_places_among_sorted_elements(dtype: torch.dtype, count: int) -> None:
    check(both, torch.randint(-9, 9, (count,)).sort()[0].to(dtype), torch.randint(-12, 12, (4, 6)).to(dtype))


@pytest.mark.parametrize("sequence", [[1.0, 3.0, NAN], [-INF, 0.0, 0.0, INF], [5.0, 1.0, 4.0, 2.0, 3.0]])
def test_places_of_special_values_and_in_any_order(sequence: list[float]) -> None:
    check(both, torch.tensor(sequence), torch.tensor([NAN, -INF, INF, 0.0, -0.0, 3.0, 2.5]))


def test_each_row_is_searched_in_its_own_row() -> None:
    check(lambda s, v: torch.searchsorted(s, v), torch.randn(3, 2, 9).sort()[0], torch.randn(3, 2, 5))


def test_long_sequences_and_mixed_dtypes_are_those_of_aten() -> None:
    check(torch.bucketize, torch.randn(3), torch.arange(1025.0), calls=["bucketize.Tensor"])
    check(torch.bucketize, torch.randn(3), torch.arange(5), calls=["bucketize.Tensor"])


def test_lanes_search_together() -> None:
    sequence, values = torch.randn(300).sort()[0], torch.randn(5, 37)
    compiled, reports = compile_counted(both)
    assert_same(compiled(sequence, values), both(sequence, values), rtol=0, atol=0)
    assert all(kernel.vectorized for report in reports for kernel in report.kernels)
    assert not any(report.externs for report in reports)
