"""Both points of a loop that store neighbours, in one store."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.codegen.twins import are_twins, as_twins
from inductor_cpu.ir.index import as_expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.verify import verify_kernel

from .build import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, Build
from .harness import VECTORS, Library, target

ISAS = VECTORS
N = size_symbol("n")
ROWS = 3
DTYPES = (F32, F64, I32, I64, I16, I8, U8)


def zipped(
    isa: str, dtype: torch.dtype, parallel: int = 1, points: int = 2, step: int = 2, length: int | None = None
) -> Kernel:
    """Y[r, i, k] = X[r, k, i] + R[r, k]: lanes along i, of a known length or not, k over two neighbours."""
    n = of(N) if length is None else as_expr(length)
    r, k, i = loop_var("r", ROWS), loop_var("k", points), loop_var("i", n)
    build = Build()
    x = build.load("X", (of(r) * 2 + of(k)) * n + of(i), dtype)
    row = build.load("R", of(r) * 2 + of(k), dtype, "uniform")
    total = x if dtype == BOOL else build.op("add", x, row)
    build.store("Y", of(r) * (n * step) + of(i) * step + of(k), total, "strided")
    return build.kernel(isa, (r, k, i), vector=i, parallel=parallel, work=100, sizes=(N,) if length is None else ())


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {(dtype, 1): zipped(isa, dtype) for dtype in DTYPES}
    return found | {(F32, parallel): zipped(isa, F32, parallel) for parallel in (0, 2, 3)}


@pytest.mark.parametrize(("dtype", "parallel"), kernels("avx2"), ids=str)
def test_two_vectors_are_stored_as_pairs(library: Library, isa: str, dtype: torch.dtype, parallel: int) -> None:
    kernel = kernels(isa)[dtype, parallel]
    assert ("store_pairs" in generate(kernel, target(isa)).code) == are_twins(as_twins(kernel))
    for n in (1, 7, 16, 33, 64):
        x, row = torch.randint(-50, 50, (ROWS, 2, n)).to(dtype), torch.randint(-50, 50, (ROWS, 2)).to(dtype)
        y = torch.full((ROWS * n * 2 + 40,), 1, dtype=dtype)
        library.run(kernel, x, row, y, sizes=(n,))
        assert torch.equal(y[: ROWS * n * 2].view(ROWS, n, 2), (x + row[..., None]).transpose(1, 2))
        assert torch.equal(y[ROWS * n * 2 :], torch.full((40,), 1, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [64, 72])
def test_pairs_that_no_cache_keeps_go_around_it(isa: str, dtype: torch.dtype, length: int) -> None:
    """Where lines are whole; wherever the memory starts."""
    kernel, choices = zipped(isa, dtype, length=length), Choices(kept=1)
    line = min(64, 2 * dtype.itemsize * kernel.vector.lanes)
    whole = length * 2 * dtype.itemsize % line == 0
    assert ("store_pairs<true>" in generate(kernel, target(isa), choices).code) == whole
    library = Library(isa, [kernel], choices)
    x, row = torch.randint(-50, 50, (ROWS, 2, length)).to(dtype), torch.randint(-50, 50, (ROWS, 2)).to(dtype)
    for start in (0, 1):
        y = torch.full((ROWS * length * 2 + 40,), 1, dtype=dtype)
        library.run(kernel, x, row, y[start:])
        assert torch.equal(y[start : start + ROWS * length * 2].view(ROWS, length, 2), (x + row[..., None]).mT)
        assert torch.equal(y[start + ROWS * length * 2 :], torch.full((40 - start,), 1, dtype=dtype))


def test_the_loop_is_gone_and_the_body_has_both_points(isa: str) -> None:
    kernel = as_twins(zipped(isa, F32, parallel=2))
    verify_kernel(kernel)
    assert (len(kernel.outer), kernel.parallel, len(kernel.stores)) == (2, 1, 2)
    assert are_twins(kernel)
    assert kernel.work == 200


@pytest.mark.parametrize("dtype", [BF16, F16, BOOL], ids=str)
def test_elements_that_vectors_hold_as_others_stay_apart(isa: str, dtype: torch.dtype) -> None:
    kernel = zipped(isa, dtype)
    assert as_twins(kernel) is kernel


def test_three_points_and_gaps_between_pairs_stay_apart(isa: str) -> None:
    for kernel in (zipped(isa, F32, points=3, step=3), zipped(isa, F32, step=3)):
        assert as_twins(kernel) is kernel
