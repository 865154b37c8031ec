"""Inlining of pointwise producers: each reason against it, and that without one it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.ir.loop_nest import LoopNest, Scalar
from inductor_cpu.schedule.inline import Inlined, inline_producers
from tests.lower.harness import fresh, lower
from tests.schedule.harness import check_program

Tensor = torch.Tensor


def inlined(fn: Callable[..., Any], *inputs: Any) -> Inlined:
    program = lower(fn, *fresh(inputs))
    check_program(program, inputs)
    return inline_producers(program, program.nodes)


def chain(x: Tensor) -> Tensor:
    return torch.tanh(torch.exp(x) + 1)


def test_a_chain_of_pointwise_ops_becomes_one_nest() -> None:
    assert len(inlined(chain, torch.randn(8)).nodes) == 1


def test_a_literal_is_computed_by_every_reader() -> None:
    def fn(x: Tensor) -> Any:
        zero = torch.zeros_like(x)
        return x + zero, x * zero

    assert len(inlined(fn, torch.randn(8)).nodes) == 2


def test_a_producer_with_checks_is_inlined_where_no_mask_is() -> None:
    def fn(table: Tensor, index: Tensor) -> Tensor:
        return table[index] * 2

    assert len(inlined(fn, torch.randn(8), torch.tensor([1, 2])).nodes) == 1


def test_a_producer_that_divides_integers_by_a_number_reports_no_error_and_is_inlined_under_a_mask() -> None:
    assert len(inlined(lambda x: F.pad(x // 3, (1, 1)), torch.arange(-4, 4)).nodes) == 1


def test_a_producer_that_does_not_vary_along_inner_loops_is_evaluated_outside_of_them() -> None:
    assert len(inlined(lambda x: torch.exp(x)[:, None] * torch.ones(64), torch.randn(8)).nodes) == 1


@pytest.mark.parametrize(("width", "kernels"), [(3, 2), (64, 1)])
def test_few_neighbours_are_looked_up_once_and_rows_by_each_reader(width: int, kernels: int) -> None:
    """As the bias of positions in a window, which is the same for all windows."""

    def fn(x: Tensor, table: Tensor, index: Tensor) -> Tensor:
        return x + table[index]

    inputs = torch.randn(9, 5, width), torch.randn(4, width), torch.randint(0, 4, (5,))
    assert len(inlined(fn, *inputs).nodes) == kernels


def reduction(x: Tensor) -> Tensor:
    return x.sum(0) * 2


def result(x: Tensor) -> Any:
    y = torch.exp(x)
    return y, y + 1


def several_writers(x: Tensor) -> Tensor:
    return torch.cat([x] * 5) + 1


def extern_argument(x: Tensor) -> Tensor:
    return torch.special.bessel_j0(torch.exp(x))


def updated_in_place(x: Tensor) -> Tensor:
    return torch.exp(x).index_add(0, torch.tensor([0, 1]), x[:2])


def overwritten(x: Tensor) -> None:
    x.copy_(x.flip(0) * 2)


def under_a_mask(x: Tensor) -> Tensor:
    return F.pad((x * 4).to(torch.int64) // (x.to(torch.int64).abs() + 1), (1, 1))


def many_evaluations(x: Tensor) -> Tensor:
    return torch.exp(x) * torch.ones(64)[:, None]


def several_readers(x: Tensor) -> Any:
    y = torch.exp(x)
    return y.sum(), y + 1


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (reduction, "it is a reduction"),
        (result, "is needed in memory"),
        (several_writers, "has several writers"),
        (extern_argument, "is an argument of aten.special_bessel_j0"),
        (overwritten, "changes before the last use"),
        (under_a_mask, "reads it under a mask, where its checks must not run"),
        (many_evaluations, "evaluations an element cost more than a store and loads"),
        (several_readers, "2 nests read it"),
    ],
)
def test_a_producer_stays_and_the_note_says_why(fn: Callable[..., Any], reason: str) -> None:
    notes = inlined(fn, torch.randn(8)).notes
    assert any(reason in note for note in notes), notes


def test_a_long_body_is_not_inlined() -> None:
    def fn(x: Tensor) -> Tensor:
        for k in range(200):
            x = torch.sin(x) + k
        return x

    notes = inlined(fn, torch.randn(4)).notes
    assert any("instructions" in note for note in notes)


def test_an_inlined_load_that_gives_the_fill_outside_of_its_mask_is_not_selected_again() -> None:
    (nest,) = inlined(lambda x: F.pad(x.double(), (1, 1)), torch.randn(8)).nodes
    assert isinstance(nest, LoopNest)
    assert not any(isinstance(i, Scalar) and i.op == "where" for i in nest.body)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.pad(x.double(), (1, 1), value=1.0),
        lambda x: F.pad(x.double(), (1, 1), value=-0.0),
        lambda x: F.pad(x + 1, (1, 1)),
    ],
    ids=["another fill", "another sign", "not a load"],
)
def test_an_inlined_value_that_gives_another_number_outside_of_the_mask_is_selected(fn: Callable[..., Any]) -> None:
    (nest,) = inlined(fn, torch.randn(8)).nodes
    assert isinstance(nest, LoopNest)
    assert any(isinstance(i, Scalar) and i.op == "where" for i in nest.body)
