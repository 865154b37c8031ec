"""Lanes that read neighbours in an order that is the same in every vector."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch

from inductor_cpu.codegen.alternating import alternates
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.ir.index import Expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.lane_order import constant_lanes, lane_order
from inductor_cpu.ir.ops import LOOP_DTYPES
from tests.cases import cases

from .build import BF16, BOOL, F16, F32, F64, I64, Build
from .harness import VECTORS, Library, alike_in_turns, target

ISAS = VECTORS
DTYPES = sorted(LOOP_DTYPES, key=str)
N = size_symbol("n")
M = size_symbol("m")
I = loop_var("i", of(N))

#: What each point reads. Of n points, none reads beyond 2 n.
ADDRESSES: dict[str, Expr] = {
    "twice": of(I) // 2,
    "four_times": of(I) // 4,
    "first_of_pair": of(I) // 2 * 2,
    "exchanged": of(I) // 2 * 2 + 1 - of(I) % 2,
    "shifted_pairs": (of(I) + 1) // 2,
    "backwards": of(N) - 1 - of(I),
    "with_gaps": of(I) // 8 * 9 + of(I) % 8 // 2,
}


def moved(isa: str, address: Expr, dtype: torch.dtype) -> Kernel:
    """Y[i] = X[address]."""
    b = Build()
    access = "strided" if address.coefficient(I) is not None else "gather"
    b.store("Y", of(I), b.load("X", address, dtype, access))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def turned(isa: str, dtype: torch.dtype) -> Kernel:
    """Y[i] = -X[i + 1] for even i, else X[i - 1], as a rotation of pairs is lowered; 7 fills what is not read."""
    b = Build()
    parity, one = b.index(of(I) % 2), b.const(1, I64)
    even, odd = b.op("lt", parity, one), b.op("ge", parity, one)
    right = b.load("X", of(I) // 2 * 2 + 1, dtype, "gather", mask=even, fill=7)
    left = b.load("X", of(I) // 2 * 2, dtype, "gather", mask=odd, fill=7)
    b.store("Y", of(I), b.op("where", even, b.op("neg", right), left))
    b.store("L", of(I), left)
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def rotated(isa: str, dtype: torch.dtype, size: Expr) -> Kernel:
    """Y[i] = 2 X[i] - X[i + 1] for even i, else 2 X[i] + X[i - 1], as a rotation of pairs; Z[i] = X[i ^ 1]."""
    b, i = Build(), loop_var("i", size)
    parity, one = b.index(of(i) % 2), b.const(1, I64)
    even, odd = b.op("lt", parity, one), b.op("ge", parity, one)
    x = b.load("X", of(i), dtype)
    right = b.load("X", of(i) // 2 * 2 + 1, dtype, "gather", mask=even, fill=7)
    left = b.load("X", of(i) // 2 * 2, dtype, "gather", mask=odd, fill=7)
    twice = b.op("add", x, x)
    b.store("Y", of(i), b.op("add", twice, b.op("where", even, b.op("neg", right), left)))
    b.store("Z", of(i), b.load("X", of(i) // 2 * 2 + 1 - of(i) % 2, dtype, "gather"))
    b.store("L", of(i), left)
    return b.kernel(isa, (i,), vector=i, sizes=(N,))


def windows(isa: str, dtype: torch.dtype) -> Kernel:
    """Y[i] = X[(i + 1) // 2 - 1], as a window that reaches over both ends; 7 fills what lies outside."""
    b = Build()
    place = (of(I) + 1) // 2 - 1
    inside = b.op(
        "logical_and", b.op("ge", b.index(place), b.const(0, I64)), b.op("lt", b.index(place), b.index(of(M)))
    )
    b.store("Y", of(I), b.load("X", place, dtype, "gather", mask=inside, fill=7))
    return b.kernel(isa, (I,), vector=I, sizes=(N, M))


def rows(isa: str, dtype: torch.dtype) -> Kernel:
    """Y[i] = X[i // 2] if there are rows, else 7: a mask that is the same in all lanes."""
    b = Build()
    there = b.op("gt", b.index(of(M)), b.const(0, I64))
    b.store("Y", of(I), b.load("X", of(I) // 2, dtype, "gather", mask=there, fill=7))
    return b.kernel(isa, (I,), vector=I, sizes=(N, M))


#: Elements of one size, which are moved alike (a bool is a byte): one of each size for every address in every run.
SIZES = [[dtype for dtype in DTYPES if dtype.itemsize == size] for size in (1, 2, 4, 8)]
ALWAYS = alike_in_turns(ADDRESSES, *SIZES)
FULL = [case for case in product(ADDRESSES, DTYPES) if case not in ALWAYS]


@cache
def kernels(isa: str) -> dict[tuple[str, torch.dtype], Kernel]:
    found = {(name, dtype): moved(isa, address, dtype) for name, address in ADDRESSES.items() for dtype in DTYPES}
    masked = {"turned": turned, "windows": windows, "rows": rows}
    found |= {("rotated", dtype): rotated(isa, dtype, of(N) * 2) for dtype in (F32, BF16, I64, F64, F16)}
    return found | {(name, dtype): build(isa, dtype) for name, build in masked.items() for dtype in (F32, BF16, I64)}


@pytest.mark.parametrize(("name", "dtype"), cases(ALWAYS, FULL), ids=str)
def test_ordered_loads_read_their_elements_and_nothing_beyond(
    library: Library, isa: str, name: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    page = last_page.view(dtype)
    page.copy_(torch.arange(len(page)) % 3 == 0 if dtype == BOOL else (torch.arange(len(page)) % 90).to(dtype))
    for n in (1, 7, 8, 16, 37, 64, 80):
        places = torch.tensor([ADDRESSES[name].evaluate({I: i, N: n}) for i in range(n)])
        x, y = page[len(page) - 1 - int(places.max()) :], torch.ones(n + 8, dtype=dtype)
        assert library.run(kernels(isa)[name, dtype], x, y, sizes=[n]) == 0
        assert torch.equal(y, torch.cat([x[places], torch.ones(8, dtype=dtype)]))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_the_order_of_a_masked_load_leaves_out_what_the_mask_leaves_out(
    library: Library, isa: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    page = last_page.view(dtype)
    page.copy_(torch.arange(len(page)) % 90)
    for n in (2, 8, 16, 38, 64):
        x, y, left = page[len(page) - n :], torch.empty(n, dtype=dtype), torch.empty(n, dtype=dtype)
        assert library.run(kernels(isa)["turned", dtype], x, y, left, sizes=[n]) == 0
        pairs = x.view(-1, 2)
        assert torch.equal(y.view(-1, 2), torch.stack([-pairs[:, 1], pairs[:, 0]], 1))
        assert torch.equal(left.view(-1, 2), torch.stack([torch.full_like(pairs[:, 0], 7), pairs[:, 0]], 1))


@pytest.mark.parametrize("dtype", [F32, BF16, I64, F64, F16], ids=str)
def test_lanes_swap_in_pairs_what_another_load_has_read(
    library: Library, isa: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    kernel = kernels(isa)["rotated", dtype]
    assert generate(kernel, target(isa)).code.count("swap_pairs") == 3
    assert alternates(Facts(kernel)) == (dtype == BF16 and isa == "avx2")
    page = last_page.view(dtype)
    page.copy_(torch.arange(len(page)) % 90)
    for n in (2, 8, 16, 22, 38, 64):
        x, (y, z, left) = page[len(page) - n :], torch.ones(3, n + 8, dtype=dtype)
        assert library.run(kernel, x, y, z, left, sizes=[n // 2]) == 0
        even, odd = x.view(-1, 2).unbind(1)
        want = [
            torch.stack([even + even - odd, odd + odd + even], 1),
            torch.stack([odd, even], 1),
            torch.stack([torch.full_like(even, 7), even], 1),
        ]
        for got, expected in zip((y, z, left), want, strict=True):
            assert torch.equal(got[:n], expected.flatten())
            assert torch.equal(got[n:], torch.ones(8, dtype=dtype))


@pytest.mark.parametrize("size", [of(N), of(N) * 2 + 1])
def test_lanes_that_may_have_no_neighbour_read_for_themselves(isa: str, size: Expr) -> None:
    assert "swap_pairs" not in generate(rotated(isa, F32, size), target(isa)).code


@pytest.mark.parametrize("dtype", [F32, BF16, I64], ids=str)
def test_a_mask_that_differs_between_vectors_leaves_out_what_is_not_there(
    library: Library, isa: str, dtype: torch.dtype, last_page: torch.Tensor
) -> None:
    page = last_page.view(dtype)
    page.copy_(torch.arange(len(page)) % 90)
    for n, m in ((1, 1), (7, 2), (16, 8), (37, 12), (64, 31), (80, 40), (80, 3)):
        x, y = page[len(page) - m :], torch.empty(n, dtype=dtype)
        assert library.run(kernels(isa)["windows", dtype], x, y, sizes=[n, m]) == 0
        places = (torch.arange(n) + 1) // 2 - 1
        assert torch.equal(y, torch.where((places >= 0) & (places < m), x[places.clamp(0, m - 1)], 7))


@pytest.mark.parametrize("dtype", [F32, BF16, I64], ids=str)
def test_a_mask_of_all_lanes_reads_nothing_where_it_is_off(library: Library, isa: str, dtype: torch.dtype) -> None:
    x, y = torch.arange(20).to(dtype), torch.empty(40, dtype=dtype)
    assert library.run(kernels(isa)["rows", dtype], x, y, sizes=[40, 1]) == 0
    assert torch.equal(y, x.repeat_interleave(2))
    assert library.run(kernels(isa)["rows", dtype], x[:0], y, sizes=[40, 0]) == 0
    assert torch.equal(y, torch.full_like(y, 7))


@pytest.mark.parametrize("name", ["windows", "rows"])
def test_a_mask_does_not_ask_for_gathers(isa: str, name: str) -> None:
    assert "gather" not in generate(kernels(isa)[name, F32], target(isa)).code


@pytest.mark.parametrize("name", ADDRESSES)
def test_the_addresses_of_these_tests_are_read_without_gathers(isa: str, name: str) -> None:
    kernel = kernels(isa)[name, F32]
    assert Facts(kernel).load_access(0) == "ordered"
    assert "icpu::load_ordered<" in generate(kernel, target(isa)).code


def test_lanes_that_spread_wider_than_a_vector_are_gathered() -> None:
    for address in (of(I) // 2 * 8, of(I) * 2 + of(I) % 2, of(I) // 3, of(N) * (of(I) % 2)):
        assert Facts(moved("avx512", address, F32)).load_access(0) != "ordered"


def test_masks_of_alternating_lanes_are_numbers() -> None:
    if "avx512" not in ISAS:
        pytest.skip("no AVX-512")
    code = generate(turned("avx512", F32), target("avx512")).code
    assert "pick_lanes<0x5555>" in code
    assert "remainders" not in code


def test_lane_order_of_pairs() -> None:
    i = loop_var("i", 64)
    order = lane_order(of(i) // 2 * 2 + 1, i, 4)
    assert order is not None
    assert (order.steps, order.step) == ((0, 0, 2, 2), 4)
    assert constant_lanes((of(i) + 1) % 2, i, 4) == (1, 0, 1, 0)
    assert constant_lanes(of(i) // 2, i, 4) is None
    assert lane_order(of(i) // 3, i, 4) is None
