"""Copies that change the order of dimensions go through square tiles."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.tiles import goes_in_columns
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.index import as_expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.ops import LOOP_DTYPES
from tests.cases import cases, full_only, in_turns

from .build import BF16, F32, F64, I64, Build
from .harness import VECTORS, Library, target

N, M = size_symbol("n"), size_symbol("m")
DTYPES = sorted(LOOP_DTYPES, key=str)
ISAS = VECTORS


def transpose(isa: str, dtype: torch.dtype, along: str, parallel: int) -> Kernel:
    """Y[i, j] = X[j, i] + X[j, i], lanes along the loop that is contiguous in Y or in X."""
    i, j = loop_var("i", of(N)), loop_var("j", of(M))
    b = Build()
    x = b.load("X", of(j) * of(N) + of(i), dtype, "strided" if along == "j" else "contiguous")
    b.store("Y", of(i) * of(M) + of(j), x, "contiguous" if along == "j" else "strided")
    return b.kernel(isa, (i, j), vector=j if along == "j" else i, parallel=parallel, work=100, sizes=(N, M))


def permuted_sum(isa: str, order: tuple[int, int, int], parallel: int) -> Kernel:
    """Y[a, b, c] = X[permuted] + row[a] as bf16, with a middle loop between the loops of the tile."""
    loops = [loop_var(f"i{d}", s) for d, s in enumerate((5, 9, 37))]
    strides, step = {}, 1
    for d in reversed(order):
        strides[d], step = step, step * (5, 9, 37)[d]
    b = Build()
    place = sum((of(s) * strides[d] for d, s in enumerate(loops)), as_expr(0))
    x = b.load("X", place, F32, "contiguous" if order[-1] == 2 else "strided")
    row = b.load("R", of(loops[0]), F32, "uniform")
    flat = of(loops[0]) * 333 + of(loops[1]) * 37 + of(loops[2])
    b.store("Y", flat, b.cast(b.op("add", x, row), BF16))
    return b.kernel(isa, loops, vector=loops[2], parallel=parallel, work=100)


#: In every run, each dtype with lanes along one of the loops, and one of each size along both.
ALONG = [
    (dtype, along, 0)
    for number, dtype in enumerate(DTYPES)
    for along in "ij"
    if dtype in (F32, I64, BF16, torch.int8) or along == "ij"[number % 2]
]
SHARED = list(product((F32, I64), "ij", (1, 2)))
MORE = [case for case in product(DTYPES, "ij", (0,)) if case not in ALONG]

ORDERS = [(0, 2, 1), (1, 2, 0), (2, 1, 0), (2, 0, 1), (1, 0, 2)]


PERMUTED = in_turns(ORDERS, range(4))
FULL = [*MORE, *full_only(PERMUTED)]


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {case: transpose(isa, *case) for case in (*ALONG, *SHARED, *MORE)}
    for order, parallel in product(ORDERS, range(4)):
        found[order, parallel] = permuted_sum(isa, order, parallel)
    return found


@pytest.mark.parametrize(("dtype", "along", "parallel"), cases([*ALONG, *SHARED], MORE), ids=str)
def test_transposed_copy(library: Library, isa: str, dtype: torch.dtype, along: str, parallel: int) -> None:
    for n, m in ((1, 1), (3, 40), (16, 16), (17, 8), (37, 50), (64, 33)):
        x = torch.randint(0, 2 if dtype == torch.bool else 100, (m, n)).to(dtype)
        y = torch.full((n * m + 20,), 1, dtype=dtype)
        library.run(kernels(isa)[dtype, along, parallel], x, y, sizes=(n, m))
        assert torch.equal(y[: n * m].view(n, m), x.t())
        assert torch.equal(y[n * m :], torch.full((20,), 1, dtype=dtype))


@pytest.mark.parametrize(("order", "parallel"), PERMUTED, ids=str)
def test_permuted_sum(library: Library, isa: str, order: tuple[int, int, int], parallel: int) -> None:
    x, row = torch.randn(5, 9, 37), torch.randn(5)
    y = torch.zeros(5, 9, 37, dtype=BF16)
    library.run(kernels(isa)[order, parallel], x.permute(order).contiguous(), row, y)
    assert torch.equal(y, (x + row[:, None, None]).to(BF16))


def test_tiles_serve_all_types_but_masks(isa: str) -> None:
    tiled = {dtype for dtype in DTYPES if Facts(kernels(isa)[dtype, "j", 0]).tile is not None}
    assert tiled == set(DTYPES) - {torch.bool}


LONG, SHORT = 16 * 16 + 5, 37


def columns(isa: str, dtype: torch.dtype, parallel: int, length: int = LONG) -> Kernel:
    """Y[b, i, j] = X[b, j, i], i along a loop of some length, lanes along a short one."""
    b, i, j = loop_var("b", 3), loop_var("i", length), loop_var("j", SHORT)
    build, plane = Build(), of(b) * (length * SHORT)
    x = build.load("X", plane + of(j) * length + of(i), dtype, "strided")
    build.store("Y", plane + of(i) * SHORT + of(j), x)
    return build.kernel(isa, (b, i, j), vector=j, parallel=parallel, work=100)


def test_tiles_go_along_their_own_loop_where_the_other_one_is_short(isa: str) -> None:
    """Of kernels for CPUs that follow runs, of which there are fewer then."""
    cases = [*((F32, n, LONG) for n in range(4)), (BF16, 2, LONG), (I64, 2, LONG), (F32, 2, 21), (I64, 0, 21)]
    built = {case: columns(isa, *case) for case in cases}
    library = Library(isa, built.values(), Choices(runs=False))
    for (dtype, parallel, length), kernel in built.items():
        tile = Facts(kernel).tile
        assert tile is not None
        assert goes_in_columns(kernel, tile) == (parallel < 3)
        x, y = torch.randint(0, 100, (3, SHORT, length)).to(dtype), torch.zeros(3, length, SHORT, dtype=dtype)
        library.run(kernel, x, y)
        assert torch.equal(y, x.transpose(1, 2))


def test_a_column_of_tiles_stands_inside_of_the_lanes(isa: str) -> None:
    kernel, loops = columns(isa, F32, 2), ("for_vectors", "i1_start = ")
    places = {
        runs: [generate(kernel, target(isa), Choices(runs=runs)).code.index(text) for text in loops]
        for runs in (True, False)
    }
    assert places[True] != sorted(places[True])
    assert places[False] == sorted(places[False])


def test_the_rows_of_one_or_two_tiles_with_a_short_body_stay_in_registers(isa: str) -> None:
    def unrolled(kernel: Kernel) -> bool:
        return "with_tile<true" in generate(kernel, target(isa)).code

    assert unrolled(columns(isa, F32, 2))
    assert unrolled(columns(isa, BF16, 2))
    assert unrolled(columns(isa, I64, 2))
    assert unrolled(several(isa, F32, F32))
    assert not unrolled(several(isa, F32, F32, F32))
    assert not unrolled(several(isa, F32, F64))  # two registers a row
    assert not unrolled(heavy(isa))


@pytest.mark.parametrize("dtypes", [(F32, F32), (I64, F64), (F32, F64), (F64, F32, BF16)], ids=str)
def test_tiles_of_several_types_have_one_height(isa: str, dtypes: tuple[torch.dtype, ...]) -> None:
    """That of lanes of 64 bits only where all have these."""
    kernel = several(isa, *dtypes)
    assert ("kShortTile" in generate(kernel, target(isa)).code) == all(dtype.itemsize == 8 for dtype in dtypes)
    operands = [torch.randint(0, 100, (SHORT, LONG)).to(dtype) for dtype in dtypes]
    y = torch.zeros(LONG, SHORT, dtype=F64)
    Library(isa, [kernel]).run(kernel, *operands, y)
    assert torch.equal(y, sum(x.to(F64) for x in operands).t())


def several(isa: str, *dtypes: torch.dtype) -> Kernel:
    """Y[i, j] = X0[j, i] + X1[j, i] + ... in float64."""
    i, j = loop_var("i", LONG), loop_var("j", SHORT)
    build, total = Build(), -1
    for number, dtype in enumerate(dtypes):
        x = build.load(f"X{number}", of(j) * LONG + of(i), dtype, "strided")
        x = x if dtype == F64 else build.cast(x, F64)
        total = x if total < 0 else build.op("add", total, x)
    build.store("Y", of(i) * SHORT + of(j), total)
    return build.kernel(isa, (i, j), vector=j, parallel=1, work=100)


def heavy(isa: str) -> Kernel:
    """Y[i, j] = exp(X[j, i])."""
    i, j = loop_var("i", LONG), loop_var("j", SHORT)
    build = Build()
    build.store("Y", of(i) * SHORT + of(j), build.op("exp", build.load("X", of(j) * LONG + of(i), F32, "strided")))
    return build.kernel(isa, (i, j), vector=j, parallel=1, work=100)


PADDED = (48, 24)  # of rows and columns, in which a smaller matrix lies


def padded(isa: str, dtype: torch.dtype, parallel: int = 0, fill: float = 0, before: str | None = None) -> Kernel:
    """Y[i, j] = X[j, i] where i < n and j < m, else `fill`, Y of fixed sizes. before: tests the other way round."""
    i, j = (loop_var(name, size) for name, size in zip("ij", PADDED, strict=True))
    b = Build()
    inside = b.op("logical_and", *(b.op("lt", b.index(of(p)), b.index(of(n))) for p, n in ((i, N), (j, M))))
    if before is not None:
        inside = b.op("logical_and", inside, b.op(before, b.index(of(i)), b.const(0, I64)))
    x = b.load("X", of(j) * of(N) + of(i), dtype, "strided", mask=inside, fill=fill)
    b.store("Y", of(i) * PADDED[1] + of(j), x)
    return b.kernel(isa, (i, j), vector=j, parallel=parallel, work=100, sizes=(N, M))


@pytest.fixture(scope="module")
def padding(isa: str) -> Library:
    shared = [padded(isa, dtype, parallel) for dtype in (F32, I64) for parallel in (1, 2)]
    return Library(isa, [*shared, *(padded(isa, dtype) for dtype in DTYPES)])


@pytest.mark.parametrize(("dtype", "parallel"), [*((d, 0) for d in DTYPES), *product((F32, I64), (1, 2))], ids=str)
@pytest.mark.parametrize("sizes", [(1, 1), (5, 24), (8, 8), (16, 16), (17, 9), (47, 23), (48, 24), (33, 17)], ids=str)
def test_a_matrix_with_zeros_behind_it_is_turned_over(
    padding: Library, isa: str, dtype: torch.dtype, parallel: int, sizes: tuple[int, int]
) -> None:
    """Nothing behind the matrix is read: what is stored there would show."""
    n, m = sizes
    memory = torch.ones(n * m + 200).to(dtype)
    memory[: n * m] = torch.randint(0, 2 if dtype == torch.bool else 100, (n * m,)).to(dtype)
    y = torch.ones(PADDED).to(dtype)
    padding.run(padded(isa, dtype, parallel), memory, y, sizes=sizes)
    want = torch.zeros(PADDED).to(dtype)
    want[:n, :m] = memory[: n * m].view(m, n).t()
    assert torch.equal(y.float(), want.float())


def test_loads_are_turned_over_whose_masks_end_loops_and_that_give_zeros(isa: str) -> None:
    assert Facts(padded(isa, F32)).tile is not None
    assert Facts(padded(isa, F32, fill=1)).tile is None
    assert Facts(padded(isa, F32, fill=-0.0)).tile is None
    assert Facts(padded(isa, F32, before="ge")).tile is None


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_batch_with_zeros_behind_it_is_turned_over(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, 3, 0, 2, 0, 2)).transpose(1, 2).contiguous()

    compiled = torch.compile(function, backend="icpu", dynamic=dynamic)
    for sizes in ((5, 20, 19), (2, 37, 40)):
        x = torch.randn(sizes)
        assert torch.equal(compiled(x), function(x))


def test_rows_that_two_conditions_choose_are_turned_over() -> None:
    """GCC 12 made a shift of vectors of the two conditions, and could not compile it."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.triu(x, 2).transpose(0, 2).contiguous(), torch.triu(x, 0)

    x = torch.randn(32, 7, 4)
    for got, want in zip(torch.compile(function, backend="icpu")(x), function(x), strict=True):
        assert torch.equal(got, want)
