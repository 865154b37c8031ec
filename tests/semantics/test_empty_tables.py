"""Indices into dimensions without elements, and extrema over them, also where only the call decides that there are
none: eager's error, or eager's empty result."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.cases import cases, in_turns
from tests.semantics.support import Tensor, check

ZEROS = torch.zeros(2, dtype=torch.int64)
NONE = torch.empty(0, dtype=torch.int64)
GRID = torch.zeros(2, 7, dtype=torch.int64)

Case = tuple[Callable[..., Any], tuple[Any, ...]]

CASES: dict[str, Case] = {
    "index": (lambda x, i: x[i], (torch.empty(0, 7), ZEROS)),
    "index by nothing": (lambda x, i: x[i], (torch.empty(0, 7), NONE)),
    "gather": (lambda x, i: x.gather(0, i), (torch.empty(0, 7), GRID)),
    "scatter": (lambda x, i, s: x.scatter(0, i, s), (torch.empty(0, 7), GRID, torch.ones(2, 7))),
    "embedding": (lambda w, i: functional.embedding(i, w), (torch.empty(0, 7), ZEROS)),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), (torch.empty(0, 7), ZEROS, torch.ones(2, 7))),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), (torch.empty(0, 7), ZEROS)),
    "no classes": (functional.cross_entropy, (torch.empty(2, 0), ZEROS)),
    "no classes, all ignored": (functional.cross_entropy, (torch.empty(2, 0), ZEROS - 100)),
    "concatenate with nothing": (lambda x, i, y: torch.cat([x[i], y]), (torch.empty(0), NONE, torch.ones(5))),
}

MORE: dict[str, Case] = {
    "no classes of pixels": (functional.cross_entropy, (torch.empty(2, 0, 3, 1), torch.full((2, 3, 1), -100))),
    "some classes": (lambda x, i: functional.nll_loss(x[:, : len(x[0]) // 4], i), (torch.ones(2, 3), ZEROS - 100)),
    "columns": (lambda x, i: x[:, i], (torch.empty(3, 0), ZEROS)),
    "index_select": (lambda x, i: x.index_select(1, i), (torch.empty(3, 0), ZEROS)),
    "index_put": (lambda x, i, s: x.index_put((i,), s), (torch.empty(0, 7), ZEROS, torch.ones(2, 7))),
    "index_put adds": (lambda x, i, s: x.index_put((i,), s, True), (torch.empty(0, 7), ZEROS, torch.ones(2, 7))),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), (torch.empty(0, 7), GRID, torch.ones(2, 7))),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 0), (torch.empty(0, 7), GRID)),
    "a sum": (lambda x, i: x[i].sum(0), (torch.empty(0, 7), ZEROS)),
    "a sum of nothing": (lambda x, i: x[i].sum(0), (torch.empty(0, 7), NONE)),
    "a pad of nothing": (lambda x, i: functional.pad(x[i], (1, 1)), (torch.empty(0), NONE)),
}


@pytest.mark.parametrize(
    ("name", "dynamic"),
    cases(
        # In every run each with symbols, which takes more of the backend, and every other one also without.
        [*((name, True) for name in CASES), *((name, False) for name in list(CASES)[::2])],
        [*((name, False) for name in list(CASES)[1::2]), *product(MORE, [False, True])],
    ),
)
def test_index_into_an_empty_dimension(name: str, dynamic: bool) -> None:
    function, arguments = (CASES | MORE)[name]
    check(function, lambda: [x.clone() for x in arguments], dynamic=dynamic)


@pytest.mark.parametrize("columns", [0, 3])
def test_gradient_of_a_loss_without_classes(columns: int) -> None:
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(x[:, : x.shape[1] // 4], target, reduction="sum")

    make = lambda: (torch.zeros(2, columns, requires_grad=True), ZEROS - 100)  # noqa: E731
    check(loss, make, backward=True, dynamic=True)


@pytest.mark.parametrize("extremum", [torch.max, lambda x: x.min(1)])
def test_extremum_of_a_part_that_is_empty_in_this_call(extremum: Callable[..., Any]) -> None:
    def largest(x: Tensor) -> Any:
        return extremum(x.new_ones(2, x.shape[0] // 4) * x[0])

    check(largest, lambda: (torch.ones(3),), dynamic=True)


#: Of x, whose rows only data counts, three positions and as many rows.
OF_PICKED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index": lambda x, i, s: x[i] * 2,
    "embedding": lambda x, i, s: functional.embedding(i, x),
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_add of columns": lambda x, i, s: x.t().index_add(1, i, s.t()),
    "index_add of numbers": lambda x, i, s: x[:, 0].index_add(0, i, s[:, 0]),
}

MORE_OF_PICKED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_add scaled": lambda x, i, s: x.index_add(0, i, s, alpha=2),
    "index_copy": lambda x, i, s: x[:, 0].index_copy(0, i, s[:, 0]),
    "index_fill": lambda x, i, s: x.index_fill(0, i, 2.0),
    "gather": lambda x, i, s: x.gather(0, i[:, None]),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None], s),
}


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
@pytest.mark.parametrize(
    ("name", "positive"),
    [*in_turns(OF_PICKED, [False, True]), *cases([], product(MORE_OF_PICKED, [False, True]))],
)
def test_index_into_a_dimension_whose_size_depends_on_data(name: str, positive: bool) -> None:
    def chosen(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
        return (OF_PICKED | MORE_OF_PICKED)[name](x[x > 0][:, None] + s[0], i, s)

    numbers = torch.ones(5) if positive else -torch.ones(5)
    check(chosen, lambda: (numbers.clone(), torch.tensor([0, 0, 1]), torch.ones(3, 7)))


@pytest.mark.parametrize("rows", [3, 8])
def test_scatter_into_a_product_that_may_have_no_row(rows: int) -> None:
    # Found by tests.fuzz, seed 353288: the kernel's test named the columns of one block, which it knows only later.
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 47 * 32).reshape(47, 32))

    def products(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
        rows = i * torch.arange(47)[None]
        return functional.linear(x[: len(x) // 4], weight).scatter_add(0, rows, s.expand(1, 47))

    with torch.no_grad():
        make = lambda: (torch.ones(rows, 32), ZEROS[:1], torch.ones(1))  # noqa: E731
        check(products, make, dynamic=True)
