"""Operands of products that are packed at each call: bit for bit, and by tiles where they lie transposed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, pack
from inductor_cpu.ir.operators import PACKED_OPERAND
from tests.cases import cases, in_turns
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

from .harness import VECTORS, target

#: (columns, depth): whole panels and steps, and remainders of columns, of the depth, and of both.
SIZES = [(96, 64), (100, 64), (96, 71), (7, 5), (101, 77)]

FLOATS = [
    name for name, row in MICRO_KERNELS.items() if row.isa == VECTORS[-1] and row.dtype == row.weight and row.pair == 1
]
"""The rows of floats for the widest vectors of this machine."""


def by_operators(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda weight: pack(MICRO_KERNELS[name], weight)


def by_operator(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda weight: PACKED_OPERAND(weight, name)


#: Of known sizes, each is compiled: beside the first row, others meet the extremes.
KNOWN_SIZES = cases(
    [(FLOATS[0], False, SIZES), *((name, False, SIZES[::4]) for name in FLOATS[1:])],
    [(name, False, SIZES[1:4]) for name in FLOATS[1:]],
)


#: With symbols or in batches, a template packs: every other row in every run, half of floats and half of low precision.
SOME, OTHERS = FLOATS[1::2], FLOATS[::2]
WITH_SYMBOLS = cases(((name, True, SIZES) for name in SOME), ((name, True, SIZES) for name in OTHERS))


@pytest.mark.parametrize(("name", "dynamic", "sizes"), [*KNOWN_SIZES, *WITH_SYMBOLS], ids=str)
def test_a_transposed_operand_is_packed_bit_for_bit(name: str, dynamic: bool, sizes: list[tuple[int, int]]) -> None:
    row = MICRO_KERNELS[name]
    compiled = torch.compile((by_operator if dynamic else by_operators)(name), backend="icpu", dynamic=dynamic)
    for size in sizes:
        weight = torch.randn(size).to(row.weight)
        assert torch.equal(compiled(weight), pack(row, weight))


@pytest.mark.parametrize("name", cases(SOME, OTHERS))
def test_each_of_a_batch_is_packed_bit_for_bit(name: str) -> None:
    row = MICRO_KERNELS[name]
    compiled = torch.compile(by_operator(name), backend="icpu", dynamic=False)
    for size in SIZES[:3]:
        weights = torch.randn(3, *size).to(row.weight)
        assert torch.equal(compiled(weights), torch.stack([pack(row, weight) for weight in weights]))


@pytest.mark.parametrize(("packed", "dynamic"), in_turns(product(FLOATS, SIZES), [False, True]), ids=str)
def test_packing_a_transposed_operand_takes_no_gathers(packed: tuple[str, tuple[int, int]], dynamic: bool) -> None:
    name, size = packed
    row = MICRO_KERNELS[name]
    function = (by_operator if dynamic else by_operators)(name)
    program = lower(function, torch.randn(size).to(row.weight), dynamic=dynamic)
    lanes = target(row.isa).isa.bits // 32
    texts = [generate(kernel, target(row.isa)).code for kernel in kernels(schedule_of(program, lanes))]
    assert len(texts) == 1
    assert "load_tile" in texts[0]
    assert "gather" not in texts[0]
    assert "scatter" not in texts[0]
