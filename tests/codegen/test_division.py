"""Quotients and remainders of integers in vectors, against Python's integers: where doubles are off by one, at the ends
of the range, by zero, and of numbers that no lane asks for."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel

from .build import I32, I64, Build
from .harness import Library

N = size_symbol("n")
I = loop_var("i", of(N))
OPS = ("floordiv", "truncdiv", "remainder", "fmod")
DTYPES = (I32, I64, torch.int16, torch.int8, torch.uint8)
CONSTANT = 7


@cache
def kernels(isa: str) -> dict[tuple[torch.dtype, bool], Kernel]:
    """All four of two operands, and by a constant."""
    return {(dtype, constant): _kernel(isa, dtype, constant) for dtype in DTYPES for constant in (False, True)}


def _kernel(isa: str, dtype: torch.dtype, constant: bool) -> Kernel:
    b = Build()
    x = b.load("X", of(I), dtype)
    y = b.const(CONSTANT, dtype) if constant else b.load("Y", of(I), dtype)
    for op in OPS:
        b.store(op, of(I), b.op(op, x, y))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def exact(op: str, a: int, b: int, dtype: torch.dtype) -> int:
    """The result of the op, wrapped to the dtype."""
    floor, rest = divmod(a, b)
    away = int(rest != 0 and floor < 0)  # truncated quotients of different signs are one more
    value = {"floordiv": floor, "truncdiv": floor + away, "remainder": rest, "fmod": rest - away * b}[op]
    limits = torch.iinfo(dtype)
    return (value - limits.min) % (limits.max - limits.min + 1) + limits.min


def pairs(dtype: torch.dtype, seed: int) -> list[tuple[int, int]]:
    """Numbers of all sizes, multiples of the divisor and their neighbours, powers of two, the ends of the range."""
    limits, source = torch.iinfo(dtype), random.Random(seed)
    fits = range(limits.min, limits.max + 1)
    ends = [n for n in (limits.min, limits.min + 1, -1, 1, limits.max - 1, limits.max) if n in fits]
    found = [(a, b) for a in [*ends, 0] for b in ends if b]

    def number() -> int:
        return source.choice((1, -1)) * source.getrandbits(source.randint(1, limits.bits - 1))

    while len(found) < 4000:
        b, quotient = number() or 3, number()
        a = source.choice([b * quotient + source.randint(-1, 1), number(), 2 ** source.randrange(limits.bits) - 1])
        if a in fits and b in fits and b:
            found.append((a, b))
    source.shuffle(found)  # large ones beside small ones, which take the same vector
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_are_those_of_integers(library: Library, isa: str, dtype: torch.dtype) -> None:
    found = pairs(dtype, seed := 20261130)
    x, y = (torch.tensor(values, dtype=dtype) for values in zip(*found, strict=True))
    outputs = {op: torch.empty_like(x) for op in OPS}
    assert library.run(kernels(isa)[dtype, False], x, y, *outputs.values(), sizes=[len(x)]) == 0
    for op, output in outputs.items():
        wrong = [(a, b, r) for (a, b), r in zip(found, output.tolist(), strict=True) if r != exact(op, a, b, dtype)]
        assert not wrong, (seed, op, wrong[:5])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_by_a_constant_are_those_of_integers(library: Library, isa: str, dtype: torch.dtype) -> None:
    numbers = sorted({a for a, _ in pairs(dtype, 1)})
    x = torch.tensor(numbers, dtype=dtype)
    outputs = {op: torch.empty_like(x) for op in OPS}
    assert library.run(kernels(isa)[dtype, True], x, *outputs.values(), sizes=[len(x)]) == 0
    for op, output in outputs.items():
        assert output.tolist() == [exact(op, a, CONSTANT, dtype) for a in numbers]


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
@pytest.mark.parametrize("place", [None, 0, 20])
def test_zero_is_told_where_a_lane_divides_by_it(
    library: Library, isa: str, dtype: torch.dtype, place: int | None
) -> None:
    size = 21  # a tail in all vectors, whose other lanes hold zeros
    x, y = torch.arange(100, 100 + size, dtype=dtype), torch.full((size,), 3, dtype=dtype)
    if place is not None:
        y[place] = 0
    outputs = {op: torch.empty_like(x) for op in OPS}
    status = library.run(kernels(isa)[dtype, False], x, y, *outputs.values(), sizes=[size])
    assert (status != 0) == (place is not None)
    for op, output in outputs.items():
        expected = [0 if b == 0 else exact(op, a, b, dtype) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        assert output.tolist() == expected
