"""Innermost loops shorter than a vector: when they become one with those around them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Index
from tests.schedule.harness import only_kernel, scheduled

Tensor = torch.Tensor


def kernel(fn: Callable[..., Tensor], *inputs: Tensor, dynamic: bool = False) -> Kernel:
    return only_kernel(scheduled(fn, *inputs, dynamic=dynamic))


def sizes(loops: tuple[Sym, ...]) -> list[int | None]:
    return [None if loop.size is None else loop.size.as_int for loop in loops]


def update(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[1:-1, :, 0] = y
    return x


@pytest.mark.parametrize("last", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_an_update_of_a_short_last_dimension_fills_vectors(last: int, dtype: torch.dtype) -> None:
    found = kernel(update, torch.randn(5, 30, last).to(dtype), torch.randn(3, 30).to(dtype))
    assert sizes(found.outer) == [5, 30 * last]
    assert (found.vector.loop, dict(found.vector.access)[-1]) == (found.outer[1], "contiguous")


def test_several_short_loops_become_one_with_the_loop_around_them() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(torch.arange(2)[:, None] == torch.arange(2), x, y[..., None, None])

    found = kernel(fn, torch.randn(5, 26, 2, 2), torch.randn(5, 27)[:, 1:])
    assert sizes(found.outer) == [5, 104]


def test_bounds_of_an_outer_loop_are_bounds_of_the_merged_one() -> None:
    """No quotient is computed to compare it."""

    def fn(x: Tensor) -> Tensor:
        return torch.where((torch.arange(30)[:, None] >= 3) & (torch.arange(4) == 1), x * 2, x)

    found = kernel(fn, torch.randn(30, 4))
    indices = [i.expr for i in found.body if isinstance(i, Index)]
    assert [expr.functions for expr in indices if expr.coefficient(found.outer[-1]) is None] == [
        frozenset({function}) for expr in indices for function in expr.functions if function.name == "mod"
    ]
    assert any(expr.coefficient(found.outer[-1]) == 1 for expr in indices)


def test_a_loop_around_short_ones_may_have_any_size() -> None:
    found = kernel(lambda x, y: x * y[..., None], torch.randn(3, 30, 4)[:, ::2], torch.randn(3, 15), dynamic=True)
    assert len(found.outer) == 2


def test_a_last_loop_that_fills_vectors_stays() -> None:
    found = kernel(lambda x, y: x * y[..., None], torch.randn(30, 32), torch.randn(30))
    assert sizes(found.outer) == [30, 32]


def test_elements_that_lie_apart_stay_apart() -> None:
    """Lanes along the long loop go through a tile; merged ones would be gathered and scattered."""
    found = kernel(lambda x: x.transpose(0, 1) + 1, torch.randn(40, 200, 3).permute(2, 0, 1))
    assert found.vector.loop is not None
    assert dict(found.vector.access)[-1] == "contiguous"
