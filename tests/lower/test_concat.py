"""cat and stack: which form they take, and that both forms give eager's elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch

from inductor_cpu.ir.loop_nest import Load, LoopNest
from inductor_cpu.ir.nodes import Program
from tests.cases import in_turns
from tests.e2e.support import assert_like_eager, compile_counted
from tests.lower.harness import check, lower

Tensors = tuple[torch.Tensor, ...]


def nests(program: Program) -> list[LoopNest]:
    return [node for node in program.nodes if isinstance(node, LoopNest)]


def is_selection(program: Program) -> bool:
    """Whether a nest loads parts under masks."""
    return any(isinstance(i, Load) and i.mask is not None for nest in nests(program) for i in nest.body)


@pytest.mark.parametrize(
    ("form", "dtype"),
    in_turns(product([2, 3, 4], [0, 1, -1]), [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]),
    ids=str,
)
def test_few_parts_read_elementwise_are_selected(form: tuple[int, int], dtype: torch.dtype) -> None:
    parts, dim = form
    inputs = [(torch.randn(2, 3, 4) * 4).abs().to(dtype) for _ in range(parts)]
    assert is_selection(check(lambda *xs: torch.cat(xs, dim) == 1, *inputs))
    assert is_selection(check(lambda *xs: torch.stack(xs, dim) == 1, *inputs))


def test_parts_of_other_dtypes_shapes_and_strides_are_selected() -> None:
    assert is_selection(
        check(lambda x, y: torch.cat([x, y]) * 2, torch.randn(2, 3), torch.ones(4, 3, dtype=torch.int8))
    )
    assert is_selection(check(lambda x, y: torch.cat([x, y.t()]) * 2, torch.randn(1, 3), torch.randn(3, 2)))
    assert is_selection(
        check(lambda x, y: torch.cat([x, y], 1) * 2, torch.randn(3, 4), torch.randn(3, 5), dynamic=True)
    )
    check(lambda x, y: torch.cat([x, y]) * 2, torch.randn(2, 3), torch.empty(0))
    check(lambda x, y: torch.cat([x, y], 1) * 2, torch.randn(2, 3), torch.empty(2, 0))


REGION_WRITES: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "a_result": (lambda *xs: torch.cat(xs), 2),
    "a_result_that_is_also_read": (lambda *xs: (torch.cat(xs), torch.cat(xs) + 1)[0], 2),
    "read_by_a_matrix_product": (lambda *xs: torch.cat(xs) @ xs[0].t(), 2),
    "read_by_a_view_of_a_matrix_product": (lambda *xs: torch.cat(xs).t() @ torch.cat(xs), 2),
    "five_parts": (lambda *xs: torch.cat(xs) + 1, 5),
}


@pytest.mark.parametrize("name", REGION_WRITES)
def test_other_results_are_written_region_by_region(name: str) -> None:
    fn, parts = REGION_WRITES[name]
    assert not is_selection(lower(fn, *(torch.randn(4, 4) for _ in range(parts))))


def both(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    return torch.cat([x, y], 1), x.amax((2, 3))


CHANNELS: dict[str, tuple[Callable[..., object], bool]] = {
    "inputs": (lambda x, y: torch.cat([x, y], 1), True),
    "computed_point_by_point": (lambda x, y: torch.cat([x.relu(), y * 2], 1), True),
    "read_by_a_reduction": (lambda x, y: torch.cat([x, y], 1).amax((2, 3)), True),
    "along_another_dimension": (lambda x, y: torch.cat([x, x + 1], 2), False),
    "narrow": (lambda x, y: torch.cat([x[:, :8], y], 1), False),
    "computed_by_a_reduction": (lambda x, y: torch.cat([x, y - y.amax(1, keepdim=True)], 1), False),
    "computed_and_read_elsewhere": (lambda x, y: both(x.relu(), y), False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CHANNELS)
def test_parts_of_rows_of_memory_are_selected_unless_another_kernel_can_store_them(
    name: str, dtype: torch.dtype
) -> None:
    fn, selected = CHANNELS[name]
    inputs = [torch.randn(2, n, 3, 5).to(dtype).contiguous(memory_format=torch.channels_last) for n in (16, 40)]
    assert is_selection(check(fn, *inputs)) is selected


def test_parts_behind_many_paths_are_looked_at_once() -> None:
    """Each step reads the last value twice, by two operators: the paths back to the input double with each."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = x.neg() * x.relu()
        return torch.cat([x, y], 1)

    assert is_selection(lower(fn, torch.randn(2, 16), torch.randn(2, 16)))


def rotary(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = q.chunk(2, -1)
    return q * cos + torch.cat((-second, first), -1) * sin


def test_a_rotary_embedding_is_one_kernel() -> None:
    inputs = torch.randn(2, 3, 7, 64), torch.randn(7, 64), torch.randn(7, 64)
    compiled, reports = compile_counted(rotary)
    compiled(*inputs)
    assert [len(report.kernels) for report in reports] == [1]
    assert all(kernel.vectorized for kernel in reports[0].kernels)
    assert_like_eager(rotary, *inputs)
