"""Both points of a loop that store neighbours, in one store."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.twins import are_twins, as_twins
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.verify import verify_kernel

from .build import BF16, BOOL, F16, F32, F64, I32, I64, Build
from .harness import VECTORS, Library, target

ISAS = VECTORS
N = size_symbol("n")
ROWS = 3
DTYPES = (F32, F64, I32, I64)


def zipped(isa: str, dtype: torch.dtype, parallel: int = 1, points: int = 2, step: int = 2) -> Kernel:
    """Y[r, i, k] = X[r, k, i] + R[r, k]: lanes along i, k over two neighbours."""
    r, k, i = loop_var("r", ROWS), loop_var("k", points), loop_var("i", of(N))
    build = Build()
    x = build.load("X", (of(r) * 2 + of(k)) * of(N) + of(i), dtype)
    row = build.load("R", of(r) * 2 + of(k), dtype, "uniform")
    total = x if dtype == BOOL else build.op("add", x, row)
    build.store("Y", of(r) * (of(N) * step) + of(i) * step + of(k), total, "strided")
    return build.kernel(isa, (r, k, i), vector=i, parallel=parallel, work=100, sizes=(N,))


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {(dtype, 1): zipped(isa, dtype) for dtype in DTYPES}
    return found | {(F32, parallel): zipped(isa, F32, parallel) for parallel in (0, 2, 3)}


@pytest.mark.parametrize(("dtype", "parallel"), kernels("avx2"), ids=str)
def test_two_vectors_are_stored_as_pairs(library: Library, isa: str, dtype: torch.dtype, parallel: int) -> None:
    kernel = kernels(isa)[dtype, parallel]
    assert ("store_pairs" in generate(kernel, target(isa)).code) == are_twins(as_twins(kernel))
    for n in (1, 7, 16, 33, 64):
        x, row = torch.randint(0, 100, (ROWS, 2, n)).to(dtype), torch.randint(0, 100, (ROWS, 2)).to(dtype)
        y = torch.full((ROWS * n * 2 + 40,), 1, dtype=dtype)
        library.run(kernel, x, row, y, sizes=(n,))
        assert torch.equal(y[: ROWS * n * 2].view(ROWS, n, 2), (x + row[..., None]).transpose(1, 2))
        assert torch.equal(y[ROWS * n * 2 :], torch.full((40,), 1, dtype=dtype))


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
