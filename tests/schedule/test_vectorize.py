"""The vectorization checker: reasons for scalar code, access kinds, and the choice of the loop."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.index import Expr, Sym, const, loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import VectorPlan
from inductor_cpu.ir.loop_nest import Cast, Const, Instr, Load, LoopNest, Reduce, Scalar, Store
from inductor_cpu.ir.scatter import keeps_apart
from inductor_cpu.schedule.share import parallel_depth, share
from inductor_cpu.schedule.vectorize import Reason, access_kind, plan_vectors
from tests.ir.build import F32, at, load, loops, nest
from tests.schedule.harness import kernels, only_kernel, scheduled

I, J = loops(64, 32)
COPY = (load("x", at(of(I) * 32 + of(J))),)
OUT = (Store("y", at(of(I) * 32 + of(J)), 0),)
INDEX: tuple[Instr, ...] = (Load("index", at(J), torch.int64), load("x", at(J)))
CHOSEN = of(value_symbol(0, 32))
READS = (*INDEX, load("y", at(CHOSEN)))
PLANES: tuple[Instr, ...] = (Load("index", at(of(I) * 32 + of(J)), torch.int64), load("x", at(of(I) * 32 + of(J))))


def scatter(mode: str = "set", address: Expr = CHOSEN, value: int = 1) -> tuple[Store, ...]:
    return (Store("y", at(address), value, mode),)


@pytest.mark.parametrize(
    ("reason", "outer", "inner", "body", "stores", "lanes"),
    [
        (Reason.SCALAR_TARGET, (I, J), (), COPY, OUT, 0),
        (Reason.NO_LOOP, (), (), (load("x", at(0)),), (Store("y", at(0), 0),), 16),
        (Reason.SCATTER_READ, (J,), (), READS, scatter(value=2), 16),
        (Reason.SCATTER_TWICE, (J,), (), INDEX, scatter() + scatter("add"), 16),
        (Reason.SCATTER_FOLDS, (I,), (J,), (*INDEX, Reduce("sum", 1, F32)), scatter("add"), 16),
        (Reason.IN_PLACE, (J,), (), (load("y", at(of(J) * -1 + 31)),), (Store("y", at(J), 0),), 16),
        (Reason.SHORT, loops(1), (), (load("x", at(0)),), (Store("y", at(0), 0),), 16),
        (Reason.ADDS, (I, J), (), PLANES, scatter("add", of(I) * 32 + CHOSEN), 16),
    ],
    ids=lambda value: value.name if isinstance(value, Reason) else "",
)
def test_scalar_code_has_its_reason(
    reason: Reason,
    outer: tuple[Sym, ...],
    inner: tuple[Sym, ...],
    body: tuple[Instr, ...],
    stores: tuple[Store, ...],
    lanes: int,
) -> None:
    plan = plan_vectors(outer, inner, body, stores, lanes)
    assert not plan.vectorized
    assert plan.reasons == (reason.value,)


def test_every_reason_has_a_case() -> None:
    marks = test_scalar_code_has_its_reason.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == set(Reason)


def test_elements_updated_in_place_are_vectorized() -> None:
    body = (load("y", at(of(I) * 32 + of(J))),)
    assert plan_vectors((I, J), (), body, OUT, 16).loop == J


def test_what_is_added_apart_is_vectorized_where_it_takes_more_than_that() -> None:
    """As planes of which each point adds to one element; or where no loop keeps points apart, for threads to divide."""
    much = (*PLANES, *(Scalar("exp", (k,), F32) for k in (1, 2)))
    checked = (*PLANES, Const(32, torch.int64), Scalar("check_element", (0, 2), torch.int64))
    place, chosen = of(I) * 32 + CHOSEN, of(I) * 32 + of(value_symbol(3, 32))
    assert plan_vectors((I, J), (), much, scatter("add", place, value=3), 16).loop == J
    assert plan_vectors((I, J), (), checked, scatter("add", chosen), 16).loop == J
    assert plan_vectors((J,), (), INDEX, scatter("add"), 16).loop == J
    assert plan_vectors((I, J), (), PLANES, scatter("set", place), 16).loop == J


# -- scatters --------------------------------------------------------------------------------------------------------
ROWS = (Load("index", at(I), torch.int64), load("x", at(of(I) * 32 + of(J))))


@pytest.mark.parametrize("mode", ["set", "add"])
def test_lanes_of_a_scatter_of_rows_run_along_the_row(mode: str) -> None:
    plan = plan_vectors((I, J), (), ROWS, scatter(mode, CHOSEN * 32 + of(J)), 16)
    assert (plan.loop, dict(plan.access)[-1]) == (J, "contiguous")


@pytest.mark.parametrize("mode", ["set", "add"])
def test_lanes_of_a_scatter_of_elements_are_stored_in_the_order_of_the_innermost_loop(mode: str) -> None:
    body = (Load("index", at(of(I) * 32 + of(J)), torch.int64), load("x", at(of(I) * 32 + of(J))))
    plan = plan_vectors((J, I), (), body, scatter(mode), 16)
    assert (plan.loop, dict(plan.access)[-1]) == (I, "gather")


def test_points_that_meet_through_an_overlap_of_rows_are_no_lanes_out_of_order() -> None:
    overlap = of(I) * 16 + of(J)  # rows of 32 elements every 16
    assert plan_vectors((J, I), (), COPY, scatter("add", overlap, 0), 16).loop == I
    assert not keeps_apart(J, scatter("add", overlap, 0))
    assert keeps_apart(J, scatter("add", of(I) * 32 + of(J), 0))


S, T = size_symbol("s"), loop_var("t", of(size_symbol("s")))


@pytest.mark.parametrize(
    ("address", "loop", "apart"),
    [
        (CHOSEN * 32 + of(J), J, True),
        (CHOSEN * 31 + of(J), J, False),
        (of(J) * 32 + CHOSEN, J, True),
        (of(J) * 31 + CHOSEN, J, False),
        (of(J) * 32 + of(value_symbol(0, None)), J, False),
        (of(I) * 1024 + CHOSEN * 32 + of(J), I, True),
        (of(I) * 1024 + CHOSEN * 32 + of(J), J, True),
        (CHOSEN + of(J) * 0, J, False),
        (const(31) - of(J), J, False),
        ((of(J) // 2) + CHOSEN * 16, J, False),
        (CHOSEN * of(S) + of(T), T, True),
        (of(T) * 32 + CHOSEN, T, True),
    ],
)
def test_a_loop_keeps_the_points_of_a_scatter_apart_if_it_is_a_digit_of_the_address(
    address: Expr, loop: Sym, apart: bool
) -> None:
    assert keeps_apart(loop, scatter("add", address)) is apart


def test_a_scatter_that_reads_its_element_has_lanes_where_they_cannot_meet() -> None:
    address = CHOSEN * 32 + of(J)
    body = (*ROWS, load("y", at(address)))
    assert plan_vectors((I, J), (), body, scatter("set", address, 2), 16).loop == J


# -- accesses --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (of(I) * 32, "uniform"),
        (of(I) * 32 + of(J), "contiguous"),
        (of(J) * 64 + of(I), "strided"),
        (const(31) - of(J), "strided"),
        (of(J) * of(size_symbol("s0")), "strided"),
        (of(J) // 3, "gather"),
        (of(value_symbol(0, 32)), "gather"),
    ],
)
def test_access_kind_along_a_loop(address: object, kind: str) -> None:
    body = (Load("index", at(J), torch.int64),)
    assert access_kind(address, J, body) == kind  # type: ignore[arg-type]


def test_an_index_that_is_the_same_for_all_lanes_is_uniform() -> None:
    assert access_kind(of(value_symbol(0, 32)), J, (Load("index", at(I), torch.int64),)) == "uniform"


def test_an_index_from_the_result_of_a_reduction_is_the_same_for_all_lanes_of_the_reduction() -> None:
    body = (Load("x", at(J), torch.int64), Reduce("max", 0, torch.int64))
    assert access_kind(of(value_symbol(1, 32)), J, body, (J,)) == "uniform"
    assert access_kind(of(value_symbol(1, 32)), J, body, ()) == "gather"


def test_the_loop_with_contiguous_access_becomes_lanes() -> None:
    body = (load("x", at(of(J) * 64 + of(I))),)
    stores = (Store("y", at(of(J) * 64 + of(I)), 0),)
    assert plan_vectors((I, J), (), body, stores, 16).loop == I


@pytest.mark.parametrize("lanes", [8, 16])
def test_lanes_are_records_and_not_their_few_elements(lanes: int) -> None:
    points, places = loops(1000, 3)
    scale, x = load("scale", at(of(points) * 2)), load("x", at(of(points) * 3 + of(places)))
    stores = (Store("y", at(of(points) * 3 + of(places)), 1),)
    assert plan_vectors((points, places), (), (scale, x), stores, lanes).loop == points


@pytest.mark.parametrize("lanes", [8, 16])
def test_lanes_are_no_lines_of_which_a_tile_would_store_a_small_part(lanes: int) -> None:
    width, channels, down, across = loops(56, 64, 2, 2)
    x = load("x", at(of(channels) * 6272 + of(down) * 112 + of(width) * 2 + of(across)))
    place = of(width) * 256 + of(channels) * 4 + of(down) * 2 + of(across)
    plan = plan_vectors((width, channels, down, across), (), (x,), (Store("y", at(place), 0),), lanes)
    assert plan.loop == channels


@pytest.mark.parametrize("lanes", [8, 16])
def test_a_loop_too_short_for_a_vector_gains_nothing_by_short_strides(lanes: int) -> None:
    rows, places = loops(100_000, 3)
    body = [load("matrix", at(of(rows) * 9 + of(places) * 3 + k)) for k in range(3)]
    body += [load("point", at(of(rows) * 3 + k)) for k in range(3)]
    stores = (Store("y", at(of(rows) * 3 + of(places)), 0),)
    assert plan_vectors((rows, places), (), body, stores, lanes).loop == rows


def test_a_reduction_over_columns_vectorizes_the_outer_loop() -> None:
    kernel = only_kernel(scheduled(lambda x: x.sum(0), torch.randn(24, 48)))
    assert kernel.vector.loop == kernel.outer[0]


def test_a_reduction_over_rows_vectorizes_the_inner_loop() -> None:
    kernel = only_kernel(scheduled(lambda x: x.sum(1), torch.randn(48, 256)))
    assert kernel.vector.loop == kernel.inner[0]


def test_the_vector_loop_is_the_innermost_of_its_level() -> None:
    kernel = only_kernel(scheduled(lambda x: x.sum(1), torch.randn(4, 6, 32)))
    assert kernel.vector.loop == kernel.outer[-1]


def test_argmax_keeps_the_order_of_its_loops() -> None:
    kernel = only_kernel(scheduled(lambda x: x.permute(1, 2, 0).argmax(), torch.randn(40, 3, 5)))
    assert kernel.vector.loop in (None, kernel.inner[-1])


def test_scalar_target_gives_scalar_kernels() -> None:
    kernel = only_kernel(scheduled(lambda x: x + 1, torch.randn(64), lanes=0))
    assert kernel.vector.reasons == (Reason.SCALAR_TARGET.value,)


# -- threads ---------------------------------------------------------------------------------------------------------
def test_threads_share_as_few_outer_loops_as_give_each_enough_points() -> None:
    dims = loops(2, 64, 64)
    assert parallel_depth(dims, dims[2], cores=4) == 2


def test_the_vector_loop_is_shared_when_there_is_no_other() -> None:
    kernel = only_kernel(scheduled(lambda x: x + 1, torch.randn(4096)))
    assert kernel.parallel == 1


def test_a_full_reduction_is_serial() -> None:
    assert only_kernel(scheduled(lambda x: x.sum(), torch.randn(64))).parallel == 0


def shared(dims: tuple[Sym, ...], address: Expr, vector: Sym, cores: int = 4) -> tuple[LoopNest, int]:
    body = (Load("index", at(dims[0]), torch.int64), Cast(0, F32))
    found, _, parallel = share(nest(dims, body, *scatter("add", address)), VectorPlan(vector, 16), cores)
    return found, parallel


def test_a_scatter_of_elements_is_serial() -> None:
    dims = loops(64)
    assert shared(dims, CHOSEN, dims[0])[1] == 0


def test_threads_share_the_loops_of_a_scatter_that_keep_its_points_apart() -> None:
    rows, chosen, batch, columns = loops(8, 5, 6, 48)
    found, parallel = shared((rows, chosen, batch, columns), CHOSEN * 288 + of(batch) * 48 + of(columns), columns)
    assert (found.dims, parallel) == ((batch, rows, chosen, columns), 1)


def test_threads_share_pieces_of_the_rows_that_a_scatter_adds() -> None:
    rows, columns = loops(8, 96)
    found, parallel = shared((rows, columns), CHOSEN * 96 + of(columns), columns)
    assert [loop.size for loop in found.dims] == [6, 8, 16]
    assert (found.dims[1], parallel) == (rows, 1)


@pytest.mark.parametrize(("size", "cores"), [(96, 1), (40, 4), (16, 4)])
def test_rows_without_equal_pieces_stay_whole(size: int, cores: int) -> None:
    rows, columns = loops(8, size)
    found, parallel = shared((rows, columns), CHOSEN * size + of(columns), columns, cores)
    assert (found.dims, parallel) == ((rows, columns), 0)


def test_a_kernel_that_reads_what_others_write_is_serial() -> None:
    dims = loops(64)
    flipped = nest(dims, (load("y", at(const(63) - of(dims[0]))),), Store("y", at(dims[0]), 0))
    assert share(flipped, VectorPlan(None, 1), 4)[2] == 0


# -- indices that are known ------------------------------------------------------------------------------------------
def test_a_gather_at_an_arange_is_a_plain_load() -> None:
    kernel = only_kernel(scheduled(lambda x: x.index_select(0, torch.arange(10)), torch.randn(20, 7)))
    assert kernel.vector.access == ((0, "contiguous"), (-1, "contiguous"))
    assert [type(i).__name__ for i in kernel.body] == ["Load"]


def test_an_arange_that_may_leave_the_tensor_is_checked() -> None:
    with pytest.raises(IndexError):
        scheduled(lambda x: x[torch.arange(30)], torch.randn(20, 7))


def test_a_scatter_at_an_arange_adds_whole_vectors() -> None:
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        windows = torch.arange(64).as_strided((3, 32), (16, 1)).reshape(-1)
        return torch.zeros(64).index_add(0, windows, x)

    kernel = kernels(scheduled(overlapping, torch.randn(96)))[-1]
    assert kernel.vector.vectorized
    assert [type(i).__name__ for i in kernel.body] == ["Load"]


# -- kernels without loops -------------------------------------------------------------------------------------------
def test_single_elements_share_a_kernel() -> None:
    counters = [torch.tensor(k) for k in range(40)]
    kernel = only_kernel(scheduled(lambda *c: [x.add_(1) for x in c], *counters))
    assert (kernel.outer, kernel.inner, kernel.vector.reasons) == ((), (), (Reason.NO_LOOP.value,))


def test_a_loop_over_three_colours_becomes_one_with_the_pixels() -> None:
    def normalize(photo: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return photo.permute(0, 3, 1, 2).float() - mean[:, None, None]

    photo = torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8)
    kernel = only_kernel(scheduled(normalize, photo, torch.randn(3)))
    assert [loop.size for loop in kernel.outer] == [2 * 5 * 7 * 3]
    assert kernel.vector.loop == kernel.outer[0]


def test_a_short_loop_stays_one_where_its_operand_is_written() -> None:
    def shift(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        mean.add_(1)
        return x - mean

    scheduled(shift, torch.randn(50, 3), torch.randn(3))
