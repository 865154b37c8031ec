"""exp, expm1, log, log1p, tanh and erf of floats, our own code, over the whole range of float32 against fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch

from inductor_cpu.ir.index import const, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel

from .build import BF16, F16, F32, F64, Build
from .harness import Library, available

FUNCTIONS = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "erf": torch.erf,
}
#: Bounds in units of the last place. Eager's functions, SLEEF's, are within 1.
ULPS = {
    "avx512": {"exp": 1.0, "expm1": 1.5, "log": 1.0, "log1p": 1.5, "tanh": 1.5, "erf": 1.5},
    "avx2": {"exp": 1.1, "expm1": 1.5, "log": 1.1, "log1p": 1.1, "tanh": 1.6, "erf": 1.2},
}
#: Every how many floats one is taken: a prime, so that all patterns of low bits occur.
STRIDE = 1021
N = size_symbol("n")
I = loop_var("i", of(N))
J = loop_var("j", const(1))


@cache
def everywhere() -> torch.Tensor:
    """Floats of every exponent and both signs: denormals, infinities and NaN are among them."""
    bits = torch.arange(-(1 << 31), 1 << 31, STRIDE).to(torch.int32)
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-45, 3.4e38, -3.4e38])
    return torch.cat([bits.view(F32), special])


@cache
def kernel_of(isa: str) -> Kernel:
    """One output for each function."""
    b = Build()
    x = b.load("X", of(I), F32)
    for name in FUNCTIONS:
        b.store(name, of(I), b.op(name, x))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


@cache
def results(isa: str) -> dict[str, torch.Tensor]:
    x = everywhere()
    outputs = {name: torch.empty_like(x) for name in FUNCTIONS}
    Library(isa, [kernel_of(isa)]).run(kernel_of(isa), x, *outputs.values(), sizes=[len(x)])
    return outputs


def unit(exact: torch.Tensor) -> torch.Tensor:
    """The last place of float32 at the values of `exact`."""
    _, exponent = torch.frexp(exact)
    return torch.ldexp(torch.ones_like(exact), exponent.clamp(min=-125) - 24)


@pytest.mark.parametrize("isa", [name for name in available() if name != "scalar"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_accurate_for_every_float(name: str, isa: str) -> None:
    x, got = everywhere(), results(isa)[name]
    exact = FUNCTIONS[name](x.to(F64))
    infinite = exact.to(F32).isinf()
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got[infinite], exact[infinite].to(F32))
    finite = ~(infinite | exact.isnan())
    error = (got[finite].to(F64) - exact[finite]).abs() / unit(exact[finite])
    worst = error.argmax()
    assert error[worst] <= ULPS[isa][name], (x[finite][worst].item(), error[worst].item())
    assert torch.equal(got[finite].signbit(), exact[finite].signbit())
    if name in ("tanh", "erf"):
        assert got[finite].abs().max() == 1


@pytest.mark.parametrize("isa", [name for name in available() if name != "scalar"])
@pytest.mark.parametrize("name", ["expm1", "tanh", "erf"])
def test_function_is_at_its_limit_where_it_is_in_float64(name: str, isa: str) -> None:
    exact = FUNCTIONS[name](everywhere().to(F64))
    limit = exact.abs() == 1
    assert limit.sum() > 100_000
    assert torch.equal(results(isa)[name][limit], exact[limit].to(F32))


LOW = {"exp": torch.exp, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": torch.nn.functional.silu}
GELU = {"none": "gelu", "tanh": "gelu_tanh"}


@cache
def low_kernel(isa: str, op: str, dtype: torch.dtype) -> Kernel:
    b = Build()
    b.store("y", of(I), b.op(op, b.load("X", of(I), dtype)))
    return b.kernel(isa, (I,), vector=None if isa == "scalar" else I, sizes=(N,))


@cache
def low_library(isa: str) -> Library:
    return Library(isa, [low_kernel(isa, op, dtype) for op in (*LOW, *GELU.values()) for dtype in (BF16, F16)])


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("approximate", GELU)
def test_gelu_of_low_precision_is_accurate_for_every_value(approximate: str, dtype: torch.dtype, isa: str) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    got = torch.empty_like(x)
    low_library(isa).run(low_kernel(isa, GELU[approximate], dtype), x, got, sizes=[len(x)])
    exact = torch.nn.functional.gelu(x.to(F64), approximate=approximate)
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got[x == float("inf")], x[x == float("inf")])
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(exact)
    last_place = torch.ldexp(torch.ones_like(exact), exponent.clamp(min=-125) - 1) * info.eps
    last_place = last_place.clamp(min=info.smallest_normal * info.eps)
    error = (got.to(F64) - exact).abs() / last_place
    assert error[(x >= -2.5) & (x.abs() >= info.smallest_normal) & exact.isfinite()].max() <= 0.51
    # The formula, in floats, loses its bits where 1 + erf is small: x / 2 times the last place of erf, 2^-24.
    bound = 0.7 + 2 * x.to(F64).abs() * 2.0**-25 / last_place
    assert (error <= bound)[(x >= -5) & exact.isfinite()].all()
    assert (got.to(F64) - exact).abs()[(x < -5) & exact.isfinite()].max() <= 2e-6


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("name", LOW)
def test_function_of_low_precision_is_rounded_as_the_exact_one_but_near_ties(
    name: str, dtype: torch.dtype, isa: str
) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    got = torch.empty_like(x)
    low_library(isa).run(low_kernel(isa, name, dtype), x, got, sizes=[len(x)])
    exact, eager = LOW[name](x.to(F64)), LOW[name](x)
    assert torch.equal(got.isnan(), eager.isnan())
    infinite = eager.isinf()
    assert torch.equal(got[infinite], eager[infinite])
    number = ~(eager.isnan() | infinite)
    assert torch.equal(got[number].signbit(), exact[number].signbit())
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(exact)
    last_place = torch.ldexp(torch.ones_like(exact), exponent.clamp(min=-125) - 1) * info.eps
    last_place = last_place.clamp(min=max(info.smallest_normal * info.eps, 2.0**-133))
    # Where exp(-x) is beyond floats, their sigmoid is 0: too small by up to 2^-126 x.
    tiny = number & (x < -87) & (name in ("sigmoid", "silu"))
    assert (got[tiny].to(F64).abs() <= exact[tiny].abs() + last_place[tiny]).all()
    error = (got.to(F64) - exact).abs() / last_place
    worst = error.where(number & ~tiny, torch.zeros_like(error)).argmax()
    assert error[worst] <= 0.53, (x[worst].item(), error[worst].item())


@pytest.mark.parametrize("isa", available())
def test_exp_of_nonpositive_numbers_is_accurate_and_of_positive_ones_a_number_or_infinity(isa: str) -> None:
    x = everywhere()
    b = Build()
    b.store("y", of(I), b.op("exp_of_nonpositive", b.load("X", of(I), F32)))
    kernel, got = b.kernel(isa, (I,), vector=None if isa == "scalar" else I, sizes=(N,)), torch.empty_like(x)
    Library(isa, [kernel]).run(kernel, x, got, sizes=[len(x)])
    exact = torch.exp(x.to(F64))
    assert torch.equal(got.isnan(), exact.isnan())
    below = x <= 0
    error = (got[below].to(F64) - exact[below]).abs() / unit(exact[below])
    worst = error.argmax()
    assert error[worst] <= 1.0, (x[below][worst].item(), error[worst].item())
    assert (got[x == 0] == 1).all()
    assert (got[x > 0] >= 1).all()


@pytest.mark.parametrize("isa", [name for name in available() if name != "scalar"])
def test_low_exp_has_17_bits_for_every_float_and_14_of_the_difference_from_one(isa: str) -> None:
    x = everywhere()
    b = Build()
    b.store("y", of(I), b.op("low_exp", b.load("X", of(I), F32)))
    kernel, got = b.kernel(isa, (I,), vector=I, sizes=(N,)), torch.empty_like(x)
    Library(isa, [kernel]).run(kernel, x, got, sizes=[len(x)])
    exact = torch.exp(x.to(F64))
    assert torch.equal(got.isnan(), exact.isnan())
    assert (got[x == 0] == 1).all()
    assert torch.equal(got[x.abs() == float("inf")].to(F64), exact[x.abs() == float("inf")])
    normal = (exact >= 2.0**-126) & (exact < 3.4e38)
    error = (got.to(F64) - exact).abs()
    assert (error[normal] / exact[normal]).max() <= 2.0**-17
    near = x.abs() < 0.3
    assert (error[near] <= torch.expm1(x[near].to(F64)).abs() * 2.0**-14 + 2.0**-24).all()
    assert (got[exact < 2.0**-126] <= 2.0**-126).all()
    assert (got[exact > 3.41e38] == float("inf")).all()


def slope_of_gelu(x: torch.Tensor) -> torch.Tensor:
    """In fp64, with a tail that is no difference."""
    density = torch.exp(x * x * -0.5) * (2 * math.pi) ** -0.5
    return torch.special.erfc(-x * 0.5**0.5) / 2 + x * density


def slopes_of_gelu(op: str, isa: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By a kernel, and exact."""
    b = Build()
    b.store("y", of(I), b.op(op, b.load("X", of(I), F32)))
    kernel, got = b.kernel(isa, (I,), vector=None if isa == "scalar" else I, sizes=(N,)), torch.empty_like(x)
    Library(isa, [kernel]).run(kernel, x, got, sizes=[len(x)])
    exact = slope_of_gelu(x.to(F64))
    assert torch.equal(got.isnan(), exact.isnan())
    assert (got[(x < -20) & x.isfinite()] == 0).all()
    assert (got[(x > 20) & x.isfinite()] == 1).all()
    return got.to(F64), exact


@pytest.mark.parametrize("op", ["gelu_slope", "low_gelu_slope"])
def test_slope_of_gelu_is_the_formula_where_there_are_no_vectors(op: str) -> None:
    x = everywhere()
    got, exact = slopes_of_gelu(op, "scalar", x)
    assert (got - exact).abs()[x.isfinite()].max() <= 3e-7


@pytest.mark.parametrize("isa", [name for name in available() if name != "scalar"])
def test_slope_of_gelu_is_nearer_to_the_exact_one_than_the_formula_in_floats(isa: str) -> None:
    x = everywhere()
    got, exact = slopes_of_gelu("gelu_slope", isa, x)
    finite = x.isfinite()
    assert (got - exact).abs()[finite].max() <= 1.5e-7
    for least, most, bound in ((-4.0, -1.0, 3e-6), (-5.5, -4.0, 4e-4), (-8.0, -5.5, 6e-2)):
        some = (x >= least) & (x < most)
        assert ((got - exact)[some] / exact[some]).abs().max() <= bound


@pytest.mark.parametrize("isa", [name for name in available() if name != "scalar"])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_slope_of_gelu_for_low_precision_is_near_the_exact_one_at_every_number_also_around_its_root(
    dtype: torch.dtype, isa: str
) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype).to(F32)
    got, exact = slopes_of_gelu("low_gelu_slope", isa, x)
    for least, most, bound in ((-3.0, math.inf, 1.1e-4), (-4.0, -3.0, 1e-4), (-5.0, -4.0, 2e-3), (-8.0, -5.0, 6e-2)):
        some = (x >= least) & (x < most)
        assert ((got - exact)[some] / exact[some]).abs().max() <= bound


def numerators(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of every exponent from 1 down to the smallest one, 0, and NaN."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-1074 if dtype == F64 else -149, 1, (1 << 16,), generator=generator)
    random = torch.ldexp(torch.rand(1 << 16, generator=generator, dtype=F64), exponents)
    return torch.cat([random, torch.tensor([0.0, 1.0, float("nan")], dtype=F64)]).to(dtype)


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_quotient_by_the_sum_of_a_row_is_rounded_as_a_division_unless_it_is_tiny(dtype: torch.dtype, isa: str) -> None:
    b = Build()
    a, divisor = (b.load(name, of(I), dtype) for name in "AB")
    b.store("Y", of(I), b.op("quotient", a, divisor, b.op("reciprocal", divisor)))
    kernel = b.kernel(isa, (I,), vector=I, sizes=(N,))
    library = Library(isa, [kernel])
    x = numerators(dtype)
    for whole in (1.0, 1.0000001, 2.0, 3.0, 7.7, 1000.3, 32000.0, 3.3e9, float("nan")):
        divisors = torch.full_like(x, whole)
        got = torch.empty_like(x)
        library.run(kernel, x, divisors, got, sizes=[len(x)])
        want = x / divisors
        info = torch.finfo(dtype)
        number = ~want.isnan()
        plain = ((x == 0) | (x >= info.smallest_normal / info.eps)) & number
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got[plain], want[plain]), whole
        tiny = ~plain & number
        unit = torch.nextafter(want, torch.ones_like(want)) - want
        assert ((got - want).abs() <= unit)[tiny].all()


STEP = 61


@contextmanager
def flushing_denormals() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("isa", available())
def test_quotient_of_bf16_by_one_divisor_is_the_rounded_one(isa: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(BF16)
    b = Build()
    b.store("Y", of(I), b.op("div", b.load("X", of(I), BF16), b.load("D", of(J), BF16, "uniform")))
    kernel = b.kernel(isa, (J, I), vector=None if isa == "scalar" else I, sizes=(N,), parallel=1)
    library = Library(isa, [kernel])
    special = [0.0, -0.0, 1.0, 3.0, 6.0, 1e-40, -1e-40, 3e38, -1.7e38, 1e-38, float("inf"), float("-inf"), float("nan")]
    patterns = torch.randint(-(1 << 15), 1 << 15, (200,), generator=generator).to(torch.int16).view(BF16)
    few = x[::STEP].contiguous()  # for one thread: others do not flush denormals
    for divisor in torch.cat([torch.tensor(special, dtype=BF16), patterns]).split(1):
        got, flushed = torch.empty_like(x), torch.empty_like(few)
        library.run(kernel, x, divisor, got, sizes=[len(x)])
        with flushing_denormals():
            library.run(kernel, few, divisor, flushed, sizes=[len(few)])
        want = x / divisor
        tiny = want.abs() < 2.0**-126
        assert torch.equal(got.isnan(), want.isnan()), divisor
        assert torch.equal(got[~want.isnan()].signbit(), want[~want.isnan()].signbit()), divisor
        normal = ~(want.isnan() | tiny)
        assert torch.equal(got[normal], want[normal]), divisor
        normal &= (x.abs() >= 2.0**-126) & (divisor.abs() >= 2.0**-126) & (want.abs() > 2.0**-126)
        assert torch.equal(flushed[normal[::STEP]], want[::STEP][normal[::STEP]]), divisor
        assert ((got.to(F64) - want.to(F64)).abs()[tiny] <= 2.0**-133).all(), divisor
