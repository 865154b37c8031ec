"""Floats of 8 bits: every code as a number, and every number that matters as a code, bit for bit as in eager mode."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.ops import FLOAT8

from .build import BF16, F16, F32, F64, U8, Build
from .harness import Library

DTYPES = sorted(FLOAT8, key=str)
WIDE = (F32, F64, BF16, F16)
N = size_symbol("n")
I = loop_var("i", of(N))


@cache
def conversion(isa: str, source: torch.dtype, to: torch.dtype) -> Kernel:
    b = Build()
    b.store("Y", of(I), b.cast(b.load("X", of(I), source), to))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


@cache
def there_and_back(isa: str, dtype: torch.dtype) -> Kernel:
    """The number that a float is rounded to, which never is in memory as a code."""
    b = Build()
    b.store("Y", of(I), b.cast(b.cast(b.load("X", of(I), F32), dtype), F32))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


@pytest.fixture(scope="module")
def library(isa: str) -> Library:
    kernels = [conversion(isa, *pair) for d in DTYPES for w in WIDE for pair in ((d, w), (w, d))]
    return Library(isa, [*kernels, *(there_and_back(isa, d) for d in DTYPES)])


def all_halves(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def floats() -> torch.Tensor:
    """Random bits, what lies half way between two numbers of each format and next to it, and limits."""
    bits = torch.randint(-(2**31), 2**31, (20_000,), dtype=torch.int64, generator=torch.Generator().manual_seed(0))
    ties = torch.arange(0, 0x8000, dtype=torch.int32) << 16 | 0x80000000 - 2**32
    ties = torch.cat([ties, ties & 0x7FFFFFFF])
    near = torch.cat([ties - 1, ties, ties + 1])
    return torch.cat([bits.to(torch.int32), near]).view(F32)


def converted(library: Library, kernel: Kernel, x: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    y = torch.empty(len(x), dtype=to)
    assert library.run(kernel, x, y, sizes=[len(x)]) == 0
    return y


@pytest.mark.parametrize("to", WIDE, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_code_is_the_number_of_eager(library: Library, isa: str, dtype: torch.dtype, to: torch.dtype) -> None:
    codes = torch.arange(259).to(U8).view(dtype)  # with a tail
    y = converted(library, conversion(isa, dtype, to), codes, to)
    torch.testing.assert_close(y, codes.to(to), rtol=0, atol=0, equal_nan=True)
    number = ~y.isnan()
    assert torch.equal(y[number].signbit(), codes.to(to)[number].signbit())


@pytest.mark.parametrize("source", [BF16, F16], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number_of_16_bits_gets_the_code_of_eager(
    library: Library, isa: str, dtype: torch.dtype, source: torch.dtype
) -> None:
    x = all_halves(source)
    y = converted(library, conversion(isa, source, dtype), x, dtype)
    assert torch.equal(y.view(U8), x.to(dtype).view(U8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_floats_and_doubles_get_the_code_of_eager(library: Library, isa: str, dtype: torch.dtype) -> None:
    for x in (floats(), floats().double() * (1 + 2**-40)):
        y = converted(library, conversion(isa, x.dtype, dtype), x, dtype)
        assert torch.equal(y.view(U8), x.to(dtype).view(U8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_float_that_is_rounded_on_the_way_is_that_of_eager(library: Library, isa: str, dtype: torch.dtype) -> None:
    x = floats()
    y = converted(library, there_and_back(isa, dtype), x, F32)
    torch.testing.assert_close(y, x.to(dtype).float(), rtol=0, atol=0, equal_nan=True)
