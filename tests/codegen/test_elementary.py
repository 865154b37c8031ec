"""exp, expm1, log, log1p, tanh and erf of floats, our own code, over the whole range of float32 against fp64."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.ir.index import loop_var, of, size_symbol
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
    "avx2": {"exp": 1.1, "expm1": 1.1, "log": 1.1, "log1p": 1.1, "tanh": 3.0, "erf": 3.0},
}
#: Every how many floats one is taken: a prime, so that all patterns of low bits occur.
STRIDE = 1021
N = size_symbol("n")
I = loop_var("i", of(N))


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


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_low_precision_is_accurate_for_every_value(approximate: str, dtype: torch.dtype, isa: str) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    b = Build()
    b.store("y", of(I), b.op("gelu" if approximate == "none" else "gelu_tanh", b.load("X", of(I), dtype)))
    kernel, got = b.kernel(isa, (I,), vector=None if isa == "scalar" else I, sizes=(N,)), torch.empty_like(x)
    Library(isa, [kernel]).run(kernel, x, got, sizes=[len(x)])
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
