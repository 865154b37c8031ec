"""Blocks of bf16 as their even and their odd elements: which kernels have them, and bit for bit the usual results."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from inductor_cpu.codegen.alternating import alternates
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.generate import generate
from inductor_cpu.ir.index import ZERO, as_expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel, Phase
from inductor_cpu.ir.loop_nest import Scan
from inductor_cpu.paths import prelude
from inductor_cpu.runtime.toolchain import find_toolchain

from .build import BF16, BOOL, F16, F32, Build
from .harness import Library, available, target
from .test_rounding import assert_same_bits, floats

N = size_symbol("n")
I = loop_var("i", of(N))
Make = Callable[[Build], None]


def rounded_by_the_store(b: Build) -> None:
    """Y = A * B + s, whose NaN are plain."""
    b.store("Y", of(I), b.op("add", b.op("mul", b.load("A", of(I), BF16), b.load("B", of(I), BF16)), scalar(b)))


def rounded_before(b: Build) -> None:
    """Y = -(A * s), and the same once more, which is rounded before."""
    product = b.op("mul", b.load("A", of(I), BF16), scalar(b))
    b.store("Y", of(I), product)
    b.store("B", of(I), b.op("neg", product))


def of_any_nan(b: Build) -> None:
    """Y = fmod(A, s), whose NaN may be any."""
    b.store("Y", of(I), b.op("fmod", b.load("A", of(I), BF16), scalar(b)))


def copied(b: Build) -> None:
    """Y = max(A, s), which rounds nothing."""
    b.store("Y", of(I), b.op("maximum", b.load("A", of(I), BF16), scalar(b)))


def in_place(b: Build) -> None:
    """A = A + B."""
    b.store("A", of(I), b.op("add", b.load("A", of(I), BF16), b.load("B", of(I), BF16)))


def scalar(b: Build) -> int:
    """One number for all lanes, of memory."""
    return b.load("S", ZERO, BF16, "uniform")


def two(b: Build) -> int:
    return b.op("add", b.load("A", of(I), BF16), b.load("A", of(I), BF16))


FORMS: dict[str, Make] = {
    make.__name__: make for make in (rounded_by_the_store, rounded_before, of_any_nan, copied, in_place)
}
#: What has an order of lanes, or elements of another type.
ORDERED: dict[str, Make] = {
    "floats": lambda b: b.store("Y", of(I), b.cast(two(b), F32)),
    "halves": lambda b: b.store("Y", of(I), b.op("neg", b.load("A", of(I), F16))),
    "truth values": lambda b: b.store("Y", of(I), b.op("where", b.load("C", of(I), BOOL), two(b), two(b))),
    "positions": lambda b: b.store("Y", of(I), b.op("mul", two(b), b.cast(b.index(of(I)), BF16))),
    "strides": lambda b: b.store("Y", of(I), b.op("add", two(b), b.load("B", of(I) * 2, BF16, "strided"))),
    "reversed": lambda b: b.store("Y", of(I), b.op("add", two(b), b.load("B", of(N) - 1 - of(I), BF16, "strided"))),
    "neighbours within a unit": lambda b: b.store(
        "Y", of(I), b.op("add", two(b), b.load("B", of(I) // 8 * 10 + of(I) % 8, BF16, "gather"))
    ),
    "one number for a unit": lambda b: b.store(
        "Y", of(I), b.op("add", two(b), b.load("B", of(I) // 8, BF16, "gather"))
    ),
    "sums in memory": lambda b: b.store("Y", of(I), two(b), mode="add"),
    "sums in one place": lambda b: b.store("Y", ZERO, two(b), "uniform", mode="add"),
    "one number as floats": lambda b: b.store("Y", of(I), b.cast(scalar(b), F32)),
    "masks": lambda b: b.store("Y", of(I), b.load("A", of(I), BF16, mask=b.op("isnan", two(b)))),
    "masks of one number": lambda b: b.store("Y", of(I), b.load("S", ZERO, BF16, "uniform", b.op("isnan", two(b)))),
}


@cache
def kernel_of(isa: str, make: Make) -> Kernel:
    b = Build()
    make(b)
    return b.kernel(isa, [I], vector=I, sizes=[N])


@pytest.fixture(scope="module")
def library(isa: str) -> Library:
    """All that this file runs."""
    rows = [centred(isa, size) for size in SIZES] + [gapped(isa, width) for width in WIDTHS]
    of_columns = [columns(isa, size, 9) for size in COLUMNS]
    return Library(isa, [*(kernel_of(isa, make) for make in FORMS.values()), *rows, *of_columns])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_blocks_alternate_where_all_memory_is_bf16_and_only_with_8_lanes(form: str, isa: str) -> None:
    kernel = kernel_of(isa, FORMS[form])
    assert alternates(Facts(kernel)) == (isa == "avx2")
    if isa in available():
        assert ("for_alternating<" in generate(kernel, target(isa)).code) == (isa == "avx2")


@pytest.mark.parametrize("form", ORDERED)
def test_an_order_of_lanes_or_another_type_does_without(form: str) -> None:
    kernel = kernel_of("avx2", ORDERED[form])
    assert not alternates(Facts(kernel))
    if "avx2" in available():
        assert "for_alternating<" not in generate(kernel, target("avx2")).code


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rest", [0, 1, 7, 8, 15])
def test_every_element_is_rounded_as_eager_rounds_it_wherever_it_lies(
    library: Library, isa: str, form: str, rest: int
) -> None:
    a = floats().to(BF16)
    a = a[: len(a) // 16 * 16 - 16 + rest].contiguous()
    b, s, y = a.flip(0).roll(7).contiguous(), torch.tensor([1.375], dtype=BF16), torch.zeros_like(a)
    given = {"A": a, "B": b, "S": s, "Y": y}
    want = {
        "rounded_by_the_store": lambda: {"Y": a * b + s},
        "rounded_before": lambda: {"Y": a * s, "B": -(a * s)},
        "of_any_nan": lambda: {"Y": torch.fmod(a, s)},
        "copied": lambda: {"Y": torch.maximum(a, s)},
        "in_place": lambda: {"A": a + b},
    }[form]()
    kernel = kernel_of(isa, FORMS[form])
    assert library.run(kernel, *(given[arg.buffer] for arg in kernel.args), sizes=[len(a)]) == 0
    for name, expected in want.items():
        assert_same_bits(given[name], expected)


# Rows: reductions over the lanes, and what is kept of them for a later phase

SIZES = (16, 24, 40, 41, 100, 768)


@cache
def centred(isa: str, size: int) -> Kernel:
    """Y = (A - mean) * sum of its squares, G = greatest element; the differences are kept."""
    row, element = loop_var("i", of(N)), loop_var("r", as_expr(size))
    b = Build()
    x = b.cast(b.load("A", of(row) * size + of(element), BF16), F32)
    total = b.reduce("sum", x)
    less = b.op("sub", x, b.op("div", total, b.const(size, F32)))
    squares, most = b.reduce("sum", b.op("mul", less, less)), b.reduce("fmax", x)
    b.store("Y", of(row) * size + of(element), b.cast(b.op("mul", less, squares), BF16))
    b.store("G", of(row), most, "uniform")
    phases = [Phase((total,), ()), Phase((squares, most), ()), Phase((), (0,))]
    return b.kernel(isa, (row,), (element,), element, phases, kept=(less,), sizes=(N,))


@pytest.mark.parametrize("size", SIZES)
def test_rows_that_are_kept_lie_as_their_blocks_do(library: Library, isa: str, size: int) -> None:
    kernel = centred(isa, size)
    assert alternates(Facts(kernel)) == (isa == "avx2")
    a = torch.randn(5, size).to(BF16)
    y, most = torch.empty_like(a), torch.empty(5)
    assert library.run(kernel, a, y, most, sizes=[5]) == 0
    less = a.double() - a.double().mean(1, keepdim=True)
    torch.testing.assert_close(y.double(), less * less.square().sum(1, keepdim=True), rtol=2**-7, atol=1e-3)
    assert torch.equal(most, a.float().amax(1))


WIDTHS = (8, 16, 24)


@cache
def gapped(isa: str, width: int) -> Kernel:
    """G = the sum of each row, of `width` neighbours at a time with two elements between."""
    row, element = loop_var("i", of(N)), loop_var("r", as_expr(48 * width))
    b = Build()
    place = of(row) * 1600 + of(element) // width * (width + 2) + of(element) % width
    total = b.reduce("sum", b.cast(b.load("A", place, BF16, "gather"), F32))
    b.store("G", of(row), total, "uniform")
    return b.kernel(isa, (row,), (element,), element, [Phase((total,), ())], sizes=(N,))


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_neighbours_with_gaps_are_summed_whole(library: Library, isa: str, width: int) -> None:
    a, got = torch.randn(3, 1600).to(BF16), torch.empty(3)
    assert library.run(gapped(isa, width), a, got, sizes=[3]) == 0
    wanted = a[:, : 48 * (width + 2)].reshape(3, 48, width + 2)[:, :, :width].double().sum((1, 2))
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-4)


@cache
def columns(isa: str, size: int, rows: int) -> Kernel:
    """Y = the sum of each column, Z = A less the column's mean; the columns are kept."""
    lane, row = loop_var("i", as_expr(size)), loop_var("r", as_expr(rows))
    b = Build()
    x = b.cast(b.load("A", of(row) * size + of(lane), BF16), F32)
    total = b.reduce("sum", x)
    b.store("Y", of(lane), b.cast(total, BF16))
    mean = b.op("div", total, b.const(rows, F32))
    b.store("Z", of(row) * size + of(lane), b.cast(b.op("sub", x, mean), BF16))
    return b.kernel(isa, (lane,), (row,), lane, [Phase((total,), ()), Phase((), (1,))], kept=(x,))


COLUMNS = (16, 31, 64, 100, 136, 512)


@pytest.mark.parametrize("size", COLUMNS)
def test_columns_are_summed_in_blocks_of_an_even_number_of_vectors(library: Library, isa: str, size: int) -> None:
    kernel = columns(isa, size, 9)
    assert alternates(Facts(kernel)) == (isa == "avx2" and size != 31)
    a = torch.randn(9, size).to(BF16)
    y, z = torch.empty(size, dtype=BF16), torch.empty_like(a)
    assert library.run(kernel, a, y, z) == 0
    torch.testing.assert_close(y.double(), a.double().sum(0), rtol=2**-7, atol=1e-6)
    torch.testing.assert_close(z.double(), a.double() - a.double().mean(0), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("kind", ["argmax", "any", "scan", "floats"])
def test_rows_whose_results_have_an_order_or_stop_early_do_without(kind: str) -> None:
    row, element = loop_var("i", of(N)), loop_var("r", as_expr(64))
    b = Build()
    x = b.load("A", of(row) * 64 + of(element), F32 if kind == "floats" else BF16)
    if kind == "scan":
        b.body.append(Scan("sum", b.cast(x, F32), F32))
        last = b.reduce("sum", len(b.body) - 1)
    elif kind == "any":
        last = b.reduce("any", b.op("isnan", x))
    else:
        last = b.reduce("argmax" if kind == "argmax" else "sum", b.cast(x, F32))
    b.store("G", of(row), last, "uniform")
    kernel = b.kernel("avx2", (row,), (element,), element, [Phase((last,), ())], sizes=(N,))
    assert not alternates(Facts(kernel))


def test_what_asks_for_memory_ahead_stays_in_long_steps(tmp_path: Path) -> None:
    # A function that only asks has no effect: where it is not inlined early, compilers leave the call out.
    if "avx2" not in available():
        pytest.skip("this CPU has no AVX2")
    row, element = loop_var("i", of(N)), loop_var("r", as_expr(32000))
    b = Build()
    x = b.cast(b.load("A", of(row) * 32000 + of(element), BF16), F32)
    most = b.reduce("fmax", x)
    total = b.reduce("sum", b.op("low_exp", b.op("sub", x, most)))
    b.store("G", of(row), total, "uniform")
    phases = [Phase((most,), ()), Phase((total,), ())]
    source = generate(b.kernel("avx2", (row,), (element,), element, phases, work=100, sizes=(N,)), target("avx2"))
    (tmp_path / "kernel.cpp").write_text(source.code)
    names = tmp_path / "kernel.cpp", tmp_path / "kernel.s"
    command = find_toolchain().object_command(target("avx2"), prelude(), prelude().parent, *names)
    subprocess.run(["-S" if word == "-c" else word for word in command], check=True)
    assert "fetch" in source.code
    assert "prefetch" in names[1].read_text()
