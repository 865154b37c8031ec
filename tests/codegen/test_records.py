"""Neighbours that are computed apart, in one store, or needed apart, in one load."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.records import as_records, records
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.index import as_expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.verify import verify_kernel
from tests.cases import cases

from .build import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, Build
from .harness import VECTORS, Library, target

ISAS = VECTORS
N = size_symbol("n")
ROWS = 3
DTYPES = (F32, F64, I32, I64, I16, I8, U8, BF16, F16)
SIZES = (2, 3, 4)


def zipped(
    isa: str, dtype: torch.dtype, size: int = 2, parallel: int = 1, step: int | None = None, length: int | None = None
) -> Kernel:
    """Y[r, i, k] = X[r, k, i] + R[r, k]: lanes along i, of a known length or not, k over a record."""
    n, step = of(N) if length is None else as_expr(length), step or size
    r, k, i = loop_var("r", ROWS), loop_var("k", size), loop_var("i", n)
    build = Build()
    x = build.load("X", (of(r) * size + of(k)) * n + of(i), dtype)
    row = build.load("R", of(r) * size + of(k), dtype, "uniform")
    total = x if dtype == BOOL else build.op("add", x, row)
    build.store("Y", of(r) * (n * step) + of(i) * step + of(k), total, "strided")
    return build.kernel(isa, (r, k, i), vector=i, parallel=parallel, work=100, sizes=(N,) if length is None else ())


def several(isa: str) -> Kernel:
    """Y[i] = (b, a, a + b) and Z[i] = a * b of a = X[i, 0], b = X[i, 1], stored in no order."""
    i, build = loop_var("i", of(N)), Build()
    a, b = (build.load("X", of(i) * 2 + k, F32, "strided") for k in (0, 1))
    build.store("Y", of(i) * 3 + 2, build.op("add", a, b), "strided")
    build.store("Z", of(i), build.op("mul", a, b))
    build.store("Y", of(i) * 3, b, "strided")
    build.store("Y", of(i) * 3 + 1, a, "strided")
    return build.kernel(isa, (i,), vector=i, work=100, sizes=(N,))


def products(isa: str, dtype: torch.dtype, size: int, extra: int = 0) -> Kernel:
    """Y[i] = X[i, :] * X[i, 0], whose columns are read in reverse, of rows that have `extra` more elements in front."""
    i, build = loop_var("i", of(N)), Build()
    parts = [build.load("X", of(i) * (size + extra) + k + extra, dtype, "strided") for k in reversed(range(size))]
    for k, part in enumerate(reversed(parts)):
        build.store("Y", of(i) * size + k, build.op("mul", part, parts[-1]), "strided")
    return build.kernel(isa, (i,), vector=i, work=100, sizes=(N,))


#: (dtype, size, how many loops are shared). In every run floats have all sizes, and other dtypes one each.
ZIPPED = [(dtype, size, 1) for dtype in DTYPES for size in SIZES]
ALWAYS = [case for number, case in enumerate(ZIPPED) if case[0] in (F32, F64) or number // 3 % 3 == number % 3]
ALWAYS += [(F32, 2, parallel) for parallel in (0, 2, 3)]
FULL = [case for case in ZIPPED if case not in ALWAYS]


#: (dtype, size)
LOADED = list(product((F32, I32, I16, BF16, F16, F64, I8), SIZES))


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {case: zipped(isa, *case) for case in (*ALWAYS, *FULL)}
    found |= {("products", *case): products(isa, *case) for case in LOADED}
    return found | {"several": several(isa), "gaps": products(isa, F32, 3, extra=1)}


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randint(-50, 50, shape).to(dtype)


@pytest.mark.parametrize(("dtype", "size", "parallel"), cases(ALWAYS, FULL), ids=str)
def test_vectors_are_stored_as_records(
    library: Library, isa: str, dtype: torch.dtype, size: int, parallel: int
) -> None:
    kernel = kernels(isa)[dtype, size, parallel]
    assert ("store_records" in generate(kernel, target(isa)).code) == (records(as_records(kernel)) != ())
    for n in (1, 7, 16, 33, 64):
        x, row = numbers(dtype, ROWS, size, n), numbers(dtype, ROWS, size)
        y = torch.full((ROWS * n * size + 40,), 1, dtype=dtype)
        library.run(kernel, x, row, y, sizes=(n,))
        assert torch.equal(y[: ROWS * n * size].view(ROWS, n, size), (x + row[..., None]).transpose(1, 2))
        assert torch.equal(y[ROWS * n * size :], torch.full((40,), 1, dtype=dtype))


def test_records_find_their_order_among_other_stores(library: Library, isa: str) -> None:
    kernel = kernels(isa)["several"]
    assert records(kernel) == ((2, 3, 0),)
    for n in (1, 15, 16, 50):
        x, y, z = torch.randn(n, 2), torch.zeros(n * 3 + 8), torch.zeros(n + 8)
        library.run(kernel, x, y, z, sizes=(n,))
        assert torch.equal(y[: n * 3].view(n, 3), torch.stack([x[:, 1], x[:, 0], x.sum(1)], 1))
        assert torch.equal(z[:n], x.prod(1))
        assert not y[n * 3 :].any()
        assert not z[n:].any()


@pytest.mark.parametrize(("dtype", "size"), LOADED, ids=str)
def test_all_parts_of_records_are_one_load(library: Library, isa: str, dtype: torch.dtype, size: int) -> None:
    """Products of any numbers, and of what is none, are rounded as eager rounds them."""
    kernel = kernels(isa)["products", dtype, size]
    sorted_ = dtype.itemsize in (2, 4)
    assert generate(kernel, target(isa)).code.count("load_records") == sorted_
    for n in (1, 7, 8, 17, 64, 67):
        x = torch.randn(n, size).mul(100).to(dtype)
        if dtype.is_floating_point and n > 8:
            x[::5, size - 1], x[1::5, size - 1], x[2::5, 0] = torch.nan, torch.inf, -torch.nan
        y = torch.full((n * size + 40,), 1, dtype=dtype)
        library.run(kernel, x, y, sizes=(n,))
        assert torch.equal(y[: n * size].view(n, size).nan_to_num(7), (x * x[:, :1]).nan_to_num(7))
        assert torch.equal(y[n * size :], torch.full((40,), 1, dtype=dtype))


def test_records_with_gaps_between_them_are_loaded_by_part(library: Library, isa: str) -> None:
    kernel = kernels(isa)["gaps"]
    assert "load_records" not in generate(kernel, target(isa)).code
    x, y = torch.randn(37, 4), torch.zeros(37, 3)
    library.run(kernel, x, y, sizes=(37,))
    assert torch.equal(y, x[:, 1:] * x[:, 1:2])


#: (dtype, size, length)
AROUND = list(product((F32, F64, BF16, I8), SIZES, (64, 72)))
KEPT_NOWHERE = Choices(kept=1)


@pytest.fixture(scope="module")
def around(isa: str) -> Library:
    return Library(isa, [zipped(isa, dtype, size, length=length) for dtype, size, length in AROUND], KEPT_NOWHERE)


@pytest.mark.parametrize(("dtype", "size", "length"), AROUND, ids=str)
def test_records_that_no_cache_keeps_go_around_it(
    around: Library, isa: str, dtype: torch.dtype, size: int, length: int
) -> None:
    """Where lines are whole; wherever the memory starts."""
    kernel = zipped(isa, dtype, size, length=length)
    vector = size * dtype.itemsize * kernel.vector.lanes
    whole = vector % min(64, vector) == 0 and length * size * dtype.itemsize % min(64, vector) == 0
    assert ("store_records<true" in generate(kernel, target(isa), KEPT_NOWHERE).code) == whole
    x, row = numbers(dtype, ROWS, size, length), numbers(dtype, ROWS, size)
    for start in (0, 1):
        y = torch.full((ROWS * length * size + 40,), 1, dtype=dtype)
        around.run(kernel, x, row, y[start:])
        end = start + ROWS * length * size
        assert torch.equal(y[start:end].view(ROWS, length, size), (x + row[..., None]).mT)
        assert torch.equal(y[end:], torch.full((40 - start,), 1, dtype=dtype))


@pytest.mark.parametrize("size", SIZES)
def test_the_loop_is_gone_and_the_body_has_all_points(isa: str, size: int) -> None:
    kernel = as_records(zipped(isa, F32, size, parallel=2))
    verify_kernel(kernel)
    assert (len(kernel.outer), kernel.parallel, len(kernel.stores)) == (2, 1, size)
    assert records(kernel) == (tuple(range(size)),)
    assert kernel.work == 100 * size


def test_masks_stay_apart(isa: str) -> None:
    kernel = zipped(isa, BOOL)
    assert as_records(kernel) is kernel


def test_five_points_and_gaps_between_records_stay_apart(isa: str) -> None:
    for kernel in (zipped(isa, F32, size=5), zipped(isa, F32, step=3), zipped(isa, F32, size=3, step=4)):
        assert as_records(kernel) is kernel
