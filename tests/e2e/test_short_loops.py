"""Kernels whose innermost loops are shorter than a vector, on every instruction set: bit-equal to eager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

from inductor_cpu import config
from tests.cases import cases
from tests.codegen.harness import BITS, available
from tests.e2e.support import assert_same, compile_counted

Tensor = torch.Tensor
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8]


#: The widest vectors. Other levels, which share the code above the instructions, have one of several cases alike in
#: every run.
WIDEST, OTHERS = available()[-1], available()[:-1]


@pytest.fixture
def simdlen(request: pytest.FixtureRequest) -> Iterator[None]:
    with config.patch({"cpp.simdlen": BITS[request.param]}):
        yield


def check(fn: Callable[..., object], *inputs: Tensor, dynamic: bool | None = None) -> None:
    compiled, reports = compile_counted(fn, dynamic=dynamic)
    assert_same(compiled(*inputs), fn(*inputs), rtol=0, atol=0)
    assert [extern for report in reports for extern in report.externs] == []


def whole(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(0, 9, shape).to(dtype)


LASTS = [(2,), (3,), (4,), (5,), (2, 2), (3, 2), (2, 3), (4, 2)]


def on_levels(always: Iterable[Any], more: Iterable[Any] = (), elsewhere: int = 0) -> list[Any]:
    """Parameters (level, ...) of a test of `always` and `more`, tuples: in every run all of `always` on the widest
    vectors, and number `elsewhere` of them on each other level."""
    always, more = list(always), list(more)
    rest = [case for number, case in enumerate(always) if number != elsewhere]
    return cases(
        [*((WIDEST, *case) for case in always), *((isa, *always[elsewhere]) for isa in OTHERS)],
        [*((WIDEST, *case) for case in more), *((isa, *case) for isa in OTHERS for case in (*rest, *more))],
    )


MORE = [([last], dtype) for last in ((4,), (3,)) for dtype in DTYPES[1:]]


@pytest.mark.parametrize(
    ("simdlen", "lasts", "dtype"),
    on_levels([(LASTS, torch.float32), MORE[0], MORE[5]], [*MORE[1:5], *MORE[6:]], elsewhere=2),
    indirect=["simdlen"],
    ids=lambda value: "all" if value is LASTS else str(value),
)
def test_updates_of_a_few_places(simdlen: None, lasts: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    def one(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        a, b, c = x.clone(), x.clone(), x.clone()
        a[1:-1, :, ..., 0] = y[1:-1, :, ..., 0]
        b[1:, 2:-3, ..., -1] = z[1:, 2:-3, ..., 0] * 2
        b[0, :, ..., 1] = z[0, :, ..., 1]
        c[:, 1:] = x[:, 1:].flip(-1)
        return a, b, c, x * y[..., :1], x + z[:, :1]

    def fn(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
        return [one(*tensors[first : first + 3]) for first in range(0, len(tensors), 3)]

    # Of numbers of elements that differ, so that no loop serves two of them.
    shapes = [(4, 11 + number, *last) for number, last in enumerate(lasts)]
    check(fn, *(whole(*shape, dtype=dtype) for shape in shapes for _ in range(3)))


@pytest.mark.parametrize(("simdlen", "dtype"), on_levels((d,) for d in DTYPES[:2]), indirect=["simdlen"], ids=str)
def test_updates_of_one_place_of_two_short_loops(simdlen: None, dtype: torch.dtype) -> None:
    def fn(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        x = x.clone()
        x[1:, 2:-2, 1:, 1, 0] = y * z[1:, 2:-2, 1:]
        x[1:, 2:-2, :-1, 0, 1] = y * 2
        return x

    check(fn, whole(4, 9, 26, 2, 2, dtype=dtype), whole(3, 5, 25, dtype=dtype), whole(4, 9, 26, dtype=dtype))


@pytest.mark.parametrize(("simdlen", "last"), on_levels([(2,), (3,), (4,), (5,)], elsewhere=1), indirect=["simdlen"])
def test_a_number_for_each_row_where_the_rows_are_short(simdlen: None, last: int) -> None:
    def fn(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x[1:-1, 1:] * y[1:, :, None] + z[None, 1:, None]

    for rows in (6, 23):
        x, y, z = (whole(*shape, dtype=torch.float32) for shape in ((rows, 30, last), (rows - 1, 29), (30,)))
        check(fn, x, y, z, dynamic=True)


@pytest.mark.parametrize(("simdlen", "last"), on_levels([(2,), (3,), (4,)], elsewhere=2), indirect=["simdlen"])
def test_rows_chosen_by_data_where_the_rows_are_short(simdlen: None, last: int) -> None:
    table, places = whole(50, last, dtype=torch.float32), torch.randint(0, 50, (37,))
    check(lambda table, places: table[places] * 2, table, places)
    check(lambda x, i: x.gather(-1, i), whole(37, 20, dtype=torch.float32), torch.randint(0, 20, (37, last)))


@pytest.mark.parametrize(
    ("simdlen", "dtype"), on_levels(((d,) for d in DTYPES[1:4]), elsewhere=2), indirect=["simdlen"], ids=str
)
def test_masks_from_memory_and_from_places(simdlen: None, dtype: torch.dtype) -> None:
    def fn(x: Tensor, mask: Tensor) -> Tensor:
        kept = torch.where(mask[:, None], x, 1)
        return torch.where(torch.arange(4) % 2 == 1, kept, kept[:, :1])

    check(fn, whole(45, 4, dtype=dtype), torch.rand(45) < 0.5)
