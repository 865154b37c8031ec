"""Stores at positions that are data: points that meet give what they give one after another, in every dtype."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.ir.index import loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.ops import FLOAT8, LOOP_DTYPES

from .build import BOOL, F32, I64, Build
from .harness import Library

DTYPES = sorted(LOOP_DTYPES, key=str)
ADDED = sorted(LOOP_DTYPES - FLOAT8, key=str)
N = size_symbol("n")
R, I = loop_var("r", 7), loop_var("i", of(N))
PLACES = 5


@cache
def kernels(isa: str) -> dict[str, Kernel]:
    found = {}
    for dtype in DTYPES:
        for masked in (False, True) if dtype in ADDED else ():
            found[f"elements {dtype} {masked}"] = elements(isa, dtype, "add", masked)
            found[f"rows {dtype} {masked}"] = rows(isa, dtype, masked)
        found[f"last {dtype}"] = elements(isa, dtype, "set", False)
    return found | {"one": one_place(isa)}


def elements(isa: str, dtype: torch.dtype, mode: str, masked: bool) -> Kernel:
    """Y[K[i]] += X[i], or = X[i]."""
    b = Build()
    k = b.load("K", of(I), I64)
    mask = b.load("M", of(I), BOOL) if masked else None
    b.store("Y", of(value_symbol(k, PLACES)), b.load("X", of(I), dtype), "gather", mode, mask)
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def rows(isa: str, dtype: torch.dtype, masked: bool) -> Kernel:
    """Y[K[r], i] += X[r, i]."""
    b = Build()
    k = b.load("K", of(R), I64, "uniform")
    mask = b.load("M", of(I), BOOL) if masked else None
    x = b.load("X", of(R) * of(N) + of(I), dtype)
    b.store("Y", of(value_symbol(k, PLACES)) * of(N) + of(I), x, "contiguous", "add", mask)
    return b.kernel(isa, (R, I), vector=I, sizes=(N,))


def one_place(isa: str) -> Kernel:
    """Y[2] += X[3] for each i: the same value to the same element, once for each lane."""
    b = Build()
    zero = b.index(of(I) * 0)
    x = b.load("X", of(value_symbol(zero, 1)) + 3, F32, "uniform")
    b.store("Y", of(value_symbol(zero, 1)) + 2, x, "uniform", "add")
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Small numbers, whose sums every dtype holds (integers wrap)."""
    return torch.randint(0, 2 if dtype == BOOL else 5, shape).to(dtype)


def step(y: torch.Tensor, place: int, value: torch.Tensor) -> None:
    y[place] = y[place] | value if y.dtype == BOOL else y[place] + value


def buffers(
    dtype: torch.dtype, n: int, masked: bool, *shape: int
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    k = torch.randint(0, PLACES, (shape[0],))
    mask = torch.rand(n) < 0.6
    return [k, mask] if masked else [k], mask if masked else torch.ones(n, dtype=BOOL), numbers(dtype, *shape)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ADDED, ids=str)
def test_elements_that_meet_are_all_added(library: Library, isa: str, dtype: torch.dtype, masked: bool) -> None:
    for n in (1, 15, 16, 37):
        first, mask, x = buffers(dtype, n, masked, n)
        want = y = numbers(dtype, PLACES)
        y = y.clone()
        for i in range(n):
            if mask[i]:
                step(want, int(first[0][i]), x[i])
        library.run(kernels(isa)[f"elements {dtype} {masked}"], *first, x, y, sizes=[n])
        assert torch.equal(y, want)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ADDED, ids=str)
def test_rows_that_meet_are_all_added(library: Library, isa: str, dtype: torch.dtype, masked: bool) -> None:
    for n in (1, 16, 37):
        first, mask, x = buffers(dtype, n, masked, 7, n)
        want = numbers(dtype, PLACES, n)
        y = want.clone()
        for r in range(7):
            place = int(first[0][r])
            added = want[place] | x[r] if dtype == BOOL else want[place] + x[r]
            want[place] = torch.where(mask, added, want[place])
        library.run(kernels(isa)[f"rows {dtype} {masked}"], *first, x, y, sizes=[n])
        assert torch.equal(y, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_last_of_elements_that_meet_stays(library: Library, isa: str, dtype: torch.dtype) -> None:
    for n in (1, 16, 37):
        first, _, x = buffers(dtype, n, False, n)
        want = numbers(dtype, PLACES)
        y = want.clone()
        for i in range(n):
            want[first[0][i]] = x[i]
        library.run(kernels(isa)[f"last {dtype}"], *first, x, y, sizes=[n])
        assert torch.equal(y, want)


def test_elements_that_a_mask_leaves_out_are_not_touched(library: Library, isa: str) -> None:
    y = torch.full((PLACES, 20), -0.0)
    x, nothing = torch.zeros(7, 20), torch.zeros(20, dtype=BOOL)
    library.run(kernels(isa)[f"rows {F32} True"], torch.zeros(7, dtype=I64), nothing, x, y, sizes=[20])
    assert torch.equal(torch.signbit(y), torch.ones(PLACES, 20, dtype=BOOL))


@pytest.mark.parametrize("n", [1, 16, 37])
def test_one_value_is_added_once_for_each_lane(library: Library, isa: str, n: int) -> None:
    y = torch.zeros(4)
    library.run(kernels(isa)["one"], torch.tensor([0.0, 0.0, 0.0, 3.0]), y, sizes=[n])
    assert y.tolist() == [0.0, 0.0, 3.0 * n, 0.0]
