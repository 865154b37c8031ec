"""Special functions of every dtype, in scalar, AVX2 and AVX-512 code, against mpmath and eager mode."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath
import pytest
import torch

from inductor_cpu.codegen.vector import VECTOR
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel

from .build import BF16, F16, F32, F64, FLOATS, Build
from .harness import Library

N = size_symbol("n")
I = loop_var("i", of(N))
DIGITS = 40


def _log_of_normal(x: Any) -> Any:
    tail = mpmath.erfc(abs(x) / mpmath.sqrt(2)) / 2
    return mpmath.log(tail) if x < 0 else mpmath.log1p(-tail)


def _normal_quantile(p: Any) -> Any:
    """By Newton's method on the logarithm of the probability of the tail."""
    if p > 0.5:
        return -_normal_quantile(1 - p)
    z = mpmath.sqrt(-2 * mpmath.log(p)) if p < 0.1 else mpmath.mpf(1)
    for _ in range(100):
        tail = mpmath.erfc(z / mpmath.sqrt(2)) / 2
        step = mpmath.log(tail / p) * tail * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(z * z / 2)
        z += step
        if abs(step) <= abs(z) * mpmath.mpf(10) ** -30 or abs(step) < mpmath.mpf(10) ** -35:
            break
    return -z


@dataclass(frozen=True)
class Function:
    """Eager's and mpmath's; ranges of arguments, (low, high) or with "log" for numbers spaced by their logarithms,
    "-log" for the negative ones; bound: of errors of doubles, in units of the last place."""

    eager: Callable[[torch.Tensor], torch.Tensor]
    exact: Callable[[Any], Any]
    ranges: tuple[tuple[Any, ...], ...]
    bound: float


_EVERYWHERE = (("log", 1e-30, 1e-2), (0, 1), (1, 2), (2, 8), (8, 30), ("log", 30, 1e6))
_BOTH = (*_EVERYWHERE, *((*r[:-2], -r[-1], -r[-2]) if r[0] != "log" else ("-log", *r[1:]) for r in _EVERYWHERE))
_TO_OVERFLOW = (*_BOTH[:4], (8, 88), *_BOTH[6:10], (-88, -8))
_BESSEL = {"i0": (0, False), "i0e": (0, True), "i1": (1, False), "i1e": (1, True)}


def _bessel(order: int, scaled: bool, x: Any) -> Any:
    return mpmath.besseli(order, x) * (mpmath.exp(-abs(x)) if scaled else 1)


FUNCTIONS = {
    **{
        name: Function(
            getattr(torch.special, name),
            functools.partial(_bessel, order, scaled),
            (*(_BOTH[:5]), *(_BOTH[6:11])) if scaled else _TO_OVERFLOW,
            3.5,
        )
        for name, (order, scaled) in _BESSEL.items()
    },
    "digamma": Function(torch.digamma, mpmath.digamma, (*_EVERYWHERE, ("-log", 1e-30, 1e-2), (-1, 0), (-30, -1)), 3.5),
    "trigamma": Function(
        functools.partial(torch.polygamma, 1),
        functools.partial(mpmath.psi, 1),
        (("log", 1e-18, 1e-2), *_EVERYWHERE[1:], ("-log", 1e-18, 1e-2), (-1, 0), (-30, -1)),
        3.5,
    ),
    "erfc": Function(torch.erfc, mpmath.erfc, (*_BOTH[:3], (2, 9), *_BOTH[6:]), 3.5),
    "erfcx": Function(
        torch.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), (*_BOTH[:5], ("log", 30, 500), (-9, 0)), 3.5
    ),
    "log_ndtr": Function(torch.special.log_ndtr, _log_of_normal, (*_BOTH[:4], (8, 12), (-0.5, 0.5), *_BOTH[6:]), 3.5),
    "ndtri": Function(
        torch.special.ndtri, _normal_quantile, ((0, 1), ("log", 1e-37, 1e-2), ("log", 1e-7, 0.5), (0.49, 0.51)), 2.5
    ),
}


@cache
def arguments(name: str, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    parts = []
    for *kind, low, high in FUNCTIONS[name].ranges:
        random = torch.rand(41, generator=generator, dtype=F64)
        if not kind:
            parts.append(low + random * (high - low))
        else:
            size = torch.exp(math.log(low) + random * math.log(high / low))
            parts.append(size if kind == ["log"] else -size)
    return torch.cat(parts).to(dtype)


@cache
def exact(name: str, dtype: torch.dtype) -> tuple[Any, ...]:
    with mpmath.workdps(DIGITS):
        return tuple(FUNCTIONS[name].exact(mpmath.mpf(x)) for x in arguments(name, dtype).tolist())


@cache
def kernel_of(isa: str, dtype: torch.dtype) -> Kernel:
    """One output for each function."""
    b = Build()
    x = b.load("X", of(I), dtype)
    for name in FUNCTIONS:
        b.store(name, of(I), b.op(name, x))
    return b.kernel(isa, (I,), vector=None if isa == "scalar" else I, sizes=(N,))


def kernels(isa: str) -> dict[torch.dtype, Kernel]:
    return {dtype: kernel_of(isa, dtype) for dtype in FLOATS}


def results(library: Library, isa: str, x: torch.Tensor) -> dict[str, torch.Tensor]:
    outputs = {name: torch.empty_like(x) for name in FUNCTIONS}
    assert library.run(kernel_of(isa, x.dtype), x, *outputs.values(), sizes=[len(x)]) == 0
    return outputs


def error(got: float, value: Any, dtype: torch.dtype, near: Any = 0) -> float:
    """The distance in units of the last place that the exact value has, or `near` if that is larger."""
    digits, smallest = {F32: (24, -149), F64: (53, -1074)}[dtype]
    exponent = max(mpmath.frexp(max(abs(value), abs(near)))[1] - digits, smallest)
    return float(abs(mpmath.mpf(got) - value) / mpmath.mpf(2) ** exponent)


def test_no_function_runs_lane_by_lane() -> None:
    assert set(FUNCTIONS) <= set(VECTOR)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_accurate(name: str, dtype: torch.dtype, isa: str, library: Library) -> None:
    x = arguments(name, dtype)
    got = results(library, isa, x)[name]
    bound = 0.51 if dtype == F32 else FUNCTIONS[name].bound
    for place, (argument, value) in enumerate(zip(x.tolist(), exact(name, dtype), strict=True)):
        # Between the poles of digamma two terms cancel, of which this is one.
        near = mpmath.digamma(1 - mpmath.mpf(argument)) if name == "digamma" and argument < 0 else 0
        assert error(got[place].item(), value, dtype, near) <= bound, (argument, got[place].item(), value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_doubles_are_at_most_one_unit_worse_than_in_eager_mode(name: str, isa: str, library: Library) -> None:
    x = arguments(name, F64)
    worst = [
        max(error(y, value, F64) for y, value in zip(got.tolist(), exact(name, F64), strict=True))
        for got in (results(library, isa, x)[name], FUNCTIONS[name].eager(x))
    ]
    assert worst[0] <= worst[1] + 1


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_digamma_is_accurate_next_to_its_root(dtype: torch.dtype, isa: str, library: Library) -> None:
    root = 1.4616321449683623
    x = torch.tensor([root * (1 + k * 2.0**-e) for e in range(4, 50) for k in (1, -1)], dtype=dtype).unique()
    with mpmath.workdps(DIGITS):
        errors = [
            error(y, mpmath.digamma(mpmath.mpf(a)), dtype)
            for a, y in zip(x.tolist(), results(library, isa, x)["digamma"].tolist(), strict=True)
        ]
    assert max(errors) <= (0.51 if dtype == F32 else 2.5)


ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, -17.0, 1e-45, -1e-45, 1e-310, 3.4e38, -3.4e38, 1e300, -1e300, 60.0, -60.0]
ENDS += [-27.0, 715.0, -715.0, 1e17, -1e17, 1e-20, -1e-20, float("inf"), float("-inf"), float("nan"), 1.0000001, 2.0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_ends_as_in_eager_mode(name: str, dtype: torch.dtype, isa: str, library: Library) -> None:
    x = torch.tensor(ENDS, dtype=F64).to(dtype)
    known = x.float() if name in ("erfcx", "log_ndtr", "ndtri") and dtype in (BF16, F16) else x
    want, got = FUNCTIONS[name].eager(known).to(dtype), results(library, isa, x)[name]
    if name == "trigamma":  # at its poles eager mode divides by the sine of a rounded multiple of pi
        want = torch.where((x < 0) & (x == x.trunc()) & x.isfinite(), math.inf, want)
    number = want.isfinite()
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got[want.isinf()], want[want.isinf()])
    torch.testing.assert_close(got[number], want[number], rtol=2 * torch.finfo(dtype).eps + 1e-5, atol=0)
    assert torch.equal(got[~want.isnan()].signbit(), want[~want.isnan()].signbit())


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_low_precision_is_the_rounded_float(dtype: torch.dtype, isa: str, library: Library) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    wide = results(library, isa, x.float())
    for name, got in results(library, isa, x).items():
        torch.testing.assert_close(got, wide[name].to(dtype), rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_do_not_depend_on_other_lanes(name: str, isa: str, library: Library) -> None:
    """Where all lanes of a vector are on one side of a bend, the other side is not computed."""
    x = arguments(name, F64)
    together = results(library, isa, x)[name]
    alone = torch.cat([results(library, isa, x[n : n + 1].clone())[name] for n in range(0, len(x), 7)])
    assert torch.equal(together[::7], alone)
