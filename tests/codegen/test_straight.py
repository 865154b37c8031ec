"""Folds of a few points without a loop."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.records import records
from inductor_cpu.codegen.straight import FOLDS, as_straight
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel, Phase
from inductor_cpu.ir.verify import verify_kernel
from tests.cases import cases, every_run, in_turns

from .build import BF16, BOOL, F16, F32, F64, I8, I32, I64, Build
from .harness import VECTORS, Library, target

ISAS = VECTORS
N = size_symbol("n")
LENGTHS = (1, 15, 16, 50)
NUMBERS = (F32, F64, I64, I32)


def folded(isa: str, kind: str, dtype: torch.dtype, size: int, wide: bool = False) -> Kernel:
    """Y[i] = fold of X[i, :], lanes along i. wide: as float32."""
    i, r, b = loop_var("i", of(N)), loop_var("r", size), Build()
    x = b.load("X", of(i) * size + of(r), dtype, "strided")
    b.store("Y", of(i), b.reduce(kind, b.cast(x, F32) if wide else x))
    return b.kernel(isa, (i,), (r,), i, [Phase((len(b.body) - 1,), ())], work=100, sizes=(N,))


def shares(isa: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> Kernel:
    """Y[i, r] = X[i, r] - the maximum of X[i, :], and Z[i] = the sum of Y[i, :], over one or two inner loops."""
    i, b = loop_var("i", of(N)), Build()
    inner = tuple(loop_var(f"r{k}", size) for k, size in enumerate(sizes))
    place = of(inner[0]) if len(inner) == 1 else of(inner[0]) * sizes[1] + of(inner[1])
    points = sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1]
    x = b.load("X", of(i) * points + place, dtype, "strided")
    less = b.op("sub", x, b.reduce("max", x))
    b.store("Y", of(i) * points + place, less, "strided")
    b.store("Z", of(i), b.reduce("sum", less))
    phases = [Phase((1,), ()), Phase((3,), (0,))]
    return b.kernel(isa, (i,), inner, i, phases, kept=(less,), work=100, sizes=(N,))


#: Folds of numbers: all sizes of float32 in every run, and one of each other dtype, in turns.
KINDS, SIZES = ("sum", "prod", "max", "min"), (2, 3, 4)
FOLDED = list(product(KINDS, NUMBERS, SIZES))
ALWAYS = [(*fold, size) for fold, size in every_run(in_turns(product(KINDS, NUMBERS), SIZES)) if fold[1] != F32]
ALWAYS += [(kind, F32, size) for kind, size in product(KINDS, SIZES)]
FULL = [case for case in FOLDED if case not in ALWAYS]
OTHERS = [*((kind, BOOL, 3) for kind in ("any", "all")), *((kind, I8, 3) for kind in ("max", "min"))]
SUMS = [("wide", dtype, 3) for dtype in (BF16, F16)]


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {case: folded(isa, *case) for case in (*FOLDED, *OTHERS)}
    found |= {case: folded(isa, "sum", case[1], 3, wide=True) for case in SUMS}
    return found | {(F32, sizes): shares(isa, F32, sizes) for sizes in ((2,), (3,), (4,), (2, 2))}


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.rand(shape) < 0.5 if dtype == BOOL else torch.randint(-9, 9, shape).to(dtype)


def fold(kind: str, x: torch.Tensor) -> torch.Tensor:
    if kind == "wide":
        return x.float().sum(1)
    return {"max": x.amax, "min": x.amin}[kind](1) if kind in ("max", "min") else getattr(x, kind)(1).to(x.dtype)


@pytest.mark.parametrize(("kind", "dtype", "size"), cases([*ALWAYS, *OTHERS, *SUMS], FULL), ids=str)
def test_few_points_are_folded_by_one_op_each(
    library: Library, isa: str, kind: str, dtype: torch.dtype, size: int
) -> None:
    kernel = kernels(isa)[kind, dtype, size]
    verify_kernel(as_straight(kernel))
    assert "Inner loops" not in generate(kernel, target(isa)).code
    for n in LENGTHS:
        x = values(dtype, n, size)
        y = torch.zeros(n + 8, dtype=F32 if kind == "wide" else dtype)
        library.run(kernel, x, y, sizes=(n,))
        assert torch.equal(y[:n], fold(kind, x))
        assert not y[n:].any()


@pytest.mark.parametrize("sizes", [(2,), (3,), (4,), (2, 2)], ids=str)
def test_all_passes_know_the_points_and_store_them_as_records(
    library: Library, isa: str, sizes: tuple[int, ...]
) -> None:
    kernel = kernels(isa)[F32, sizes]
    points = torch.Size(sizes).numel()
    assert [len(record) for record in records(as_straight(kernel))] == [points]
    for n in LENGTHS:
        x, y, z = torch.randn(n, points), torch.zeros(n, points), torch.zeros(n)
        library.run(kernel, x, y, z, sizes=(n,))
        assert torch.equal(y, x - x.amax(1, keepdim=True))
        torch.testing.assert_close(z, y.sum(1))


def test_special_values_are_folded_as_by_a_loop(library: Library, isa: str) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[-0.0, -0.0], [nan, 1], [1, nan], [inf, -inf], [-inf, -inf]])
    for kind, expected in (("sum", [0.0, nan, nan, nan, -inf]), ("max", [-0.0, nan, nan, inf, -inf])):
        y = torch.ones(5)
        library.run(kernels(isa)[kind, F32, 2], x, y, sizes=(5,))
        torch.testing.assert_close(y, torch.tensor(expected), equal_nan=True)
        assert kind == "max" or not y[0].signbit()


@pytest.mark.parametrize("kind", ["argmax", "fmax"])
def test_folds_without_an_op_stay_loops(isa: str, kind: str) -> None:
    assert kind not in FOLDS
    kernel = folded(isa, kind, F32, 3)
    assert as_straight(kernel) is kernel


def test_five_points_and_lanes_along_the_fold_stay_loops(isa: str) -> None:
    five = folded(isa, "sum", F32, 5)
    i, r, b = loop_var("i", of(N)), loop_var("r", 4), Build()
    b.store("Y", of(i), b.reduce("sum", b.load("X", of(i) * 4 + of(r), F32)), "uniform")
    along = b.kernel(isa, (i,), (r,), r, [Phase((1,), ())], sizes=(N,))
    for kernel in (five, along):
        assert as_straight(kernel) is kernel
