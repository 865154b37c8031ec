"""Loads, stores, conversions and tails of pointwise kernels."""

from __future__ import annotations

import dataclasses
import math
from functools import cache, partial
from itertools import product

import pytest
import torch

from inductor_cpu.ir.index import Expr, Func, loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import SHORT_STRIDES, Kernel
from inductor_cpu.ir.ops import FLOAT8, LOOP_DTYPES
from inductor_cpu.targets import cpu
from tests.cases import cases

from .build import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, Build
from .harness import Library, alike_in_turns, target

DTYPES = sorted(LOOP_DTYPES, key=str)
FLOATS8 = sorted(FLOAT8, key=str)
N = size_symbol("n")
I = loop_var("i", of(N))
SENTINEL = 77


def values(dtype: torch.dtype, count: int) -> torch.Tensor:
    if dtype == BOOL:
        return torch.arange(count) % 3 == 0
    return (torch.arange(count) % 90 - 20).abs().to(dtype)


def name(kind: str, *parts: object) -> str:
    return "-".join([kind, *(str(p).removeprefix("torch.") for p in parts)])


@cache
def kernels(isa: str) -> dict[str, Kernel]:
    """All but those of `FULL` are those of every run."""
    found: dict[str, Kernel] = {}
    for dtype in DTYPES:
        found |= {name(kind, dtype): build(isa, dtype) for kind, build in BY_DTYPE.items()}
        found[name("cast", dtype)] = cast(isa, dtype)
        found[name("short_strides", dtype)] = short_strides(isa, dtype)
        found[name("masked_strides", dtype)] = masked_strides(isa, dtype)
    return found | {kind: build(isa) for kind, build in SINGLE.items()}


# -- the kernels -----------------------------------------------------------------------------------------------------
def copy(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    b.store("Y", of(I), b.load("X", of(I), dtype))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def cast(isa: str, dtype: torch.dtype) -> Kernel:
    """One output for each dtype."""
    b = Build()
    x = b.load("X", of(I), dtype)
    for to in DTYPES:
        b.store(f"Y{to}", of(I), b.cast(x, to))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


#: Strides of loads that sort registers, and of one that does not.
STRIDES = (*SHORT_STRIDES, 9)


def strided_load(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    b.store("Y", of(I), b.load("X", of(I) * 3 + 1, dtype, "strided"))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def strided_store(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    b.store("Y", of(I) * 2, b.load("X", of(I), dtype), "strided")
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def short_strides(isa: str, dtype: torch.dtype) -> Kernel:
    """Y2, Y3... [i] = X2[2 i], X3[3 i]..."""
    b = Build()
    for stride in STRIDES:
        b.store(f"Y{stride}", of(I), b.load(f"X{stride}", of(I) * stride, dtype, "strided"))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def masked_strides(isa: str, dtype: torch.dtype) -> Kernel:
    """The same where M[i], else 1."""
    b = Build()
    mask = b.load("M", of(I), BOOL)
    for stride in STRIDES:
        b.store(f"Y{stride}", of(I), b.load(f"X{stride}", of(I) * stride, dtype, "strided", mask=mask, fill=1))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def gather_load(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    k = b.load("K", of(I), I64)
    b.store("Y", of(I), b.load("X", of(value_symbol(k, None)) * 2 + 1, dtype, "gather"))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def gather_store(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    k = b.load("K", of(I), I64)
    b.store("Y", of(value_symbol(k, None)), b.load("X", of(I), dtype), "gather")
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def folded_load(isa: str, dtype: torch.dtype) -> Kernel:
    """X[i // 5 * 7 + i % 5]: an address with divisions that differ between lanes."""
    b = Build()
    b.store("Y", of(I), b.load("X", (of(I) // 5) * 7 + of(I) % 5, dtype, "gather"))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def aligned_load(isa: str, dtype: torch.dtype) -> Kernel:
    """X[i // 16 * 20 + i % 16]: contiguous within vectors that start at multiples of the lanes."""
    b = Build()
    b.store("Y", of(I), b.load("X", (of(I) // 16) * 20 + of(I) % 16, dtype, "gather"))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def aligned_store(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    b.store("Y", (of(I) // 16) * 20 + of(I) % 16, b.load("X", of(I), dtype), "gather")
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def masked_load(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    mask = b.load("M", of(I), BOOL)
    b.store("Y", of(I), b.load("X", of(I), dtype, mask=mask, fill=1))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def masked_gather(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    mask = b.load("M", of(I), BOOL)
    b.store("Y", of(I), b.load("X", of(I) * 4, dtype, "strided", mask=mask, fill=1))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def masked_store(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    mask = b.load("M", of(I), BOOL)
    b.store("Y", of(I), b.load("X", of(I), dtype), mask=mask)
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def masked_scatter(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    mask = b.load("M", of(I), BOOL)
    b.store("Y", of(I) * 2, b.load("X", of(I), dtype), "strided", mask=mask)
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def uniform_load(isa: str, dtype: torch.dtype) -> Kernel:
    """where(M[i], X[3], 1) by a load that all lanes share."""
    b = Build()
    mask = b.load("M", of(I), BOOL)
    b.store("Y", of(I), b.load("X", 3 + Expr(()), dtype, "uniform", mask=mask, fill=1))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def where(isa: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    mask = b.load("M", of(I), BOOL)
    b.store("Y", of(I), b.op("where", mask, b.load("X", of(I), dtype), b.const(1, dtype)))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


#: Dtypes that lanes hold alike: every access has one of each in every run. All others have lanes of their own.
ALIKE = (FLOATS8, (U8, I8, I16), (BF16, F16))

BY_DTYPE = {
    "copy": copy,
    "strided_load": strided_load,
    "strided_store": strided_store,
    "gather_load": gather_load,
    "gather_store": gather_store,
    "folded_load": folded_load,
    "aligned_load": aligned_load,
    "aligned_store": aligned_store,
    "masked_load": masked_load,
    "masked_gather": masked_gather,
    "masked_store": masked_store,
    "masked_scatter": masked_scatter,
    "uniform_load": uniform_load,
    "where": where,
}


ACCESSES = list(product(BY_DTYPE, DTYPES))
OTHERS = [dtype for dtype in DTYPES if not any(dtype in dtypes for dtypes in ALIKE)]
#: `copy` has a test with all dtypes.
ALWAYS = [*alike_in_turns(BY_DTYPE, *ALIKE, *([dtype] for dtype in OTHERS)), *(("copy", dtype) for dtype in DTYPES)]
MORE = [case for case in ACCESSES if case not in ALWAYS]


def index_values(isa: str) -> Kernel:
    """Indices as values: affine, with a division, a negative dividend, a product with a loaded value."""
    b = Build()
    k = b.load("K", of(I), I64)
    loaded = value_symbol(k, None)
    for number, expr in enumerate(index_exprs(loaded)):
        b.store(f"Y{number}", of(I), b.index(expr))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def index_exprs(loaded: object) -> list[Expr]:
    i, n, k = of(I), of(N), of(loaded)  # type: ignore[arg-type]
    minimum = Expr((((Func("min", (i, k)),), 1),))
    functions = [(i * 5 + 3) // 4, (i * 2) % 3, i // 40 + i % 40, (i * 3 + 7) % 64, (i + k) // 9]
    return [
        *functions,
        i * 3 - 2,
        i * n + 1,
        i // 7 * 2 + i % 7,
        (i - 20) // 6,
        (i - 20) % 6,
        k * i + n,
        k * k - 5,
        minimum,
        n * 2,
    ]


def check(op: str, isa: str) -> Kernel:
    b = Build()
    k = b.op(op, b.load("K", of(I), I64), b.index(of(N)))
    b.store("Y", of(I), b.load("X", of(value_symbol(k, of(N))), F32, "gather"))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def check_true(isa: str) -> Kernel:
    b = Build()
    x = b.load("X", of(I), F32)
    holds = b.op("check_true", b.op("ge", x, b.const(0.0, F32)))
    b.store("Y", of(I), b.op("where", holds, x, x))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def divide(isa: str) -> Kernel:
    b = Build()
    b.store("Y", of(I), b.op("floordiv", b.load("X", of(I), I32), b.load("Z", of(I), I32)))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


SINGLE = {
    "index": index_values,
    "check_index": partial(check, "check_index"),
    "check_element": partial(check, "check_element"),
    "check_true": check_true,
    "divide": divide,
}


FULL = [name(*case) for case in MORE]


# -- the tests -------------------------------------------------------------------------------------------------------
def run(library: Library, isa: str, key: str, *buffers: torch.Tensor, n: int) -> int:
    return library.run(kernels(isa)[key], *buffers, sizes=[n])


def output(dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.full((count,), SENTINEL, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copy_of_every_size_leaves_what_follows_alone(library: Library, isa: str, dtype: torch.dtype) -> None:
    for n in range(71):
        x, y = values(dtype, n), output(dtype, n + 40)
        run(library, isa, name("copy", dtype), x, y, n=n)
        assert torch.equal(y[:n], x)
        assert torch.equal(y[n:], output(dtype, 40))


def cast_input(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        special = [0.0, -0.0, 0.4, -0.4, 1.5, 2.5, -1.5, 100.7, -100.7, 255.0, 1e-41, 1.0009765625, 1.00390625, 3.14159]
        wide = [
            1e10,
            -1e10,
            70000.0,
            65519.0,
            65520.0,
            3.4e38,
            float("inf"),
            -float("inf"),
            float("nan"),
            300.5,
            -300.5,
        ]
        return torch.tensor(special + wide, dtype=F64).to(dtype)
    if dtype == BOOL:
        return values(BOOL, 37)
    info = torch.iinfo(dtype)
    return torch.tensor(
        [info.min, info.max, 0, 1, 2, 3, 127 if info.max > 126 else 1, info.max // 3, info.max // 2] * 3, dtype=dtype
    )


@pytest.mark.parametrize("accesses", cases([ALWAYS], [MORE]), ids=["of every run", "others"])
@pytest.mark.parametrize("cpu_name", ["AMD EPYC", "Intel(R) Xeon(R)"])
def test_gathers_and_scatters_are_the_same_by_an_instruction_and_lane_by_lane(
    isa: str, cpu_name: str, accesses: list[tuple[str, torch.dtype]], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = dataclasses.replace(cpu.detect(), cpu_name=cpu_name)
    monkeypatch.setattr(cpu, "detect", lambda: machine)
    assert ("-DICPU_SLOW_GATHERS" in target(isa).flags) == (isa != "scalar" and "AMD" in cpu_name)
    own = {(k, t): BY_DTYPE[k](isa, t) for k, t in accesses if "gather" in k or "scatter" in k}
    library = Library(isa, own.values())
    for (kind, dtype), kernel in own.items():
        for n in (1, 16, 37):
            x, k, m = values(dtype, 4 * n + 8), torch.randperm(n), torch.rand(n) < 0.5
            ins, want = expect_by_dtype(kind, x, k, m, n)
            got = output(dtype, 2 * n + 40)
            library.run(kernel, *ins, got, sizes=[n])
            torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cast_is_that_of_eager(library: Library, isa: str, dtype: torch.dtype) -> None:
    x = cast_input(dtype)
    if str(dtype).endswith("fnuz"):  # C++ leaves open which integer a NaN is, and eager has two answers
        x = x[~x.float().isnan()]
    results = {to: torch.empty(len(x), dtype=to) for to in DTYPES}
    run(library, isa, name("cast", dtype), x, *results.values(), n=len(x))
    for to, y in results.items():
        torch.testing.assert_close(y, x.to(to), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [F32, F64, I64], ids=str)
@pytest.mark.parametrize("large", [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**33 + 1, -(2**40), 2**53 + 1], ids=str)
def test_a_lane_beyond_32_bits_and_its_neighbours_convert_as_in_eager_mode(
    library: Library, isa: str, dtype: torch.dtype, large: int
) -> None:
    x = values(dtype, 16 * 17).view(16, 17) - 20
    for lane in range(16):
        x[lane, lane] = large  # in each lane once; vectors begin at the first element of a row
    for y in (row.clone() for row in x):
        results = {to: torch.empty(len(y), dtype=to) for to in DTYPES}
        run(library, isa, name("cast", dtype), y, *results.values(), n=len(y))
        for to in (F32, F64, I64):
            torch.testing.assert_close(results[to], y.to(to), rtol=0, atol=0)


def expect_by_dtype(
    kind: str, x: torch.Tensor, k: torch.Tensor, m: torch.Tensor, n: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """(inputs, the whole output) of the kernels in BY_DTYPE."""
    one, y = torch.ones((), dtype=x.dtype), output(x.dtype, 2 * n + 40)
    i = torch.arange(n)
    if kind == "copy":
        y[:n] = x[:n]
        return [x], y
    if kind in ("strided_load", "folded_load"):
        y[:n] = x[i * 3 + 1] if kind == "strided_load" else x[i // 5 * 7 + i % 5]
        return [x], y
    if kind == "aligned_load":
        y[:n] = x[i // 16 * 20 + i % 16]
        return [x], y
    if kind == "aligned_store":
        y[i // 16 * 20 + i % 16] = x[:n]
        return [x], y
    if kind == "strided_store":
        y[i * 2] = x[:n]
        return [x], y
    if kind == "gather_load":
        y[:n] = x[k * 2 + 1]
        return [k, x], y
    if kind == "gather_store":
        y[k] = x[:n]
        return [k, x], y
    if kind in ("masked_load", "where"):
        y[:n] = torch.where(m, x[:n], one)
    elif kind == "masked_gather":
        y[:n] = torch.where(m, x[i * 4], one)
    elif kind == "masked_store":
        y[:n] = torch.where(m, x[:n], y[:n])
    elif kind == "masked_scatter":
        y[i * 2] = torch.where(m, x[:n], y[i * 2])
    else:
        y[:n] = torch.where(m, x[3], one)
    return [m, x], y


@pytest.mark.parametrize(("kind", "dtype"), cases([case for case in ACCESSES if case in ALWAYS], MORE), ids=str)
def test_access(library: Library, isa: str, dtype: torch.dtype, kind: str) -> None:
    for n in (1, 7, 16, 37, 64):
        x = values(dtype, 4 * n + 8)
        k = torch.randperm(n)
        m = torch.rand(n) < 0.5
        ins, want = expect_by_dtype(kind, x, k, m, n)
        got = output(dtype, 2 * n + 40)
        run(library, isa, name(kind, dtype), *ins, got, n=n)
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def ending_at(
    page: torch.Tensor, last: int, n: int
) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor], list[torch.Tensor]]:
    """For each stride an input whose element number `last` is the last one of a page, and n results; all in a row."""
    inputs = {stride: page[len(page) - last * stride - 1 :] for stride in STRIDES}
    results = {stride: torch.empty(n, dtype=page.dtype) for stride in STRIDES}
    return inputs, results, [buffer for stride in STRIDES for buffer in (inputs[stride], results[stride])]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_short_strides_read_nothing_beyond_the_last_element(
    library: Library, isa: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    page = last_page.view(dtype)
    page.copy_(values(dtype, len(page)))
    for n in (1, 7, 15, 16, 35, 48):
        inputs, results, buffers = ending_at(page, n - 1, n)
        run(library, isa, name("short_strides", dtype), *buffers, n=n)
        for stride, y in results.items():
            assert torch.equal(y, inputs[stride][::stride])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_short_strides_read_only_elements_of_true_lanes(
    library: Library, isa: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    page = last_page.view(dtype)
    page.copy_(values(dtype, len(page)))
    for n in (1, 7, 16, 35, 48):
        for last in {0, n // 2, n - 1}:  # of the true lanes: no memory follows its element
            mask = torch.arange(n).sub(last).remainder(3).eq(0) & (torch.arange(n) <= last)
            inputs, results, buffers = ending_at(page, last, n)
            run(library, isa, name("masked_strides", dtype), mask, *buffers, n=n)
            for stride, y in results.items():
                want = torch.ones(n, dtype=dtype)
                want[: last + 1] = torch.where(mask[: last + 1], inputs[stride][::stride], want[: last + 1])
                assert torch.equal(y.float(), want.float())


def test_masked_load_does_not_touch_memory_of_false_lanes(library: Library, isa: str) -> None:
    nowhere = torch.empty(0)  # a null pointer
    for kind in ("masked_load", "masked_gather", "uniform_load"):
        y = output(F32, 37)
        run(library, isa, name(kind, F32), torch.zeros(37, dtype=BOOL), nowhere, y, n=37)
        assert torch.equal(y, torch.ones(37))


@pytest.mark.parametrize(
    "dtype",
    cases(*([dtype for kind, dtype in some if kind == "masked_load"] for some in (ALWAYS, MORE))),
    ids=str,
)
def test_masked_load_reads_up_to_the_end_of_the_last_page(
    library: Library, isa: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    page = last_page.view(dtype) if dtype != BOOL else last_page.view(torch.uint8).fill_(0).view(BOOL)
    page.copy_(values(dtype, len(page)))
    for n in (1, 5, 8, 16, 37):
        mask = torch.arange(n) % 3 != 1
        for part in range(3):  # masks whose last lane is wanted, or is not
            wanted, x, y = mask.roll(part), page[len(page) - n :], output(dtype, n)
            run(library, isa, name("masked_load", dtype), wanted, x, y, n=n)
            assert torch.equal(y[:n].float(), torch.where(wanted, x.float(), torch.ones(n)))


def test_index_values(library: Library, isa: str) -> None:
    n = 45
    k = torch.randint(-50, 50, (n,))
    results = [output(I64, n) for _ in index_exprs(value_symbol(0, None))]
    run(library, isa, "index", k, *results, n=n)
    for expr, result in zip(index_exprs(value_symbol(0, None)), results, strict=True):
        want = [expr.evaluate({I: i, N: n, value_symbol(0, None): int(k[i])}) for i in range(n)]
        assert result.tolist() == want, expr


@pytest.mark.parametrize("n", [1, 16, 37])
def test_check_index_wraps_negative_indices_and_reports_bad_ones(library: Library, isa: str, n: int) -> None:
    x, y = torch.randn(n), torch.empty(n)
    k = torch.randint(-n, n, (n,))
    assert run(library, isa, "check_index", k, x, y, n=n) == 0
    assert torch.equal(y, x[k])
    for bad in (n, -n - 1):
        k[n // 2] = bad
        assert run(library, isa, "check_index", k, x, y, n=n) == 1
        assert y[n // 2] == x[0]


@pytest.mark.parametrize("n", [1, 16, 37])
def test_check_element_refuses_negative_indices_too(library: Library, isa: str, n: int) -> None:
    x, y = torch.randn(n), torch.empty(n)
    k = torch.randint(0, n, (n,))
    assert run(library, isa, "check_element", k, x, y, n=n) == 0
    assert torch.equal(y, x[k])
    for bad in (n, -1):
        k[n // 2] = bad
        assert run(library, isa, "check_element", k, x, y, n=n) == 4
        assert y[n // 2] == x[0]


@pytest.mark.parametrize("n", [1, 16, 37])
def test_what_must_hold_is_reported_where_it_does_not(library: Library, isa: str, n: int) -> None:
    x, y = torch.rand(n), torch.empty(n)
    assert run(library, isa, "check_true", x, y, n=n) == 0
    for bad in (-1.0, math.nan):
        x[n - 1] = bad
        assert run(library, isa, "check_true", x, y, n=n) == 4
        torch.testing.assert_close(y, x, rtol=0, atol=0, equal_nan=True)


def test_integer_division_by_zero_is_reported(library: Library, isa: str) -> None:
    x, z, y = torch.arange(21, dtype=I32) - 9, torch.full((21,), 4, dtype=I32), torch.empty(21, dtype=I32)
    assert run(library, isa, "divide", x, z, y, n=21) == 0
    assert torch.equal(y, x // z)
    z[20] = 0
    assert run(library, isa, "divide", x, z, y, n=21) == 2
    assert y[20] == 0
