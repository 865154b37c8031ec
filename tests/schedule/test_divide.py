"""Which scatters threads divide by what they write, and how."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.index import Expr, const, loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import Divided, Kernel
from inductor_cpu.ir.scatter import is_place, place_of
from tests.schedule.harness import kernels, scheduled

Tensor = torch.Tensor
N = size_symbol("n", 1)
CHOSEN, OTHER = of(value_symbol(0, 9)), of(value_symbol(1, 10))
J, K = of(loop_var("j", 10)), of(loop_var("k", of(N)))


def add(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return x.index_add(0, places, values)


def put(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return x.scatter(0, places, values)


def scatter_of(function: Callable[..., Tensor], *args: Tensor, **options: bool) -> Kernel:
    """The kernel that writes at positions that are data."""
    found = [k for k in kernels(scheduled(function, *args, **options)) if any(s.mode == "add" for s in k.stores)]
    found += [k for k in kernels(scheduled(function, *args, **options)) if "%" in repr(k.stores[0].index)]
    return found[0]


def divided(shape: tuple[int, ...], points: int, dtype: torch.dtype = torch.float32) -> Divided | None:
    values = torch.zeros(points, *shape[1:], dtype=dtype)
    return scatter_of(add, torch.zeros(shape, dtype=dtype), torch.zeros(points, dtype=torch.int64), values).divided


@pytest.mark.parametrize(
    ("elements", "points", "pieces"),
    [(10, 1 << 20, 16), (1000, 40_000, 4), (100_000, 1 << 20, 2), (1000, 8000, None), (100_000, 400_000, None)],
)
def test_sums_into_a_buffer_of_few_elements_run_in_pieces(elements: int, points: int, pieces: int | None) -> None:
    found = divided((elements,), points)
    assert (None if found is None else (found.pieces, found.elements)) == (pieces and (pieces, elements))


def test_elements_of_a_buffer_that_no_cache_holds_have_owners() -> None:
    found = divided((1_000_000,), 100_000)
    assert found is not None
    assert (found.pieces, found.places) == (1, 1_000_000)


@pytest.mark.parametrize("dynamic", [False, True])
def test_threads_share_ranges_of_columns_that_are_no_equal_pieces(dynamic: bool) -> None:
    args = torch.zeros(300, 50), torch.zeros(2000, dtype=torch.int64), torch.zeros(2000, 50)
    kernel = scatter_of(add, *args, dynamic=dynamic)
    assert kernel.across == kernel.outer[-1]
    assert (kernel.parallel, kernel.divided) == (0, None)


def test_equal_pieces_of_columns_are_shared() -> None:
    kernel = scatter_of(add, torch.zeros(300, 64), torch.zeros(2000, dtype=torch.int64), torch.zeros(2000, 64))
    assert (kernel.parallel, kernel.across, kernel.divided) == (1, None, None)


def test_short_rows_that_lie_far_away_have_owners() -> None:
    found = divided((2_000_000, 4), 100_000)
    assert found is not None
    assert (found.pieces, found.places) == (1, 2_000_000)


def test_short_rows_run_in_pieces() -> None:
    found = divided((100, 4), 40_000)
    assert found is not None
    assert (found.pieces, found.elements) == (16, 400)


def test_sums_that_are_rounded_to_few_digits_run_in_one_piece() -> None:
    assert divided((1000,), 1 << 20, torch.bfloat16) is None
    found = divided((1_000_000,), 1 << 20, torch.bfloat16)
    assert found is not None
    assert found.pieces == 1


def test_the_last_value_that_is_set_has_an_owner() -> None:
    args = torch.zeros(1_000_000), torch.zeros(10_000, dtype=torch.int64), torch.zeros(10_000)
    found = scatter_of(put, *args).divided
    assert found is not None
    assert found.pieces == 1
    assert scatter_of(put, torch.zeros(1000), *args[1:]).divided is None


def test_sizes_decide_at_run_time_where_they_are_symbols() -> None:
    args = torch.zeros(1000), torch.zeros(40_000, dtype=torch.int64), torch.zeros(40_000)
    kernel = scatter_of(add, *args, dynamic=True)
    assert kernel.divided is not None
    symbols = {symbol.name: symbol for symbol in kernel.sizes}
    points = kernel.outer[0].size
    assert points is not None
    (outer,) = points.symbols
    (inner,) = kernel.divided.elements.symbols
    assert {outer, inner} <= set(symbols.values())
    counts = [kernel.divided.pieces.evaluate({outer: n, inner: m}) for n, m in ((1 << 20, 10), (20_000, 10), (100, 0))]
    assert counts == [16, 3, 1]


def test_loops_that_keep_points_apart_are_shared_where_they_are_enough_for_the_cores() -> None:
    def function(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return x.scatter_add(1, places, values)

    for rows, shared in ((8, 1), (2, 0)):
        args = torch.zeros(rows, 1_000_000), torch.zeros(rows, 5000, dtype=torch.int64), torch.zeros(rows, 5000)
        kernel = scatter_of(function, *args)
        assert (kernel.parallel, kernel.divided is None) == (shared, bool(shared))


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (CHOSEN, CHOSEN),
        (CHOSEN * 10 + J, CHOSEN),
        (CHOSEN * of(N) + K, CHOSEN),
        (CHOSEN * 10 + J * 2, CHOSEN * 10 + J * 2),
        (CHOSEN * 100 + OTHER * 10 + J, CHOSEN * 10 + OTHER),
        (CHOSEN + J, CHOSEN + J),
    ],
    ids=repr,
)
def test_the_place_of_a_point_is_its_row_where_rows_do_not_overlap(address: Expr, place: Expr) -> None:
    assert place_of(address) == place
    assert is_place(place, address)


@pytest.mark.parametrize("place", [OTHER, CHOSEN + OTHER, J, const(0)], ids=repr)
def test_what_points_that_meet_may_not_have_in_common_is_no_place(place: Expr) -> None:
    assert not is_place(place, CHOSEN * 5 + J)
