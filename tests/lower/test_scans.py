"""Scans in the interpreter: bit-equal to eager in every dtype, along every dimension."""

from __future__ import annotations

import pytest
import torch

from tests.lower.harness import check

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int8, torch.uint8]


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape) * 3).to(dtype) if dtype.is_floating_point else torch.randint(0, 90, shape).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sums_and_products(dim: int, dtype: torch.dtype) -> None:
    x = numbers(4, 3, 5, dtype=dtype)
    check(lambda x: x.cumsum(dim), x)
    check(lambda x: x.cumprod(dim), x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.bfloat16], ids=str)
def test_a_dtype_of_the_result(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5) * 4
    check(lambda x: x.cumsum(1, dtype=dtype), x)
    check(lambda x: x.cumprod(0, dtype=dtype), x)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
def test_extremes_and_their_positions(dtype: torch.dtype) -> None:
    x = numbers(4, 7, dtype=dtype)
    check(lambda x: [*x.cummax(1), *x.cummin(0)], x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_logarithms_of_sums(dtype: torch.dtype) -> None:
    check(lambda x: x.logcumsumexp(1), numbers(3, 6, dtype=dtype), exact=False)


def test_scans_of_scalars_of_single_elements_and_of_nothing() -> None:
    for shape in ((), (1,), (0,), (3, 0), (0, 3), (3, 1)):
        x = torch.randn(shape)
        check(lambda x: [x.cumsum(0), x.cumprod(-1), x.logcumsumexp(0), *x.cummax(0), *x.cummin(-1)], x)


def test_scans_of_strided_inputs_of_any_size() -> None:
    check(lambda x: [x.cumsum(0), *x.cummin(1)], torch.randn(6, 5).t(), dynamic=True)
    check(lambda x: x.cumsum(1), torch.randn(4, 6)[:, ::2])
