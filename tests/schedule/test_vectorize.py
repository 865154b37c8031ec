"""The vectorization checker: reasons for scalar code, access kinds, and the choice of the loop."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.index import Sym, const, of, size_symbol, value_symbol
from inductor_cpu.ir.nodes import Cast, Instr, Load, Reduce, Store
from inductor_cpu.schedule.build import _parallel_depth
from inductor_cpu.schedule.vectorize import Reason, access_kind, plan_vectors
from tests.ir.build import F32, at, load, loops, nest
from tests.schedule.harness import only_kernel, scheduled

I, J = loops(64, 32)
COPY = (load("x", at(of(I) * 32 + of(J))),)
OUT = (Store("y", at(of(I) * 32 + of(J)), 0),)
INDEX: tuple[Instr, ...] = (Load("index", at(J), torch.int64), load("x", at(J)))


def scatter(mode: str) -> tuple[Store, ...]:
    return (Store("y", at(of(value_symbol(0, 32))), 1, mode),)


@pytest.mark.parametrize(
    ("outer", "body", "stores", "lanes", "reason"),
    [
        ((I, J), COPY, OUT, 0, Reason.SCALAR_TARGET),
        ((), (load("x", at(0)),), (Store("y", at(0), 0),), 16, Reason.NO_LOOP),
        ((J,), INDEX, scatter("add"), 16, Reason.SCATTER_ADD),
        ((J,), INDEX, scatter("set"), 16, Reason.SCATTER_SET),
        ((J,), (load("y", at(of(J) * -1 + 31)),), (Store("y", at(J), 0),), 16, Reason.IN_PLACE),
        (loops(1), (load("x", at(0)),), (Store("y", at(0), 0),), 16, Reason.SHORT),
    ],
)
def test_scalar_code_has_its_reason(
    outer: tuple[Sym, ...], body: tuple[Instr, ...], stores: tuple[Store, ...], lanes: int, reason: Reason
) -> None:
    plan = plan_vectors(outer, (), body, stores, lanes)
    assert not plan.vectorized
    assert plan.reasons == (reason.value,)


def test_elements_updated_in_place_are_vectorized() -> None:
    body = (load("y", at(of(I) * 32 + of(J))),)
    assert plan_vectors((I, J), (), body, OUT, 16).loop == J


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
    body = (load("x", at(of(dims[0]) * 4096 + of(dims[1]) * 64 + of(dims[2]))),)
    stores = (Store("y", body[0].index, 0),)
    assert _parallel_depth(nest(dims, body, *stores), dims[2], cores=4) == 2


def test_the_vector_loop_is_shared_when_there_is_no_other() -> None:
    kernel = only_kernel(scheduled(lambda x: x + 1, torch.randn(4096)))
    assert kernel.parallel == 1


def test_a_full_reduction_is_serial() -> None:
    assert only_kernel(scheduled(lambda x: x.sum(), torch.randn(64))).parallel == 0


def test_a_scatter_is_serial() -> None:
    dims = loops(64)
    stores = (Store("y", at(of(value_symbol(0, 64))), 1, "add"),)
    body = (Load("index", at(dims[0]), torch.int64), Cast(0, F32))
    assert _parallel_depth(nest(dims, body, *stores), dims[0], cores=4) == 0
