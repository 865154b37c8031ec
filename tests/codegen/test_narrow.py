"""Positions in 32 bits as C++: random kernels near the ends of int32, and every form that an index takes in vectors."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.ir.index import Expr, loop_var, maximum, minimum, of
from inductor_cpu.ir.kernel import Kernel
from tests.codegen.build import BOOL, F32, I32, I64, Build
from tests.codegen.harness import VECTORS, Library, target
from tests.schedule.positions import Maker, inputs_of, is_narrowed, narrowed, results

ISAS = VECTORS
SEEDS = range(24)
LAST = 2**31 - 1

ROWS, COLUMNS = 3, 83
I, J = of(loop_var("i", ROWS)), of(loop_var("j", COLUMNS))
FLAT = I * COLUMNS + J

#: Form of an index in vectors -> the index. All parts of each fit 32 bits, the last ones just so.
INDICES: dict[str, Expr] = {
    "neighbours": J,
    "down": I * COLUMNS - J * 3 - 7,
    "last": J + (LAST - COLUMNS + 1),
    "first": -J - (LAST - COLUMNS + 2),
    "quotient": (FLAT + 3) // 5,
    "quotient_in_long_steps": (FLAT + (LAST - ROWS * COLUMNS)) // 250,
    "quotient_by_the_last": (FLAT + (LAST - ROWS * COLUMNS)) // (LAST - 40),
    "remainder": (FLAT * 3 + 1) % 7,
    "remainder_in_long_steps": (FLAT + (LAST - ROWS * COLUMNS)) % 250,
    "remainder_by_the_last": (FLAT + (LAST - ROWS * COLUMNS)) % (LAST - 40),
    "product": (J // 3) * (J % 5) * 10_000_000 - LAST,
    "at_most": minimum(J, 40) * 5 - 3,
    "bounded": minimum(J, 40) + 5 * maximum(minimum(60 - J, 30), -3),
    "nested": (J // 3 + 2) % 5 * I,
}
#: "bounded" has parts of which no bounds are found: it stays in 64 bits.
WIDE = ("bounded",)


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {seed: narrowed(Maker(seed).make(isa)) for seed in SEEDS}
    return found | {name: narrowed(shown(isa, name)) for name in INDICES}


def shown(isa: str, name: str) -> Kernel:
    """An index converted, and compared with its value in the middle."""
    b, expr = Build(), INDICES[name]
    place = b.index(expr)
    i, j = (s for e in (I, J) for s in e.symbols)
    b.store("y", FLAT, b.cast(place, I32))
    b.store("z", FLAT, b.op("le", place, b.const(expr.evaluate({i: 1, j: COLUMNS // 2}), I64)))
    return b.kernel(isa, (i, j), vector=j)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels_give_what_the_interpreter_gives_in_64_bits(library: Library, isa: str, seed: int) -> None:
    kernel = kernels(isa)[seed]
    inputs = inputs_of(kernel, seed)
    wanted = results(Maker(seed).make(isa), inputs)
    buffers = [inputs[arg.buffer].clone() for arg in kernel.args]
    assert library.run(kernel, *buffers) == 0
    for arg, got in zip(kernel.args, buffers, strict=True):
        assert not arg.writes or torch.equal(got, wanted[arg.buffer]), (seed, arg)


@pytest.mark.parametrize("name", INDICES)
def test_indices_have_their_values_in_32_bits(library: Library, isa: str, name: str) -> None:
    kernel, expr = kernels(isa)[name], INDICES[name]
    i, j = (s for e in (I, J) for s in e.symbols)
    wanted = torch.tensor([expr.evaluate({i: row, j: column}) for row in range(ROWS) for column in range(COLUMNS)])
    y, z = torch.zeros(len(wanted), dtype=I32), torch.zeros(len(wanted), dtype=BOOL)
    assert library.run(kernel, y, z) == 0
    assert torch.equal(y.long(), wanted)
    assert torch.equal(z, wanted <= expr.evaluate({i: 1, j: COLUMNS // 2}))


def test_these_kernels_are_narrow(isa: str) -> None:
    assert sum(is_narrowed(Maker(seed).make(isa)) for seed in SEEDS) >= len(SEEDS) // 3
    for name in INDICES:
        assert is_narrowed(shown(isa, name)) == (name not in WIDE), name
        code = generate(kernels(isa)[name], target(isa)).code
        assert ("lanes.iota(" in code) <= (name in WIDE)


def test_a_position_becomes_a_float_in_one_conversion(isa: str) -> None:
    b = Build()
    b.store("y", J, b.cast(b.index(J), F32))
    (j,) = J.symbols
    code = generate(narrowed(b.kernel(isa, (j,), vector=j)), target(isa)).code
    assert "lanes.iota32(" in code
    assert "int64_t>" not in code
