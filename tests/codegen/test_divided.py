"""Scatters that threads divide by what they write: any number of threads gives what one gives, in every dtype."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from inductor_cpu.ir.index import const, loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import Divided, Kernel
from inductor_cpu.ir.ops import FLOAT8, LOOP_DTYPES, LOW_PRECISION
from inductor_cpu.ir.verify import verify_kernel
from tests.cases import cases

from .build import BF16, BOOL, F32, F64, I64, Build
from .harness import Library
from .test_scatters import numbers, step

ADDED = sorted(LOOP_DTYPES - FLOAT8 - {BOOL}, key=str)
SUMMED = sorted(LOOP_DTYPES - LOW_PRECISION - {BOOL}, key=str)
SET = sorted(LOOP_DTYPES, key=str)

#: Elements of 8 bits that are moved alike, and sums of integers: one of each in every run.
MORE = [("last", dtype) for dtype in sorted(FLOAT8, key=str)[1:]]
MORE += [("pieces", dtype) for dtype in SUMMED if dtype not in (F32, F64, I64, torch.int8)]
FULL = [f"{way} {dtype}" for way, dtype in MORE]
N, M = size_symbol("n"), size_symbol("m")
I, R = loop_var("i", of(N)), loop_var("r", of(M))
PLACES, PIECES = 300, 5
THREADS = (1, 2, 3)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@cache
def kernels(isa: str) -> dict[str, Kernel]:
    found = {f"add {dtype}": elements(isa, dtype, "add") for dtype in ADDED}
    found |= {f"masked {dtype}": elements(isa, dtype, "add", masked=True) for dtype in (F32, BF16)}
    found |= {f"last {dtype}": elements(isa, dtype, "set") for dtype in SET}
    found |= {f"pieces {dtype}": elements(isa, dtype, "add", pieces=PIECES) for dtype in SUMMED}
    found |= {f"rows {pieces}": rows(isa, pieces) for pieces in (1, PIECES)}
    return found | {"checked": checked(isa), "columns": columns(isa)}


def divided(kernel: Kernel, position: int, pieces: int, elements: int) -> Kernel:
    """The kernel, divided by the value at a position of its body; its work is enough for threads."""
    place = of(value_symbol(position, PLACES))
    kernel = replace(
        kernel, work=const(10**7), divided=Divided(const(pieces), const(elements), place, const(PLACES), 2)
    )
    verify_kernel(kernel)
    return kernel


def elements(isa: str, dtype: torch.dtype, mode: str, *, masked: bool = False, pieces: int = 1) -> Kernel:
    """Y[K[i]] += X[i], or = X[i]."""
    b = Build()
    k = b.load("K", of(I), I64)
    mask = b.load("M", of(I), BOOL) if masked else None
    b.store("Y", of(value_symbol(k, PLACES)), b.load("X", of(I), dtype), "gather", mode, mask)
    return divided(b.kernel(isa, (I,), vector=I, sizes=(N,)), k, pieces, PLACES)


def rows(isa: str, pieces: int) -> Kernel:
    """Y[K[r], i] += X[r, i], rows of seven elements."""
    b, i = Build(), loop_var("i", 7)
    k = b.load("K", of(R), I64, "uniform")
    b.store("Y", of(value_symbol(k, PLACES)) * 7 + of(i), b.load("X", of(R) * 7 + of(i), F32), "contiguous", "add")
    return divided(b.kernel(isa, (R, i), vector=i, sizes=(M,)), k, pieces, PLACES * 7)


def columns(isa: str) -> Kernel:
    """Y[K[r], i] += X[r, i]; threads share ranges of the columns."""
    b = Build()
    k = b.load("K", of(R), I64, "uniform")
    b.store("Y", of(value_symbol(k, PLACES)) * of(N) + of(I), b.load("X", of(R) * of(N) + of(I), F32), mode="add")
    kernel = replace(b.kernel(isa, (R, I), vector=I, sizes=(M, N)), across=I, work=const(10**7))
    verify_kernel(kernel)
    return kernel


def checked(isa: str) -> Kernel:
    """Y[K[i]] += X[i], where K may be out of range."""
    b = Build()
    k = b.op("check_index", b.load("K", of(I), I64), b.const(PLACES, I64))
    b.store("Y", of(value_symbol(k, PLACES)), b.load("X", of(I), F32), "gather", "add")
    return divided(b.kernel(isa, (I,), vector=I, sizes=(N,)), k, 1, PLACES)


def runs(
    library: Library, kernel: Kernel, given: list[torch.Tensor], y: torch.Tensor, *sizes: int
) -> list[torch.Tensor]:
    """What y becomes with each number of threads."""
    found = []
    for count in THREADS:
        torch.set_num_threads(count)
        found.append(y.clone())
        assert library.run(kernel, *given, found[-1], sizes=sizes) == 0
    return found


def of_ways(**dtypes: list[torch.dtype]) -> list[Any]:
    """Parameters (way, dtype)."""
    every = [(way, dtype) for way in dtypes for dtype in dtypes[way]]
    return cases([case for case in every if case not in MORE], [case for case in every if case in MORE])


@pytest.mark.parametrize(("way", "dtype"), of_ways(add=ADDED, pieces=SUMMED), ids=str)
def test_owners_and_pieces_add_all_elements_that_meet(library: Library, isa: str, way: str, dtype: torch.dtype) -> None:
    for n in (1, 16, 37, 3000):
        k, x, y = torch.randint(0, PLACES, (n,)), numbers(dtype, n), numbers(dtype, PLACES)
        want = y.clone()
        for place, value in zip(k.tolist(), x, strict=True):
            step(want, place, value)
        for found in runs(library, kernels(isa)[f"{way} {dtype}"], [k, x], y, n):
            assert torch.equal(found, want)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_owners_add_what_a_mask_shows(library: Library, isa: str, dtype: torch.dtype) -> None:
    k, mask, x = torch.randint(0, PLACES, (2000,)), torch.rand(2000) < 0.3, numbers(dtype, 2000)
    y = torch.zeros(PLACES, dtype=dtype)
    want = y.index_add(0, k[mask], x[mask])
    for found in runs(library, kernels(isa)[f"masked {dtype}"], [k, mask, x], y, 2000):
        assert torch.equal(found, want)


@pytest.mark.parametrize(("way", "dtype"), of_ways(last=SET), ids=str)
def test_the_last_of_elements_that_meet_stays_with_owners(
    library: Library, isa: str, way: str, dtype: torch.dtype
) -> None:
    k, x, y = torch.randint(0, PLACES, (3000,)), numbers(dtype, 3000), numbers(dtype, PLACES)
    want = y.clone()
    for place, value in zip(k.tolist(), x, strict=True):
        want[place] = value
    for found in runs(library, kernels(isa)[f"{way} {dtype}"], [k, x], y, 3000):
        assert torch.equal(found, want)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("way", ["add", "pieces"])
def test_sums_have_equal_bits_with_any_number_of_threads(
    library: Library, isa: str, way: str, dtype: torch.dtype
) -> None:
    k, x, y = torch.randint(0, 20, (3000,)), torch.randn(3000, dtype=dtype), torch.randn(PLACES, dtype=dtype)
    first, *others = runs(library, kernels(isa)[f"{way} {dtype}"], [k, x], y, 3000)
    assert all(torch.equal(first, other) for other in others)
    exact = y.double().index_add(0, k, x.double())
    bound = (k.bincount(minlength=PLACES).max() + 1) * torch.finfo(dtype).eps
    assert ((first - exact).abs() <= bound * y.abs().double().index_add(0, k, x.abs().double())).all()


@pytest.mark.parametrize("pieces", [1, PIECES])
def test_rows_that_meet_are_all_added(library: Library, isa: str, pieces: int) -> None:
    for m in (1, 3, 900):
        k, x, y = torch.randint(0, PLACES, (m,)), numbers(F32, m, 7), numbers(F32, PLACES, 7)
        want = y.index_add(0, k, x)
        for found in runs(library, kernels(isa)[f"rows {pieces}"], [k, x], y, m):
            assert torch.equal(found, want)


@pytest.mark.parametrize("n", [1, 17, 50])
def test_ranges_of_columns_add_all_rows_that_meet(library: Library, isa: str, n: int) -> None:
    k, x, y = torch.randint(0, PLACES, (900,)), numbers(F32, 900, n), numbers(F32, PLACES, n)
    want = y.index_add(0, k, x)
    for found in runs(library, kernels(isa)["columns"], [k, x], y, 900, n):
        assert torch.equal(found, want)


def test_elements_that_no_point_adds_to_keep_the_sign_of_zero(library: Library, isa: str) -> None:
    k, x, y = torch.zeros(64, dtype=I64), torch.full((64,), -0.0), torch.full((PLACES,), -0.0)
    for found in runs(library, kernels(isa)[f"pieces {F32}"], [k, x], y, 64):
        assert torch.signbit(found).all()


def test_an_index_out_of_range_is_reported_by_every_number_of_threads(library: Library, isa: str) -> None:
    k, x, y = torch.arange(PLACES), torch.ones(PLACES), torch.zeros(PLACES)
    k[17] = PLACES
    for count in THREADS:
        torch.set_num_threads(count)
        assert library.run(kernels(isa)["checked"], k, x, y, sizes=[PLACES]) == 1
