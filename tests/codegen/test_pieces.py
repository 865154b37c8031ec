"""Loops that are written once for each side of a number that positions are compared with."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.pieces import pieces_of
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel

from .build import BF16, F32, Build
from .harness import VECTORS, Library, target

ISAS = VECTORS
ROWS, COLUMNS = 3, 100
N = size_symbol("n")
R, C = loop_var("r", of(N)), loop_var("c", COLUMNS)


@cache
def joined(isa: str, cut: int, dtype: torch.dtype = F32, parallel: int = 0) -> Kernel:
    """Y[r, c] = A[r, c] for c < cut, else -B[r, c - cut]."""
    b = Build()
    place, number = b.index(of(C)), b.const(cut, torch.int64)
    first, rest = b.op("lt", place, number), b.op("ge", place, number)
    one = b.load("A", of(R) * cut + of(C), dtype, mask=first)
    other = b.load("B", of(R) * (COLUMNS - cut) + of(C) - cut, dtype, mask=rest)
    b.store("Y", of(R) * COLUMNS + of(C), b.op("where", first, one, b.op("neg", other)))
    return b.kernel(isa, [R, C], vector=C, sizes=[N], parallel=parallel, work=10**6)


def turned(isa: str, cut: int) -> Kernel:
    """Y[c] = A[c] with its pairs exchanged for c < cut, else B[c - cut] with its pairs exchanged."""
    b = Build()
    place, number = b.index(of(C)), b.const(cut, torch.int64)
    first, rest = b.op("lt", place, number), b.op("ge", place, number)
    own = of(C) - cut
    one = b.load("A", of(C) // 2 * 2 + 1 - of(C) % 2, F32, "gather", mask=first)
    other = b.load("B", own // 2 * 2 + 1 - own % 2, F32, "gather", mask=rest)
    b.store("Y", of(C), b.op("where", first, one, other))
    return b.kernel(isa, [C], vector=C, sizes=[N])


@cache
def joined_with_transposed(isa: str, dtype: torch.dtype) -> Kernel:
    """Y[r, c] = A[r, c] for c < 32, else B[c - 32, r]."""
    b = Build()
    place, number = b.index(of(C)), b.const(32, torch.int64)
    first, rest = b.op("lt", place, number), b.op("ge", place, number)
    one = b.load("A", of(R) * 32 + of(C), dtype, mask=first)
    other = b.load("B", (of(C) - 32) * of(N) + of(R), dtype, "strided", mask=rest)
    b.store("Y", of(R) * COLUMNS + of(C), b.op("where", first, one, other))
    return b.kernel(isa, [R, C], vector=C, sizes=[N])


@cache
def joined_with_repeated(isa: str) -> Kernel:
    """Y[r, c] = A[r, c] * P[c % 5] for c < 32, else Q[c % 3] + A[r, c]."""
    b = Build()
    place, number = b.index(of(C)), b.const(32, torch.int64)
    first = b.op("lt", place, number)
    a = b.load("A", of(R) * COLUMNS + of(C), F32)
    under_a_mask = b.load("P", of(C) % 5, F32, "gather", mask=first)
    everywhere = b.load("Q", of(C) % 3, F32, "gather")
    b.store(
        "Y", of(R) * COLUMNS + of(C), b.op("where", first, b.op("mul", a, under_a_mask), b.op("add", everywhere, a))
    )
    return b.kernel(isa, [R, C], vector=C, sizes=[N])


CUTS = [16, 32, 37, 64, 84]


@pytest.fixture(scope="module")
def library(isa: str) -> Library:
    kernels = [joined(isa, cut, dtype, p) for cut in CUTS for dtype in (F32, BF16) for p in (0, 1, 2)]
    turns = (turned(isa, cut) for cut in (32, 38))
    others = [joined_with_repeated(isa), *(joined_with_transposed(isa, dtype) for dtype in (F32, BF16))]
    return Library(isa, [*kernels, *turns, *others])


@pytest.mark.parametrize("parallel", [0, 1, 2])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("cut", CUTS)
def test_both_sides_of_a_cut_are_right(library: Library, isa: str, cut: int, dtype: torch.dtype, parallel: int) -> None:
    a, b = torch.randn(ROWS, cut).to(dtype), torch.randn(ROWS, COLUMNS - cut).to(dtype)
    y = torch.full((ROWS, COLUMNS), 7.0, dtype=dtype)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert library.run(joined(isa, cut, dtype, parallel), a, b, y, sizes=[ROWS]) == 0
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(y, torch.cat([a, -b], 1))


@pytest.mark.parametrize("cut", [32, 38])
def test_pieces_whose_lanes_read_in_an_order_of_their_own_begin_at_vectors(
    library: Library, isa: str, cut: int
) -> None:
    a, b, y = torch.randn(cut), torch.randn(COLUMNS - cut), torch.empty(COLUMNS)
    assert library.run(turned(isa, cut), a, b, y, sizes=[ROWS]) == 0
    assert torch.equal(y, torch.cat([a.view(-1, 2).flip(1).view(-1), b.view(-1, 2).flip(1).view(-1)]))
    assert bool(pieces_of(Facts(turned(isa, cut)))) is (cut == 32)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_piece_that_reads_a_transposed_operand_is_right(library: Library, isa: str, dtype: torch.dtype) -> None:
    rows = 20
    a, b = torch.randn(rows, 32).to(dtype), torch.randn(COLUMNS - 32, rows).to(dtype)
    y = torch.full((rows, COLUMNS), 7.0, dtype=dtype)
    kernel = joined_with_transposed(isa, dtype)
    assert len(pieces_of(Facts(kernel))) == 2
    assert library.run(kernel, a, b, y, sizes=[rows]) == 0
    assert torch.equal(y, torch.cat([a, b.T], 1))


def test_a_piece_reads_from_no_table_that_the_whole_loop_has_not(library: Library, isa: str) -> None:
    kernel = joined_with_repeated(isa)
    assert len(pieces_of(Facts(kernel))) == 2
    a, p, q, y = torch.randn(ROWS, COLUMNS), torch.randn(5), torch.randn(3), torch.empty(ROWS, COLUMNS)
    assert library.run(kernel, a, p, q, y, sizes=[ROWS]) == 0
    column = torch.arange(COLUMNS)
    torch.testing.assert_close(y, torch.where(column < 32, a * p[column % 5], q[column % 3] + a))


def test_a_loop_is_cut_where_an_answer_changes() -> None:
    pieces = pieces_of(Facts(joined("avx512", 37)))
    assert [(piece.begin, piece.end) for piece in pieces] == [(0, 37), (37, 100)]
    text = generate(joined("avx512", 37), target("avx512")).code if "avx512" in ISAS else "select(true"
    assert "select(true" in text
    assert "select(v" not in text


@pytest.mark.parametrize("cut", [1, 15, 90, 100])
def test_a_piece_shorter_than_a_vector_is_not_cut_off(cut: int) -> None:
    assert pieces_of(Facts(joined("avx512", cut))) == ()


def test_numbers_are_compared_with_infinities() -> None:
    """A division by an infinity asks for the sign of that, which is known: no answer that changes in the loop."""
    b = Build()
    sign = b.op("lt", b.const(float("-inf"), F32), b.const(0.0, F32))
    b.store("Y", of(C), b.op("where", sign, b.load("A", of(C), F32), b.const(1.0, F32)))
    assert pieces_of(Facts(b.kernel("avx512", [C], vector=C))) == ()
