"""Where bf16 and f16 values are rounded: bit for bit as eager rounds them, NaN as any NaN."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.rounding import KEEPS_NAN_PLAIN
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.ops import FLOAT8, OPS

from .build import BF16, BOOL, F16, F32, Build
from .harness import Library

N = size_symbol("n")
I = loop_var("i", of(N))


def floats() -> torch.Tensor:
    """Random bits, ties of both kinds, denormals, NaN with every kind of payload, around all exponents."""
    generator = torch.Generator().manual_seed(0)
    high = torch.randint(-(2**15), 2**15, (40000,), generator=generator, dtype=torch.int32) * 65536
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    bits = high + low.repeat(len(high) // len(low) + 1)[: len(high)]
    special = [0, 1, 0x7FFF, 0x8000, 0x8001, 0x7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFF8000]
    special += [0x7FFFFFFF, 0x007FFFFF, 0x00008000, 0x00018000, 0x7F7F8000, 0x7F7F7FFF]
    signed = [*special, *(value - 2**31 for value in special)]
    return torch.cat([bits, torch.tensor(signed, dtype=torch.int32)]).view(F32)


def assert_same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    assert torch.equal(got.isnan(), want.isnan())
    known = ~want.isnan()
    assert torch.equal(got[known].view(torch.int16), want[known].view(torch.int16))


@cache
def kernel_of(isa: str, dtype: torch.dtype) -> Kernel:
    """Y = X rounded by the store, Z = X rounded and kept, W = |-X| rounded by the store, V = max(Y, B) of floats."""
    b = Build()
    low = b.cast(b.load("X", of(I), F32), dtype)
    b.store("Y", of(I), b.op("abs", b.op("neg", low)))
    other = b.cast(b.load("X", of(I), F32), dtype)
    b.store("Z", of(I), other)
    b.store("W", of(I), b.cast(other, F32))
    one = b.cast(b.load("B", of(I), BOOL), dtype)
    b.store("V", of(I), b.op("maximum", b.load("C", of(I), dtype), one))
    return b.kernel(isa, [I], vector=I, sizes=[N])


@pytest.fixture(scope="module")
def library(isa: str) -> Library:
    kernels = [*(kernel_of(isa, dtype) for dtype in (BF16, F16)), arithmetic(isa), product_kernel(isa)]
    return Library(isa, [*kernels, *([] if isa == "scalar" else [nan_kernel(isa)]), low_kernel(isa)])


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("cut", [0, 5, 20])
def test_a_value_is_rounded_as_eager_rounds_it(library: Library, isa: str, dtype: torch.dtype, cut: int) -> None:
    x = floats()[cut:].contiguous()
    flag = torch.arange(len(x)) % 3 == 0
    c = floats()[cut:].to(dtype)
    y, z, v = (torch.empty(len(x), dtype=dtype) for _ in "yzv")
    w = torch.empty(len(x))
    assert library.run(kernel_of(isa, dtype), x, y, z, w, flag, c, v, sizes=[len(x)]) == 0
    want = x.to(dtype)
    assert_same_bits(y, want.abs())
    assert_same_bits(z, want)
    assert_same_bits(w.to(dtype), want)
    assert torch.equal(w.isnan(), want.isnan())
    assert torch.equal(w[~want.isnan()], want.float()[~want.isnan()])
    larger = torch.maximum(c, flag.to(dtype))
    assert torch.equal(v.isnan(), larger.isnan())
    assert torch.equal(v[~v.isnan()], larger[~v.isnan()])


@cache
def arithmetic(isa: str) -> Kernel:
    """Y = relu((A * B + A) * 0.5 - B), each op rounded."""
    b = Build()
    first, second = (b.load(name, of(I), BF16) for name in "AB")
    total = b.op("add", b.op("mul", first, second), first)
    b.store("Y", of(I), b.op("relu", b.op("sub", b.op("mul", total, b.const(0.5, BF16)), second)))
    return b.kernel(isa, [I], vector=I, sizes=[N])


def test_every_operator_of_a_chain_is_rounded(library: Library, isa: str) -> None:
    x = floats()
    a, b = x.to(BF16), x.flip(0).roll(7).to(BF16)
    y = torch.empty_like(a)
    assert library.run(arithmetic(isa), a, b, y, sizes=[len(a)]) == 0
    assert_same_bits(y, torch.relu((a * b + a) * 0.5 - b).abs())  # no -0.0: eager's relu gives either


#: Ops that keep NaN plain and that only bf16 and f16 have; and those with code of their own for these.
LOW_ONLY = {op for op in KEEPS_NAN_PLAIN if OPS[op].domain == "low"}
LOW_CODE = ("exp", "sigmoid", "silu", "tanh")


@cache
def low_kernel(isa: str) -> Kernel:
    """Functions of bf16, rounded and kept as floats."""
    b = Build()
    x = b.load("X", of(I), BF16)
    for op in LOW_CODE:
        b.store(op, of(I), b.cast(b.op(op, x), F32))
    return b.kernel(isa, [I], vector=I, sizes=[N])


def test_nan_of_functions_of_bf16_is_nan_after_rounding(library: Library, isa: str) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(BF16)
    results = {op: torch.empty(len(x)) for op in LOW_CODE}
    assert library.run(low_kernel(isa), x, *results.values(), sizes=[len(x)]) == 0
    functions = {"silu": torch.nn.functional.silu}
    for op, got in results.items():
        assert torch.equal(got.isnan(), functions.get(op, getattr(torch, op, None))(x).isnan()), op
        assert torch.equal(got.to(BF16).float()[~got.isnan()], got[~got.isnan()]), op


@cache
def exact_kernel(isa: str, dtype: torch.dtype) -> Kernel:
    """Conversions to bf16 or f16, and products with truth values, which need no rounding."""
    b = Build()
    for source in EXACT_SOURCES:
        b.store(f"Y{source}", of(I), b.cast(b.cast(b.load(f"X{source}", of(I), source), dtype), F32))
    product = b.op("mul", b.load("A", of(I), dtype), b.cast(b.load("B", of(I), BOOL), dtype))
    b.store("P", of(I), b.cast(product, F32))
    return b.kernel(isa, [I], vector=None if isa == "scalar" else I, sizes=[N])


EXACT_SOURCES = (*sorted(FLOAT8, key=str), torch.int8, torch.uint8, BOOL)


def is_rounded_from(source: torch.dtype, dtype: torch.dtype) -> bool:
    b = Build()
    b.store("Y", of(I), b.cast(b.cast(b.load("X", of(I), source), dtype), F32))
    return Facts(b.kernel("avx512", [I], vector=I, sizes=[N])).rounding.function(1, vector=True) is not None


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_exact_conversions_and_products_are_not_rounded_and_are_eagers(isa: str, dtype: torch.dtype) -> None:
    kernel = exact_kernel(isa, dtype)
    rounding = Facts(kernel).rounding
    assert all(rounding.function(k, vector=True) is None for k in range(len(kernel.body)))
    assert all(is_rounded_from(source, dtype) for source in (torch.int16, torch.int32, F32))
    patterns = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    args: list[torch.Tensor] = []
    want: list[torch.Tensor] = []
    for source in EXACT_SOURCES:
        x = patterns % 2 == 0 if source == BOOL else patterns.to(torch.int8).view(source)
        got = torch.empty(len(x))
        args += [x, got]
        want.append(x.to(dtype).float())
    a, flags, got = patterns.view(dtype), patterns % 3 == 0, torch.empty(len(patterns))
    args += [a, flags, got]
    want.append((a * flags).float())
    assert Library(isa, [kernel]).run(kernel, *args, sizes=[len(patterns)]) == 0
    results = [t for t in args if t.dtype == F32]
    for name, result, expected in zip((*EXACT_SOURCES, "product"), results, want, strict=True):
        assert torch.equal(result.isnan(), expected.isnan()), name
        assert torch.equal(result[~result.isnan()], expected[~result.isnan()]), name


@pytest.mark.parametrize("dtype", sorted(FLOAT8, key=str), ids=str)
@pytest.mark.parametrize("source", [torch.int8, torch.uint8, *sorted(FLOAT8, key=str)], ids=str)
def test_conversions_to_8_bits_are_rounded(source: torch.dtype, dtype: torch.dtype) -> None:
    assert is_rounded_from(source, dtype) == (source != dtype)


@pytest.mark.parametrize("dtype", sorted(FLOAT8, key=str), ids=str)
def test_integers_of_8_bits_become_the_floats_of_8_bits_that_eager_gives(dtype: torch.dtype, isa: str) -> None:
    x, got = torch.arange(-128, 128).to(torch.int8), torch.empty(256)
    b = Build()
    b.store("Y", of(I), b.cast(b.cast(b.load("X", of(I), torch.int8), dtype), F32))
    kernel = b.kernel(isa, [I], vector=None if isa == "scalar" else I, sizes=[N])
    assert Library(isa, [kernel]).run(kernel, x, got, sizes=[256]) == 0
    assert torch.equal(got, x.to(dtype).float())


@cache
def nan_kernel(isa: str) -> Kernel:
    """Each op that keeps the low half of NaN zero, from bf16 arguments."""
    b = Build()
    args = [b.load("X", of(I), BF16), b.load("Y", of(I), BF16)]
    args = [b.cast(arg, F32) for arg in args]
    args.append(args[1])
    choose = b.load("C", of(I), BOOL)
    for op in sorted(KEEPS_NAN_PLAIN - LOW_ONLY):
        b.store(op, of(I), b.op(op, choose, *args[:2]) if op == "where" else b.op(op, *args[: OPS[op].arity]))
    return b.kernel(isa, [I], vector=I, sizes=[N])


def test_nan_of_these_ops_have_a_low_half_of_zeros(library: Library, isa: str) -> None:
    if isa == "scalar":
        pytest.skip("only vector code makes use of it")
    values = torch.tensor([0x7FC0, 0x7FFF, 0x7F81, -1, -64, 0x7F80, -128, 0x3F80, -0x4080, 0, -0x8000, 0x0001, 0x7F7F])
    x = values.to(torch.int16).view(BF16)
    x, y = (grid.flatten().contiguous() for grid in torch.meshgrid(x, x, indexing="ij"))
    choose = torch.arange(len(x)) % 2 == 0
    results = {op: torch.empty(len(x)) for op in sorted(KEEPS_NAN_PLAIN - LOW_ONLY)}
    assert library.run(nan_kernel(isa), x, y, choose, *results.values(), sizes=[len(x)]) == 0
    for op, result in results.items():
        nan = result.isnan()
        assert nan.any() or op == "sign"  # which gives 0
        assert not (result[nan].view(torch.int32) & 0xFFFF).any(), op


@cache
def product_kernel(isa: str) -> Kernel:
    """A product of bf16, rounded by its store."""
    b = Build()
    b.store("P", of(I), b.op("mul", b.load("X", of(I), BF16), b.load("Y", of(I), BF16)))
    return b.kernel(isa, [I], vector=I, sizes=[N])


@pytest.mark.parametrize("rest", [0, 3])
def test_a_store_keeps_every_nan_of_bf16_and_rounds_what_is_next_to_infinity(
    library: Library, isa: str, rest: int
) -> None:
    x = torch.arange(-(1 << 15), (1 << 15) - rest).to(torch.int16).view(BF16)
    for factor in (1.0, -1.0, 1.0078125, 1.5, 3e38, 1e-38, math.inf, math.nan):
        y, got = torch.full_like(x, factor), torch.empty_like(x)
        assert library.run(product_kernel(isa), x, y, got, sizes=[len(x)]) == 0
        assert_same_bits(got, x * y)


def test_stores_of_values_computed_of_bf16_need_no_test_for_nan() -> None:
    rounding = Facts(product_kernel("avx2")).rounding
    assert rounding.rounds_plain(rounding.kernel.stores[0].value)
    rounding = Facts(kernel_of("avx2", BF16)).rounding  # of float32, whose NaN may be any
    assert not any(rounding.rounds_plain(store.value) for store in rounding.kernel.stores)


def test_a_value_is_rounded_once_and_a_rounded_one_is_stored_as_it_is() -> None:
    rounding = Facts(arithmetic("avx512")).rounding
    functions = [rounding.function(k, vector=True) for k in range(len(rounding.kernel.body))]
    plain = "icpu::round_plain_bf16"
    assert functions == [None, None, plain, plain, None, plain, None, None]  # relu's argument waits for the store
    rounding = Facts(kernel_of("avx512", BF16)).rounding
    assert [rounding.is_rounded(store.value) for store in rounding.kernel.stores] == [False, True, False, True]
    assert rounding.function(rounding.kernel.stores[1].value, vector=True) == "icpu::round_bf16"  # any float's NaN
