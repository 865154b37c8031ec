"""The memory plan: what shares memory, and what must not."""

from __future__ import annotations

from typing import Any

import torch
from torch.special import bessel_j0

from inductor_cpu.ir.index import of, size_symbol
from inductor_cpu.ir.loop_nest import Scalar, Store
from inductor_cpu.ir.nodes import Extern, SizeBinding
from inductor_cpu.schedule.memory import ALIGN
from tests.ir.build import at, buffer, load, loops, nest, program, whole
from tests.schedule.harness import check_program, place_ranges, scheduled

Tensor = torch.Tensor


def steps(x: Tensor, count: int) -> Tensor:
    """A chain in which every link is its own step: an operator without a rule is a call between two kernels."""
    for _ in range(count):
        x = bessel_j0(torch.exp(-x.abs()))
    return x


def test_temps_that_are_never_alive_together_share_memory() -> None:
    x = torch.randn(100)
    schedule = scheduled(lambda x: steps(x, 5), x)
    assert len(schedule.places) == 5
    assert schedule.arena_bytes == 448


def test_temps_of_one_symbolic_size_share_memory() -> None:
    schedule = scheduled(lambda x: steps(x, 5), torch.randn(100), dynamic=True)
    assert len({repr(place.offset) for _, place in schedule.places}) == 1


def test_static_and_symbolic_temps_do_not_overlap() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return steps(x, 2)[:3] + steps(y, 2)[:3]

    schedule = scheduled(fn, torch.randn(100), torch.randn(50), dynamic=True)
    assert len(schedule.places) == 4


def test_a_kernel_writes_over_an_argument_that_dies_in_it_at_the_same_points() -> None:
    def fn(x: Tensor, index: Tensor) -> Tensor:
        y = torch.zeros_like(x).index_add(0, index, x)
        return bessel_j0(torch.exp(y))

    schedule = scheduled(fn, torch.randn(64), torch.randint(0, 64, (64,)))
    ranges = list(place_ranges(schedule).values())
    assert len(ranges) == 2
    assert ranges[0] == ranges[1]


def test_a_kernel_does_not_write_over_an_argument_that_it_reads_at_other_points() -> None:
    def fn(x: Tensor, index: Tensor) -> Tensor:
        y = torch.zeros_like(x).index_add(0, index, x)
        return bessel_j0(torch.exp(y).flip(0))

    schedule = scheduled(fn, torch.randn(64), torch.randint(0, 64, (64,)))
    first, second = place_ranges(schedule).values()
    assert first[1] <= second[0] or second[1] <= first[0]


def test_every_place_starts_on_a_cache_line() -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        return bessel_j0(x * 2) + bessel_j0(x + 1), bessel_j0(y * 2)

    schedule = scheduled(fn, torch.randn(5), torch.randn(7))
    assert schedule.places
    assert all(start % ALIGN == 0 for start, _ in place_ranges(schedule).values())


def test_results_and_inputs_are_not_in_the_arena() -> None:
    schedule = scheduled(lambda x: torch.exp(x), torch.randn(8))
    assert schedule.places == ()
    assert schedule.arena_bytes == 0


def test_a_temp_whose_size_depends_on_data_has_no_place() -> None:
    """out <- cumsum(2 * nonzero(x)): the kernel between the calls fills a temp of u0 elements."""
    u = of(size_symbol("u0"))
    (d,) = loops(u)
    x, found = buffer("x", (8,), "input"), buffer("n", (u, 1), "extern", torch.int64)
    double, out = buffer("t", (u,), dtype=torch.int64), buffer("o", (u,), "extern", torch.int64)
    nodes = (
        Extern("nonzero", torch.ops.aten.nonzero.default, (whole(x),), (), ("n",), "test"),
        nest((d,), (load("n", at(d, 0), torch.int64), Scalar("add", (0, 0), torch.int64)), Store("t", at(d), 1)),
        Extern("sum", torch.ops.aten.cumsum.default, (whole(double), 0), (), ("o",), "test"),
    )
    bindings = (SizeBinding(size_symbol("u0"), "n", 0),)
    made = program((x, found, double, out), nodes, [whole(out)], bindings=bindings)
    schedule = check_program(made, [torch.tensor([0.0, 1, 0, 1, 1, 0, 0, 1])])
    assert schedule.places == ()
