"""Kernels that share much memory run in turns, a piece at a time; what needs other pieces stays apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.kernel import Strips
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, MicroKernel
from inductor_cpu.ir.operators import PACKED_LINEAR
from inductor_cpu.ir.strips import unit_span, verify_strips
from inductor_cpu.schedule.strips import BLOCK_ROWS, with_locals
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of, scheduled


def strips_of(function: Callable[..., object], *inputs: torch.Tensor, cores: int = 4) -> list[Strips]:
    schedule = schedule_of(lower(function, *inputs), cores=cores)
    return [step for step in schedule.steps if isinstance(step, Strips)]


def pooled(x: torch.Tensor) -> torch.Tensor:
    return F.adaptive_avg_pool2d(x, 7)


def test_both_directions_of_a_pooling_run_in_turns_and_the_rows_between_are_local() -> None:
    (strips,) = strips_of(pooled, torch.empty(16, 256, 28, 28))
    assert (strips.units, strips.shares) == (28672, (1, 7))
    assert [elements for _, elements in strips.local] == [28]
    assert strips.piece * strips.shares[1] % strips.kernels[1].vector.lanes == 0
    assert {arg.buffer for arg in strips.args}.isdisjoint(name for name, _ in strips.local)


def test_small_operands_are_in_a_cache_anyway() -> None:
    assert strips_of(pooled, torch.empty(1, 64, 28, 28)) == []


def test_sums_of_rows_and_of_columns_read_the_same_piece() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, -1), x.sum(0)

    x = torch.randn(2048, 512)
    (strips,) = strips_of(both, x)
    assert (strips.units, strips.shares) == (16, (128, 1))
    assert strips.local == ()
    scheduled(both, x)  # interpreted, and compared


def test_a_temp_that_another_step_reads_keeps_its_memory() -> None:
    def pooled_and_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.view(4096, 7, 4, 28).sum(2)
        return rows.view(4096, 7, 7, 4).sum(-1), rows

    (strips,) = strips_of(pooled_and_rows, torch.empty(4096, 28, 28))
    assert strips.local == ()


def test_what_needs_all_rows_first_is_not_joined() -> None:
    def centered(x: torch.Tensor) -> torch.Tensor:
        return x - x.sum(0)

    assert strips_of(centered, torch.empty(2048, 512)) == []


def test_rows_in_another_order_are_not_joined() -> None:
    def flipped(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1).flip(0).cumsum(-1)

    assert strips_of(flipped, torch.empty(2048, 512)) == []


def test_the_unit_of_a_buffer_is_what_no_other_unit_touches() -> None:
    (kernel,) = kernels(schedule_of(lower(lambda x: x[:, :-1] + x[:, 1:], torch.empty(64, 65))))
    load = next(name for name in (arg.buffer for arg in kernel.args if arg.reads))
    result = next(name for name in (arg.buffer for arg in kernel.args if arg.writes))
    assert (unit_span(kernel, 4, load), unit_span(kernel, 4, result)) == (4 * 65, 4 * 64)
    (overlapping,) = kernels(schedule_of(lower(lambda x: x[:-1] + x[1:], torch.empty(65, 64))))
    load = next(name for name in (arg.buffer for arg in overlapping.args if arg.reads))
    assert unit_span(overlapping, 1, load) is None


@pytest.mark.parametrize(
    "change",
    [
        {"units": 14336},
        {"shares": (7, 1)},
        {"local": (("nothing", 28),)},
    ],
    ids=str,
)
def test_strips_that_say_something_wrong_are_refused(change: dict[str, object]) -> None:
    (strips,) = strips_of(pooled, torch.empty(16, 256, 28, 28))
    verify_strips(strips)
    if "local" in change:
        change = {"local": tuple((name, 14) for name, _ in strips.local)}
    with pytest.raises(InternalError):
        verify_strips(replace(strips, **change))  # type: ignore[arg-type]


def test_threads_have_several_pieces_each() -> None:
    (strips,) = strips_of(pooled, torch.empty(16, 256, 28, 28), cores=32)
    assert strips.units // strips.piece >= 4 * 32


def test_too_few_units_for_the_threads_stay_whole_kernels() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, -1), x.sum(0)

    x = torch.empty(2048, 512)  # 16 blocks of rows
    assert [len(strips_of(both, x, cores=cores)) for cores in (4, 5)] == [1, 0]


def test_a_temp_that_another_step_writes_too_keeps_its_memory() -> None:
    """A part of it, as a piece of a cat: the strips must read it where it lies."""
    schedule = schedule_of(lower(pooled, torch.empty(16, 256, 28, 28)))
    (strips,) = schedule.steps
    assert isinstance(strips, Strips)
    buffers = schedule.program.buffer_table
    assert with_locals(strips, [strips], buffers, set()).local == strips.local != ()
    assert with_locals(strips, [strips.kernels[0], strips], buffers, set()).local == ()


# -- matrix products -------------------------------------------------------------------------------------------------
MICRO = MICRO_KERNELS["fma_f32"]


def weight(columns: int, depth: int, micro: MicroKernel = MICRO) -> torch.Tensor:
    return torch.empty(micro.packed_shape(columns, depth))


def linear(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor, micro: MicroKernel = MICRO) -> torch.Tensor:
    return PACKED_LINEAR(x, packed, bias, None, len(bias), micro.name)


def mlp(x: torch.Tensor, up: torch.Tensor, a: torch.Tensor, down: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Two linears, and what a model has around them."""
    return x + linear(F.gelu(linear(F.layer_norm(x, x.shape[1:]), up, a)), down, b)


def mlp_inputs(rows: int, width: int) -> tuple[torch.Tensor, ...]:
    hidden = 4 * width
    return (
        torch.empty(rows, width),
        weight(hidden, width),
        torch.empty(hidden),
        weight(width, hidden),
        torch.empty(width),
    )


def test_an_mlp_runs_in_turns_and_its_hidden_rows_are_local() -> None:
    (strips,) = strips_of(mlp, *mlp_inputs(3136, 96))
    assert (strips.units, strips.shares) == (3136, (1, 1, 1))
    assert sorted(elements for _, elements in strips.local) == [96, 384]
    assert strips.piece % BLOCK_ROWS == 0
    assert [kernel.product is None for kernel in strips.kernels] == [True, False, False]


def test_weights_beyond_a_part_of_the_cache_stay_apart() -> None:
    found = strips_of(mlp, *mlp_inputs(3136, 256))
    assert all(sum(kernel.product is not None for kernel in strips.kernels) < 2 for strips in found)


@pytest.mark.parametrize(("name", "found"), [("fma_f32", 1), ("split_f32", 0)])
def test_weights_that_are_converted_first_are_read_once(name: str, found: int) -> None:
    def two(x: torch.Tensor, up: torch.Tensor, a: torch.Tensor, down: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return linear(linear(x, up, a, micro), down, b, micro)

    micro, (x, _, a, _, b) = MICRO_KERNELS[name], mlp_inputs(3136, 96)
    assert len(strips_of(two, x, weight(384, 96, micro), a, weight(96, 384, micro), b)) == found


def test_an_mlp_of_few_rows_stays_apart() -> None:
    """Its hidden rows stay in the cache anyway, and its threads would have few blocks."""
    assert strips_of(mlp, *mlp_inputs(128, 96)) == []


def test_the_unit_of_a_product_is_rows() -> None:
    (kernel,) = kernels(schedule_of(lower(linear, torch.empty(64, 40), weight(50, 40), torch.empty(50))))
    assert kernel.product is not None
    (result,) = (arg.buffer for arg in kernel.args if arg.writes)
    assert unit_span(kernel, 2, kernel.product.a.buffer) == 2 * 40
    assert unit_span(kernel, 2, result) == 2 * 50
    others = {arg.buffer for arg in kernel.args} - {result, kernel.product.a.buffer}
    assert {unit_span(kernel, 2, name) for name in others} == {None}


@pytest.mark.parametrize(
    "between",
    [lambda h: h.t().contiguous().view(3136, 384), lambda h: h.flip(0).cumsum(1), lambda h: h - h.sum(0)],
    ids=["columns", "other rows", "all rows"],
)
def test_a_product_that_needs_other_rows_of_the_first_is_not_in_turns_with_it(between: Callable[..., object]) -> None:
    x, up, a, down, b = mlp_inputs(3136, 96)
    found = strips_of(lambda x, up, a, down, b: linear(between(linear(x, up, a)), down, b), x, up, a, down, b)
    assert all(sum(kernel.product is not None for kernel in strips.kernels) < 2 for strips in found)


def test_products_with_wrong_units_are_refused() -> None:
    (strips,) = strips_of(mlp, *mlp_inputs(3136, 96))
    verify_strips(strips)
    for change in ({"units": 1568}, {"shares": (1, 2, 1)}, {"local": tuple((name, 95) for name, _ in strips.local)}):
        with pytest.raises(InternalError):
            verify_strips(replace(strips, **change))
