"""Tensors made from numbers."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.interpret import run
from tests.lower.harness import check, lower

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ALL = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_filled_tensors(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 3, dtype=dtype)
    check(lambda x: (x + torch.full((2, 3), 3, dtype=dtype), torch.ones_like(x), torch.zeros_like(x)), x)
    check(lambda x: (x.new_full((4,), 2), x.new_zeros(2), x.new_ones(()), torch.full_like(x, 1)), x)
    check(lambda x: (torch.fill(x, 1), torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)), x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [0.1, float("inf"), float("nan"), -0.0])
def test_fill_values_round_to_the_dtype(value: float, dtype: torch.dtype) -> None:
    check(lambda x: x + torch.full((3,), value, dtype=dtype), torch.zeros(3, dtype=dtype))


def test_like_tensors_keep_strides() -> None:
    check(lambda x: torch.ones_like(x), torch.randn(4, 5).t())
    check(lambda x: torch.zeros_like(x), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    check(lambda x: torch.ones_like(x, memory_format=torch.contiguous_format), torch.randn(4, 5).t())


def test_an_empty_tensor_that_is_overwritten() -> None:
    check(lambda x: torch.empty_like(x).copy_(x * 2), torch.randn(3, 4))
    check(lambda x: torch.empty(3, 4).fill_(2) + x, torch.randn(3, 4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.float64], ids=str)
@pytest.mark.parametrize("bounds", [(5,), (2, 9), (9, 2, -2), (0, 20, 3), (3, 3)])
def test_arange(bounds: tuple[int, ...], dtype: torch.dtype) -> None:
    check(lambda x: (torch.arange(*bounds, dtype=dtype), x), torch.zeros(1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bounds", [(5.5,), (0.1, 4, 0.3), (1, -1, -0.25), (0, 200)])
def test_arange_of_floats(bounds: tuple[float, ...], dtype: torch.dtype) -> None:
    check(lambda x: (torch.arange(*bounds, dtype=dtype), x), torch.zeros(1), exact=False)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_linspace(steps: int, dtype: torch.dtype) -> None:
    calls = ["linspace.default"] if steps > 1 and dtype.itemsize == 2 else []
    check(lambda x: (torch.linspace(-1, 2, steps, dtype=dtype), x), torch.zeros(1), exact=False, calls=calls)


def test_eye_and_scalar_tensor() -> None:
    check(lambda x: (torch.eye(4), torch.eye(2, 5, dtype=torch.int64), x + torch.scalar_tensor(2.5)), torch.zeros(1))
    check(lambda x: (torch.tril_indices(3, 4), torch.triu_indices(4, 3, 1), x), torch.zeros(1))
    check(lambda x: x + torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))


def test_one_hot_and_masks_from_ranges() -> None:
    check(lambda i: torch.nn.functional.one_hot(i, 5), torch.tensor([0, 3, 4]))
    check(lambda x: x.masked_fill(torch.arange(5)[None] > torch.arange(4)[:, None], -1.0), torch.randn(4, 5))


def test_sizes_known_at_run_time() -> None:
    check(lambda x: torch.arange(x.shape[0]) + torch.full((x.shape[0],), x.shape[1]), torch.randn(4, 5), dynamic=True)
    check(lambda x: x * torch.arange(x.shape[1] - 1, -1, -1), torch.randn(4, 5), dynamic=True)
    check(lambda x: x + torch.eye(x.shape[0], x.shape[1]), torch.randn(4, 5), dynamic=True)
    check(lambda x: x.new_zeros(x.shape[0], 2 * x.shape[1]), torch.randn(4, 5), dynamic=True)


_BEYOND = {torch.float16: 1e5, torch.bfloat16: 3.4e38 * 2, torch.float32: 1e39, torch.int8: 128}


@pytest.mark.parametrize("dtype", _BEYOND, ids=str)
def test_a_number_that_the_dtype_does_not_hold_is_left_to_the_operator_which_refuses_it(dtype: torch.dtype) -> None:
    x, number = torch.arange(6).to(dtype).reshape(2, 3), _BEYOND[dtype]
    for fill in (
        lambda x: torch.full((2,), number, dtype=dtype),
        lambda x: x.fill_(number),
        lambda x: x.masked_fill(x > 2, number),
        lambda x: x.index_fill(0, torch.tensor([1]), number),
        lambda x: x.scatter(0, torch.tensor([[1]]), number),
        lambda x: torch.nn.functional.pad(x, (1, 1), value=number),
    ):
        with pytest.raises(RuntimeError, match="without overflow"):
            run(lower(fill, x), [x])


def test_arithmetic_makes_an_infinity_of_a_number_that_the_dtype_does_not_hold() -> None:
    check(lambda x: (x + 1e5, x * -1e5, x.masked_fill(x > 0, float("inf"))), torch.ones(3, dtype=torch.float16))
