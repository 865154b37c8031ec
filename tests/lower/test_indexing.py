"""Reads at data-dependent positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.ir.interpret import run
from tests.lower.harness import check, lower

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool]


def ints(*shape: int, high: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_select_and_gather(dtype: torch.dtype) -> None:
    x = (torch.randn(4, 6, 5) * 4).to(dtype)
    for dim in (0, 1, -1):
        check(lambda x, i, dim=dim: x.index_select(dim, i), x, ints(7, high=4))
    check(lambda x, i: x.gather(1, i), x, ints(4, 9, 5, high=6))
    check(lambda x, i: x.gather(-1, i), x, ints(2, 3, 4, high=5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
def test_advanced_indexing(dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    x = (torch.randn(4, 6, 5) * 4).to(dtype)
    i, j = ints(3, high=4, low=-4, dtype=index_dtype), ints(2, 1, high=5, low=-5, dtype=index_dtype)
    check(lambda x, i: x[i], x, i)
    check(lambda x, i: x[:, i], x, i)
    check(lambda x, i, j: x[i, :, j], x, i, j)
    check(lambda x, i, j: x[:, i, j], x, i, j)
    check(lambda x, i, j: x[i, j], x, i, j)
    check(lambda x, i: torch.ops.aten.index(x, [i[0]]), x, i)


def test_indexing_of_strided_and_empty_tensors() -> None:
    x = torch.randn(6, 5, 4).permute(2, 0, 1)
    check(lambda x, i: x[:, i][1:], x, ints(3, high=6))
    check(lambda x, i: x[i], x, torch.empty(0, dtype=torch.int64))
    check(lambda x, i: x[:, i], torch.randn(0, 4), ints(3, high=4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_embedding(dtype: torch.dtype) -> None:
    table = torch.randn(10, 6, dtype=dtype)
    check(lambda w, i: F.embedding(i, w, padding_idx=0), table, ints(3, 4, high=10))
    check(lambda w, i: F.embedding(i, w), table, ints(5, high=10, dtype=torch.int32))
    check(lambda w, i: F.embedding(i, w), table, torch.tensor(3))


def test_zero_dim_tensors() -> None:
    check(lambda x, i: x.gather(0, i), torch.tensor(2.0), torch.tensor(0))
    check(lambda x, i: x.index_select(0, i), torch.tensor(2.0), torch.tensor([0]))
    check(lambda x, i: x.index_select(0, i), torch.randn(4), torch.tensor(2))
    check(lambda x, i: x.gather(0, i), torch.randn(4), torch.tensor(2))


def test_gather_with_an_empty_index_of_other_dimensions() -> None:
    check(lambda x, i: x.gather(0, i), torch.randn(3, 4), torch.empty(0, dtype=torch.int64))
    check(lambda x, i: x.gather(1, i), torch.randn(3, 4), torch.empty(0, dtype=torch.int64))


def test_take() -> None:
    check(lambda x, i: torch.take(x, i), torch.randn(3, 4), ints(2, 5, high=12, low=-12))
    check(lambda x, i: torch.take_along_dim(x, i, 1), torch.randn(3, 4), ints(3, 2, high=4))


#: Functions of a (4, 3) tensor and two indices that must not be negative, and others.
FROM_THE_FRONT: list[Callable[..., torch.Tensor]] = [
    lambda x, i: x.index_select(0, i),
    lambda x, i: x.t().index_select(1, i),
    lambda x, i: F.embedding(i, x),
    lambda x, i: x.gather(0, i[:, None]),
    lambda x, i: x.scatter(0, i[:, None], 1.0),
    lambda x, i: x.scatter_add(0, i[:, None].expand(2, 3), x),
    lambda x, i: x.t().scatter(1, i[:1].expand(3, 1), 1.0),
    lambda x, i: x.index_add(0, i, x[:2]),
    lambda x, i: x.index_add(0, i, x[:2], alpha=2),
    lambda x, i: x.index_add(0, i.clamp(-9, 9).int(), x[:2]),
    lambda x, i: x[:, 0].index_add(0, i, x[:2, 0]),
    lambda x, i: x.index_copy(0, i, x[:2]),
]
READS_AND_WRITES: list[Callable[..., torch.Tensor]] = [
    lambda x, i: x[i],
    lambda x, i: x.index_put((i,), torch.tensor(1.0)),
    lambda x, i: x.index_fill(0, i, 1.0),
    *FROM_THE_FRONT,
]


def _refuses_as_eager(fn: Callable[..., torch.Tensor], x: torch.Tensor, index: torch.Tensor) -> None:
    with pytest.raises((IndexError, RuntimeError)) as eager:
        fn(x, index)
    program = lower(fn, x, torch.zeros_like(index))
    with pytest.raises((IndexError, RuntimeError)) as ours:
        run(program, [x, index])
    assert ours.type is eager.type


@pytest.mark.parametrize("index", [4, -5, 1 << 40])
def test_an_index_out_of_range_raises_what_eager_raises(index: int) -> None:
    for fn in READS_AND_WRITES:
        _refuses_as_eager(fn, torch.randn(4, 3), torch.tensor([index, 0]))


def test_an_index_into_one_element_is_checked() -> None:
    for fn in (lambda x, i: x[i], lambda x, i: x.index_select(0, i), lambda x, i: x.gather(0, i[:, None])):
        check(fn, torch.randn(1, 3), torch.tensor([0]))
        _refuses_as_eager(fn, torch.randn(1, 3), torch.tensor([1]))


@pytest.mark.parametrize("fn", FROM_THE_FRONT)
def test_operators_that_do_not_count_from_the_end_refuse_negative_indices(fn: Callable[..., torch.Tensor]) -> None:
    _refuses_as_eager(fn, torch.randn(4, 3), torch.tensor([-1, 0]))


def test_index_fill_counts_negative_indices_from_the_end() -> None:
    check(lambda x, i: x.index_fill(0, i, 2.0), torch.randn(4, 3), torch.tensor([-1, 0]))


def test_unchecked_indexing_of_decompositions() -> None:
    aten = torch.ops.aten
    x, i = torch.randn(4, 6), ints(5, high=6)
    check(lambda x, i: aten._unsafe_index(x, [None, i]), x, i)
    mask = torch.tensor([True, False, True, True, False])
    beyond = torch.where(mask, i, 100)
    check(lambda x, m, i: aten._unsafe_masked_index(x, m, [None, i], -1.0), x, mask[None], beyond[None])


def test_indexing_by_a_mask_goes_to_aten() -> None:
    check(lambda x, m: torch.where(m, x, 0).sum(), torch.randn(4), torch.tensor([True, False, True, True]), exact=False)


def test_dynamic_shapes() -> None:
    check(lambda x, i: x[i] * 2, torch.randn(5, 4), ints(7, high=5), dynamic=True)
    check(lambda w, i: F.embedding(i, w) + 1, torch.randn(5, 4), ints(3, 7, high=5), dynamic=True)
    check(lambda x, i: x.gather(1, i), torch.randn(5, 4), ints(5, 3, high=4), dynamic=True)
    mask, beyond = torch.tensor([True, False, True]), torch.tensor([3, 100, 0])

    def filled(x: torch.Tensor, m: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._unsafe_masked_index(x, m, [None, i], x.shape[0])

    check(filled, torch.arange(20).view(5, 4), mask[None], beyond[None], dynamic=True)
