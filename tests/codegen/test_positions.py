"""argmax and argmin over loops of known size: positions of 32 bits, and rows that are long enough for blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch

from inductor_cpu.codegen.folds import LONG_ROW
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel, Phase
from tests.cases import cases

from .build import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, Build
from .harness import VECTORS, library_of, target

ROWS = 3
M = size_symbol("m")
KINDS = ("argmax", "argmin")
DTYPES = (F32, F64, BF16, F16, I64, I32, I8, U8, BOOL)
LONG = LONG_ROW + 16 * 37 + 5
#: Whole blocks, a part of a block, a part of a vector, the longest row without blocks.
LENGTHS = (LONG_ROW, LONG_ROW + 32, LONG, LONG_ROW - 1)
#: The first and the last place, those around the borders of blocks, and the last whole vector.
PLACES = (0, 511, 512, 1023, 1024, 5000, 8191, 8192, LONG - 6, LONG - 1)


#: Of every run: lanes of other dtypes are floats or integers of 32 bits, as they are for the largest values.
ALWAYS = [("argmax", dtype) for dtype in DTYPES] + [("argmin", dtype) for dtype in (F32, F64, I64, I32)]
MORE = [(kind, dtype) for kind in KINDS for dtype in DTYPES if (kind, dtype) not in ALWAYS]
FULL = [f"{before}{kind}-{dtype}" for before in ("", "short-") for kind, dtype in MORE]


#: Extremes together with their places, by size and dtype: each dtype in one of the sizes in every run, and two in all.
SIZES = (5, 70, LONG)
EXTREMES = list(product(SIZES, DTYPES))
SOME = [
    (size, dtype)
    for number, dtype in enumerate(DTYPES)
    for turn, size in enumerate(SIZES)
    if dtype in (F32, I64) or turn == number % 3
]
FULL += [f"extremes-{size}-{dtype}" for size, dtype in EXTREMES if (size, dtype) not in SOME]


def of_dtypes(*dtypes: torch.dtype) -> list[Any]:
    """Parameters (kind, dtype)."""
    return cases(*([case for case in some if case[1] in dtypes] for some in (ALWAYS, MORE)))


def rows(isa: str, kind: str, dtype: torch.dtype, size: int) -> Kernel:
    """Y[i] = the place of the extreme of X[i, :], lanes along the row."""
    i, r = loop_var("i", of(M)), loop_var("r", size)
    b = Build()
    b.store("Y", of(i), b.reduce(kind, b.load("X", of(i) * size + of(r), dtype)), "uniform")
    return b.kernel(isa, (i,), (r,), r, [Phase((1,), ())], sizes=(M,))


def short_rows(isa: str, kind: str, dtype: torch.dtype, size: int) -> Kernel:
    """The same, a row a lane."""
    i, r = loop_var("i", of(M)), loop_var("r", size)
    b = Build()
    b.store("Y", of(i), b.reduce(kind, b.load("X", of(i) * size + of(r), dtype, "strided")))
    return b.kernel(isa, (i,), (r,), i, [Phase((1,), ())], sizes=(M,))


def extremes(isa: str, dtype: torch.dtype, size: int, *, along: bool) -> Kernel:
    """The largest and the smallest values of X[i, :] and their places, with lanes along the row, or a row a lane."""
    i, r = loop_var("i", of(M)), loop_var("r", size)
    b = Build()
    x = b.load("X", of(i) * size + of(r), dtype, "contiguous" if along else "strided")
    folds = [b.reduce(kind, x) for kind in ("max", "argmax", "argmin", "min")]
    for number, fold in enumerate(folds):
        b.store(f"Y{number}", of(i), fold, "uniform" if along else "contiguous")
    return b.kernel(isa, (i,), (r,), r if along else i, [Phase(tuple(folds), ())], sizes=(M,))


def several(isa: str) -> Kernel:
    """Both extremes of 1 - 2 X[i, :] Y[:], their places, the sum, and the place of the largest |X[i, :]|."""
    i, r = loop_var("i", of(M)), loop_var("r", LONG)
    b = Build()
    x = b.load("X", of(i) * LONG + of(r), F32)
    y = b.load("Y", of(r), F32)
    value = b.op("sub", b.const(1, F32), b.op("mul", b.op("mul", b.const(2, F32), x), y))
    folds = [b.reduce(kind, value) for kind in ("argmin", "max", "argmax", "sum", "min")]
    folds.append(b.reduce("argmax", b.op("abs", x)))
    for number, fold in enumerate(folds):
        b.store(f"Z{number}", of(i), fold, "uniform")
    return b.kernel(isa, (i,), (r,), r, [Phase(tuple(folds), ())], sizes=(M,))


@cache
def kernels(isa: str) -> dict[str, Kernel]:
    found = {"several": several(isa)}
    for size, dtype in EXTREMES:
        found[f"extremes-{size}-{dtype}"] = extremes(isa, dtype, size, along=size > 5)
    for kind in KINDS:
        for dtype in DTYPES:
            found[f"{kind}-{dtype}"] = rows(isa, kind, dtype, LONG)
            found[f"short-{kind}-{dtype}"] = short_rows(isa, kind, dtype, 5)
        for size in LENGTHS:
            found[f"{kind}-{size}"] = rows(isa, kind, F32, size)
    return found


@pytest.fixture(scope="module")
def run(isa: str) -> Callable[..., None]:
    library = library_of(isa, kernels(isa), FULL)

    def call(key: str, *buffers: torch.Tensor) -> None:
        library.run(kernels(isa)[key], *buffers, sizes=(len(buffers[0]),))

    return call


def few_values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Values of which many are equal."""
    if dtype == BOOL:
        return torch.rand(shape) < 0.5
    return torch.randint(0 if dtype == U8 else -40, 40, shape).to(dtype)


def places(kind: str, x: torch.Tensor) -> torch.Tensor:
    place: torch.Tensor = getattr(torch, kind)(x.int() if x.dtype == BOOL else x, 1)
    return place


def check(run: Callable[..., None], key: str, kind: str, x: torch.Tensor) -> None:
    got = torch.empty(len(x), dtype=I64)
    run(key, x, got)
    assert torch.equal(got, places(kind, x))


def extreme(kind: str) -> float:
    return 100.0 if kind == "argmax" else -100.0


@pytest.mark.parametrize(("kind", "dtype"), of_dtypes(*DTYPES), ids=str)
def test_first_of_equal_values_wins(run: Callable[..., None], kind: str, dtype: torch.dtype) -> None:
    check(run, f"{kind}-{dtype}", kind, few_values(dtype, ROWS, LONG))
    check(run, f"short-{kind}-{dtype}", kind, few_values(dtype, 150, 5))


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_do_and_do_not_end_with_a_block(run: Callable[..., None], kind: str, size: int) -> None:
    x = torch.randn(ROWS, size)
    check(run, f"{kind}-{size}", kind, x)
    x[:, -1] = extreme(kind)
    check(run, f"{kind}-{size}", kind, x)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_at_borders_of_blocks(run: Callable[..., None], kind: str) -> None:
    x = torch.randn(len(PLACES), LONG)
    for row, place in enumerate(PLACES):
        x[row, place] = extreme(kind)
    check(run, f"{kind}-{F32}", kind, x)
    x[:, LONG - 2] = extreme(kind)  # a tie with another block
    check(run, f"{kind}-{F32}", kind, x)


@pytest.mark.parametrize(("kind", "dtype"), of_dtypes(F32, F64, BF16), ids=str)
def test_first_nan_wins_wherever_the_extreme_is(run: Callable[..., None], kind: str, dtype: torch.dtype) -> None:
    x = torch.randn(len(PLACES), LONG).to(dtype)
    for row, place in enumerate(PLACES):
        x[row, PLACES[-1 - row]] = extreme(kind)
        x[row, place] = float("nan")
    check(run, f"{kind}-{dtype}", kind, x)
    x[:, LONG - 2] = float("nan")
    check(run, f"{kind}-{dtype}", kind, x)
    x[:] = float("nan")
    check(run, f"{kind}-{dtype}", kind, x)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_value(run: Callable[..., None], kind: str, value: float) -> None:
    x = torch.full((ROWS, LONG), value)
    check(run, f"{kind}-{F32}", kind, x)
    x[:, 100:] *= -1  # zeros of both signs are equal
    check(run, f"{kind}-{F32}", kind, x)


@pytest.mark.parametrize(("kind", "dtype"), of_dtypes(I64, I32, I8, U8), ids=str)
def test_integers_at_the_ends_of_their_range(run: Callable[..., None], kind: str, dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    ends = torch.tensor([info.min, info.max], dtype=dtype)
    for end in ends:
        check(run, f"{kind}-{dtype}", kind, end.expand(ROWS, LONG).contiguous())
    check(run, f"{kind}-{dtype}", kind, ends[(torch.rand(ROWS, LONG) < 0.0005).long()])


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_in_short_rows(run: Callable[..., None], kind: str) -> None:
    x = few_values(F32, 5000, 5)
    for value in (float("nan"), float("inf"), float("-inf"), -0.0, 0.0):
        x[torch.rand(x.shape) < 0.2] = value
    check(run, f"short-{kind}-{F32}", kind, x)


@pytest.mark.parametrize(("size", "dtype"), cases(SOME, [case for case in EXTREMES if case not in SOME]), ids=str)
def test_extremes_and_their_places(run: Callable[..., None], size: int, dtype: torch.dtype) -> None:
    x = few_values(dtype, 60, size)
    if dtype.is_floating_point:
        x[7, size // 2] = x[9, 0] = x[9, -1] = float("nan")
        x[5] = float("-inf")
    want = [torch.amax(x, 1), places("argmax", x), places("argmin", x), torch.amin(x, 1)]
    got = [torch.empty_like(w) for w in want]
    run(f"extremes-{size}-{dtype}", x, *got)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.skipif(not VECTORS, reason="no vectors")
def test_place_of_an_extreme_holds_it() -> None:
    isa = VECTORS[-1]
    text = generate(extremes(isa, F32, LONG, along=True), target(isa)).code
    assert "icpu::Max<" not in text
    assert "icpu::Min<" not in text


def test_several_reductions_of_one_long_row(run: Callable[..., None]) -> None:
    x, y = few_values(F32, 40, LONG), few_values(F32, LONG)
    x[7, 6000] = float("nan")
    value = 1 - 2 * x * y
    want = [value.argmin(1), value.amax(1), value.argmax(1), value.sum(1), value.amin(1), x.abs().argmax(1)]
    got = [torch.empty_like(w) for w in want]
    run("several", x, y, *got)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.skipif(not VECTORS, reason="no vectors")
def test_only_long_rows_of_known_size_are_searched_by_blocks() -> None:
    isa = VECTORS[-1]
    texts = [generate(rows(isa, "argmax", F32, size), target(isa)).code for size in (LONG_ROW - 1, LONG_ROW)]
    assert ["icpu::for_best_block" in text for text in texts] == [False, True]
    assert all("ArgMax32" in text for text in texts)
