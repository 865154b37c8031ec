"""Which scatters into rows run in turns with what fills and reads their buffer, their points listed by rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import value_symbol
from inductor_cpu.ir.kernel import Kernel, Listed, Strips
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.strips import unit_span, verify_strips
from tests.lower.harness import lower
from tests.schedule.harness import schedule_of, scheduled

Tensor = torch.Tensor
ROWS, POINTS, WIDTH = 3000, 1000, 128


def gradient(grad: Tensor, index: Tensor) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(grad, index, ROWS, 7, False)


def added(grad: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(ROWS, grad.shape[1]).index_add(0, index, grad)


def inputs(points: int = POINTS, width: int = WIDTH, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(points, width).to(dtype), torch.randint(0, ROWS, (points,))


def strips_of(function: Callable[..., object], *args: Tensor, cores: int = 4, lanes: int = 16) -> list[Strips]:
    schedule = schedule_of(lower(function, *args), cores=cores, lanes=lanes)
    return [step for step in schedule.steps if isinstance(step, Strips)]


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("function", [gradient, added])
def test_a_piece_of_rows_is_filled_and_added_to_at_a_time(
    function: Callable[..., Tensor], cores: int, lanes: int
) -> None:
    (strips,) = strips_of(function, *inputs(), cores=cores, lanes=lanes)
    assert (strips.units, strips.shares, strips.local) == (ROWS, (WIDTH, 1), ())
    scatter = strips.kernels[1]
    assert scatter.listed is not None
    assert [loop.size for loop in scatter.outer] == [POINTS, WIDTH]
    assert f"listed by row {scatter.listed.row} of {ROWS}" in show(scatter)
    scheduled(function, *inputs(), cores=cores, lanes=lanes)


def test_the_float_sums_of_a_gradient_of_low_precision_only_live_within_a_piece() -> None:
    (strips,) = strips_of(gradient, *inputs(2000, dtype=torch.bfloat16))
    assert [elements for _, elements in strips.local] == [WIDTH]
    assert len(strips.kernels) == 3
    scheduled(gradient, *inputs(2000, dtype=torch.bfloat16))


def test_indices_of_several_dimensions_are_one_list() -> None:
    grad, index = inputs()
    (strips,) = strips_of(gradient, grad.view(10, 100, WIDTH), index.view(10, 100))
    assert strips.kernels[1].outer[0].size == POINTS


@pytest.mark.parametrize(
    ("points", "width"), [(POINTS, 64), (POINTS, 32), (100, WIDTH)], ids=["in a cache", "short rows", "few points"]
)
def test_scatters_that_gain_nothing_stay_alone(points: int, width: int) -> None:
    assert strips_of(gradient, *inputs(points, width)) == []


def test_rows_that_two_loops_decide_stay_alone() -> None:
    def function(grad: Tensor, index: Tensor) -> Tensor:
        return torch.zeros(4, ROWS, WIDTH).index_add(1, index, grad)

    assert strips_of(function, torch.empty(4, POINTS, WIDTH), inputs()[1]) == []


def test_places_that_the_kernel_before_has_written_stay_alone() -> None:
    """All of them must be known before the first piece."""

    def function(grad: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        moved = index + 1
        return gradient(grad, moved), moved

    found = strips_of(function, *inputs())
    assert all(moved.isdisjoint({"i64"}) for moved in ({str(a.dtype) for a in s.args if a.writes} for s in found))
    scheduled(function, inputs()[0], inputs()[1].clamp(max=ROWS - 2))


def test_the_unit_of_a_scatter_is_its_rows() -> None:
    (strips,) = strips_of(gradient, *inputs())
    scatter = strips.kernels[1]
    spans = {arg.buffer: unit_span(scatter, 2, arg.buffer) for arg in scatter.args}
    assert sorted(spans.values(), key=str) == [2 * WIDTH, None, None]


def other_row(scatter: Kernel) -> Kernel:
    assert scatter.listed is not None
    return replace(scatter, listed=Listed(value_symbol(0, ROWS)))


def shared_loops(scatter: Kernel) -> Kernel:
    return replace(scatter, parallel=1)


def lanes_of_points(scatter: Kernel) -> Kernel:
    return replace(scatter, vector=replace(scatter.vector, loop=scatter.outer[0]))


@pytest.mark.parametrize("change", [other_row, shared_loops, lanes_of_points])
def test_lists_that_do_not_keep_points_in_order_are_refused(change: Callable[[Kernel], Kernel]) -> None:
    (strips,) = strips_of(gradient, *inputs())
    verify_strips(strips)
    fill, scatter = strips.kernels
    with pytest.raises(InternalError):
        verify_strips(replace(strips, kernels=(fill, change(scatter))))
