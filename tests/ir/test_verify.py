"""Each complaint of the verifiers, and what they accept."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import ZERO, Expr, as_expr, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import ArenaPlace, Divided, Kernel, KernelArg, Phase, Schedule, VectorPlan
from inductor_cpu.ir.loop_nest import Buffer, Cast, Const, Index, Instr, Load, Reduce, Scalar, Store, View
from inductor_cpu.ir.nodes import Extern, InputSpec, Program, SizeBinding
from inductor_cpu.ir.verify import verify_kernel, verify_program
from inductor_cpu.ir.verify_schedule import verify_schedule
from tests.ir.build import F32, at, buffer, exprs, kernel, load, loops, nest, program, whole

I64, BOOL, BF16 = torch.int64, torch.bool, torch.bfloat16
(D0,), (R0,) = loops(4), loops(3, prefix="r")
X, OUT = buffer("x", (4,), "input"), buffer("out", (4,), "output")
WIDE = buffer("wide", (4, 3), "input")
LOAD, STORE = load("x", at(D0)), Store("out", at(D0), 0)


def refuse(value: Any, text: str) -> None:
    verify = {Program: verify_program, Kernel: verify_kernel, Schedule: verify_schedule}[type(value)]
    with pytest.raises(InternalError) as caught:
        verify(value)
    assert text in caught.value.message


def one(body: Sequence[Instr], *stores: Store, reduce: Sequence[Any] = (), buffers: Sequence[Buffer] = ()) -> Program:
    return program([X, WIDE, OUT, *buffers], [nest((D0,), body, *stores, reduce=reduce)])


# -- bodies ----------------------------------------------------------------------------------------------------------
def test_a_well_formed_nest_is_accepted() -> None:
    verify_program(one([LOAD, Scalar("relu", (0,), F32)], Store("out", at(D0), 1)))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([Scalar("relu", (1,), F32), LOAD], "%1 is used before it is computed"),
        ([load("x", at(of(value_symbol(1, 4)))), Const(0, I64)], "%1 is used before it is computed"),
        ([LOAD, Scalar("softsign", (0,), F32)], "unknown op 'softsign'"),
        ([LOAD, Scalar("add", (0,), F32)], "add takes 2 arguments, got 1"),
        ([LOAD, Const(1, I64), Scalar("add", (0, 1), I64)], "arguments of one dtype"),
        ([LOAD, Scalar("bitwise_not", (0,), F32)], "bitwise_not does not take torch.float32"),
        ([LOAD, Scalar("isnan", (0,), F32)], "isnan gives torch.bool"),
        ([LOAD, Scalar("where", (0, 0, 0), F32)], "the condition of where is not bool"),
        ([Const(1, F32)], "is no torch.float32 literal"),
        ([Const(256, torch.uint8)], "is no torch.uint8 literal"),
        ([Const(1, BOOL)], "is no torch.bool literal"),
        ([LOAD, Cast(0, torch.complex64)], "torch.complex64 has no loops"),
        ([Index(of(D0), torch.int16)], "an index value is int64 or int32"),
        ([Index(of(D0) * 2**31, torch.int32)], "is not known to fit int32"),
        ([Index((of(D0) * 2**33 + 1) // (2**33 - 1), torch.int32)], "is not known to fit int32"),
        ([Const(1, I64), Index(of(value_symbol(0, 4)), torch.int32)], "is not known to fit int32"),
        ([Index(of(loops(5)[0]))], "loop d0 < 5 in d0 is not declared"),
        ([Index(of(size_symbol("s9")))], "size s9 in s9 has no value here"),
        ([LOAD, load("x", at(of(value_symbol(0, 4))))], "is torch.float32, not an integer"),
        ([load("nothing", at(D0))], "buffer nothing does not exist"),
        ([load("x", at(D0), BF16)], "x is torch.float32, but the access is torch.bfloat16"),
        ([load("x", at(D0, D0))], "x takes 1 index expressions, got 2"),
        ([LOAD, load("x", at(D0), mask=0)], "the mask %0 is not bool"),
        ([LOAD, Reduce("sum", 0, F32)], "sum has no reduction loops"),
        ([load("out", at(D0))], "out is read before it is written"),
    ],
)
def test_a_wrong_body_is_refused(body: list[Instr], text: str) -> None:
    refuse(one(body, STORE), text)


@pytest.mark.parametrize(
    ("reduce", "text"),
    [
        (Reduce("mean", 0, F32), "unknown reduction 'mean'"),
        (Reduce("any", 0, F32), "any does not take torch.float32"),
        (Reduce("argmax", 0, F32), "argmax of torch.float32 gives torch.int64"),
        (Reduce("sum", 1, BF16), "has to accumulate in float32"),
    ],
)
def test_a_wrong_reduction_is_refused(reduce: Reduce, text: str) -> None:
    body = [load("wide", at(D0, R0)), Cast(0, BF16), reduce]
    refuse(one(body, Store("out", at(D0), 2), reduce=(R0,)), text)


@pytest.mark.parametrize(
    ("store", "text"),
    [
        (Store("out", at(D0), 3), "%3 does not exist"),
        (Store("out", at(D0), 0, mode="max"), "unknown mode 'max'"),
        (Store("out", at(D0), 1), "out is torch.float32, but the access is torch.bool"),
        (Store("out", at(0), 0), "points that differ in d0 write one element"),
        (Store("flags", at(D0), 1, mode="add"), "bool values cannot be added"),
        (Store("fixed", at(D0), 0), "fixed is a constant"),
    ],
)
def test_a_wrong_store_is_refused(store: Store, text: str) -> None:
    fixed, flags = buffer("fixed", (4,), "constant"), buffer("flags", (4,), dtype=BOOL)
    p = one([LOAD, Scalar("isnan", (0,), BOOL)], store, buffers=(fixed, flags))
    refuse(replace(p, constants={"fixed": torch.zeros(4)}), text)


def test_stores_that_depend_on_reduction_loops_are_refused() -> None:
    body = [load("wide", at(D0, R0)), Reduce("sum", 0, F32)]
    verify_program(one(body, Store("out", at(D0), 1), reduce=(R0,)))
    refuse(one(body, Store("out", at(D0), 0), reduce=(R0,)), "it depends on a reduction loop")


# -- programs --------------------------------------------------------------------------------------------------------
FILL = nest((D0,), [Const(0.0, F32)], STORE)


def test_wrong_declarations_are_refused() -> None:
    refuse(program([X, X], []), "two buffers have one name")
    refuse(program([OUT], [FILL, FILL]), "two nodes have one name")
    refuse(program([replace(X, strides=())], []), "sizes and strides differ in number")
    refuse(program([buffer("c", (1,), "constant")], []), "the constant has no value")
    refuse(program([OUT], [nest((D0, D0), [LOAD], STORE)]), "two loops have one name")
    refuse(program([OUT], [nest((size_symbol("s0"),), [LOAD], STORE)]), "s0 is no loop with a size")
    refuse(program([OUT], [nest((D0,), [Const(0.0, F32)])]), "it stores nothing")


def test_two_nodes_that_fill_one_buffer_are_refused_but_regions_are_not() -> None:
    refuse(program([OUT], [FILL, replace(FILL, name="nest1")]), "nest0 writes all of out too")
    (half,) = loops(2)
    parts = [nest((half,), [Const(0.0, F32)], Store("out", at(of(half) + k), 0), name=f"n{k}") for k in (0, 2)]
    verify_program(program([OUT], parts))


def test_results_must_be_written() -> None:
    refuse(program([OUT], []), "out is read before it is written")


def test_sizes_must_have_a_value() -> None:
    n = size_symbol("s0")
    refuse(program([buffer("x", (of(n),), "input")], [], [of(n)]), "size s0 in s0 has no value here")
    verify_program(program([buffer("x", (of(n),), "input")], [], [of(n)], bindings=[SizeBinding(n, "x", 0)]))
    verify_program(program([], [], [of(n)], inputs=(InputSpec(0, symbol=n),)))


def call(*args: Any, outputs: tuple[str | None, ...] = ("out",), **kw: Any) -> Extern:
    return Extern(kw.pop("name", "extern0"), torch.ops.aten.relu.default, args, (), outputs, "test", **kw)


def test_wrong_extern_calls_are_refused() -> None:
    n = size_symbol("u0")
    verify_program(program([X, OUT], [call(whole(X))]))
    refuse(program([X, OUT], [call(whole(OUT))]), "out is read before it is written")
    refuse(program([X, OUT], [call((whole(X), of(n)))]), "size u0 in u0 has no value here")
    refuse(program([X], [call(whole(X))]), "buffer out does not exist")
    refuse(program([X, OUT], [call(whole(X), int_outputs=((1, n),))]), "there is no result 1 for u0")
    refuse(program([X, OUT], [call(mutates=("nothing",))]), "buffer nothing does not exist")
    refuse(program([X, OUT], [call(View("x", exprs((4,)), (), ZERO))]), "unequal sizes and strides")
    verify_program(program([X, OUT], [call(whole(X), int_outputs=((0, n),))], [of(n)]))


# -- kernels ---------------------------------------------------------------------------------------------------------
(O0,), (I0,) = loops(4, prefix="o"), loops(3, prefix="i")
FLAT = (of(O0) * 3 + of(I0),)
MEAN = kernel(
    (O0,),
    (I0,),
    [load("wide", FLAT), Reduce("sum", 0, F32), Scalar("sub", (0, 1), F32)],
    [Store("wide", FLAT, 2), Store("out", at(O0), 1)],
    Phase((1,), ()),
    Phase((), (0,)),
)


def vector(*access: tuple[int, str], **kw: Any) -> VectorPlan:
    return VectorPlan(kw.pop("loop", I0), kw.pop("lanes", 16), access, **kw)


GOOD = ((0, "contiguous"), (-1, "contiguous"), (-2, "uniform"))


def test_a_well_formed_kernel_is_accepted() -> None:
    verify_kernel(MEAN)
    verify_kernel(replace(MEAN, vector=vector(*GOOD), kept=(0,), parallel=1))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"outer": (O0, O0)}, "two loops have one name"),
        ({"args": MEAN.args[:1]}, "buffer out does not exist"),
        ({"args": (*MEAN.args, MEAN.args[0])}, "two arguments are one buffer"),
        ({"args": (KernelArg("wide", F32, False, True), MEAN.args[1])}, "wide is read, but not declared so"),
        ({"args": (KernelArg("wide", F32, True, False), MEAN.args[1])}, "wide is written, but not declared so"),
        ({"parallel": 2}, "2 parallel loops do not exist"),
        ({"phases": (Phase((0,), ()),)}, "%0 is no reduction that is left to do"),
        ({"phases": (Phase((1,), ()), Phase((1,), ()))}, "%1 is no reduction that is left to do"),
        ({"phases": (*MEAN.phases, Phase((), (0,)))}, "store 0 is not left to do"),
        ({"phases": MEAN.phases[::-1]}, "reduction %1 is not complete before its use"),
        ({"phases": MEAN.phases[:1]}, "it depends on inner loops and is in no phase"),
        ({"phases": ()}, "reduction %1 is not complete before its use"),
        ({"kept": (1,)}, "kept %1 is no inner value"),
        ({"vector": vector(*GOOD, loop=R0)}, "the vectorized loop r0 does not exist"),
        ({"vector": vector(*GOOD, lanes=1)}, "1 lanes are no vector"),
        ({"vector": vector(*GOOD, (1, "uniform"))}, "[1] are no loads or stores"),
        ({"vector": vector(*GOOD[1:])}, "[0] have no access kind"),
        ({"vector": vector((0, "blocked"), *GOOD[1:])}, "unknown kind 'blocked'"),
        ({"vector": vector((0, "uniform"), *GOOD[1:])}, "has step 1 in i0, so it is not uniform"),
        ({"vector": vector(*GOOD[:2], (-2, "contiguous"))}, "has step 0 in i0, so it is not contiguous"),
    ],
)
def test_a_wrong_kernel_is_refused(change: dict[str, Any], text: str) -> None:
    refuse(replace(MEAN, **change), text)


CHOSEN = of(value_symbol(0, 4))
SCATTER = replace(
    MEAN,
    args=(
        KernelArg("out", F32, True, True),
        KernelArg("index", torch.int64, True, False),
        KernelArg("rows", F32, True, False),
    ),
    body=(Load("index", at(O0), torch.int64), load("rows", at(O0))),
    stores=(Store("out", at(CHOSEN), 1, "add"),),
    inner=(),
    phases=(),
)
OWNERS = Divided(as_expr(1), as_expr(4), CHOSEN, as_expr(4), 0)
PIECES = replace(OWNERS, pieces=as_expr(3))


def test_threads_that_may_meet_in_a_scatter_are_refused() -> None:
    verify_kernel(SCATTER)
    refuse(replace(SCATTER, parallel=1), "threads that share o0 may meet in a scatter")


def test_a_scatter_may_be_divided_by_what_points_that_meet_have_in_common() -> None:
    for divided in (OWNERS, PIECES):
        verify_kernel(replace(SCATTER, divided=divided))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"divided": replace(OWNERS, place=of(O0))}, "points that meet may have two places o0"),
        ({"divided": replace(OWNERS, places=of(O0))}, "loop o0 < 4 in o0 is not declared"),
        ({"divided": replace(OWNERS, places=of(size_symbol("s7")))}, "size s7 in s7 has no value here"),
        ({"divided": OWNERS, "stores": SCATTER.stores * 2}, "threads may meet where it reads or stores"),
        ({"divided": OWNERS, "body": (SCATTER.body[0], load("out", at(CHOSEN)))}, "threads may meet where it reads"),
        ({"divided": PIECES, "stores": (Store("out", at(CHOSEN), 1),)}, "out is no sum of 3 pieces"),
        ({"divided": PIECES, "stores": (Store("out", at(CHOSEN + 2), 1, "add"),)}, "out is no sum of 3 pieces"),
        ({"divided": OWNERS, "outer": (), "inner": (O0,)}, "it has no points to divide"),
        ({"across": O0}, "threads that share o0 may meet in a scatter"),
        ({"across": R0}, "threads share ranges of r0, which is not innermost"),
    ],
)
def test_a_wrong_division_of_a_scatter_is_refused(change: dict[str, Any], text: str) -> None:
    refuse(replace(SCATTER, **change), text)


def test_copies_have_all_elements_of_a_buffer_that_lie_next_to_each_other() -> None:
    index, rows = buffer("index", (4,), "input", I64), buffer("rows", (4,), "input")
    for out, accepted in (
        (buffer("out", (4,), "output"), True),
        (buffer("out", (5,), "output"), False),
        (replace(buffer("out", (4,), "output"), strides=(as_expr(2),)), False),
    ):
        kernel = replace(SCATTER, divided=PIECES)
        schedule = Schedule(program([index, rows, replace(out, kind="input")], []), (kernel,), (), ZERO)
        if accepted:
            verify_schedule(schedule)
        else:
            refuse(schedule, "out has not 4 elements next to each other")


def test_more_complaints_about_kernels() -> None:
    n = size_symbol("s0")
    (loop,) = loops(of(n), prefix="o")
    body = [load("x", at(loop))]
    refuse(kernel((loop,), (), body, [Store("out", at(loop), 0)]), "size s0 in s0 has no value here")
    verify_kernel(kernel((loop,), (), body, [Store("out", at(loop), 0)], sizes=(n,)))
    refuse(
        kernel((O0,), (), [load("x", at(O0))], [Store("out", at(O0), 0)], Phase((), (0,))), "there are no inner loops"
    )
    loaded = [load("k", at(O0), I64), load("x", at(of(value_symbol(0, 4))))]
    plan = vector((0, "contiguous"), (1, "strided"), (-1, "contiguous"), loop=O0)
    refuse(kernel((O0,), (), loaded, [Store("out", at(O0), 1)], vector=plan), "depends on loaded values")


# -- schedules -------------------------------------------------------------------------------------------------------
def copy(source: str, target: str) -> Kernel:
    return kernel((O0,), (), [Load(source, at(O0), F32)], [Store(target, at(O0), 0)])


def schedule(*steps: Any, places: dict[str, int] | None = None, size: int = 64, **kw: Any) -> Schedule:
    temps = [buffer(name, (4,)) for name in "abc"]
    p = program([X, OUT, *temps], kw.pop("nodes", ()), **kw)
    where = tuple((name, ArenaPlace(as_expr(offset))) for name, offset in (places or {}).items())
    return Schedule(p, steps, where, as_expr(size))


CHAIN = (copy("x", "a"), copy("a", "b"), copy("b", "c"), copy("c", "out"))


def test_a_chain_may_reuse_memory_that_is_free() -> None:
    verify_schedule(schedule(*CHAIN, places={"a": 0, "b": 16, "c": 0}))
    verify_schedule(schedule(*CHAIN, places={"a": 0, "b": 0, "c": 0}))  # each kernel writes over what it reads last


@pytest.mark.parametrize(
    ("places", "size", "text"),
    [
        ({"a": 0, "b": 8, "c": 0}, 64, "b and a overlap in the arena while both are live"),
        ({"a": 0, "b": 16}, 64, "the temp c has no memory"),
        ({"a": 0, "b": 16, "c": 0}, 24, "b at 16..32 leaves the arena of 24 bytes"),
        ({"a": 0, "b": 16, "c": 0, "out": 32}, 64, "the result out lives in the arena"),
    ],
)
def test_wrong_memory_plans_are_refused(places: dict[str, int], size: int, text: str) -> None:
    refuse(schedule(*CHAIN, places=places, size=size), text)


def test_extern_calls_do_not_write_over_their_arguments() -> None:
    steps = (copy("x", "a"), call(whole(buffer("a", (4,))), outputs=("b",)), copy("b", "out"))
    refuse(schedule(*steps, places={"a": 0, "b": 0}), "overlap")


@pytest.mark.parametrize("divided", [False, True])
def test_a_memory_plan_is_not_checked_for_sizes_that_a_guard_excludes(divided: bool) -> None:
    n = size_symbol("s0")
    rest = of(n) // (of(n) // 8) if divided else of(n) // 2 - 7  # not for s0 < 8, and negative for s0 < 14
    temps = [buffer("a", (rest,)), buffer("b", (rest,))]
    p = program([buffer("x", (of(n),), "input"), *temps, OUT], (), inputs=(InputSpec(0, buffer="x", symbol=None),))
    p = replace(p, bindings=(SizeBinding(n, "x", 0),))
    steps = (call(whole(p.buffer("x")), outputs=("a",)), call(whole(temps[0]), outputs=("b",), name="extern1"))
    last = call(whole(temps[1]), outputs=("out",), name="extern2")

    def planned(second: Expr) -> Schedule:
        places = (("a", ArenaPlace(ZERO)), ("b", ArenaPlace(second)))
        return Schedule(p, (*steps, last), places, rest * 8)

    verify_schedule(planned(rest * 4))
    refuse(planned(rest * 2), "b and a overlap")


def test_wrong_orders_are_refused() -> None:
    places = {"a": 0, "b": 16, "c": 32}
    refuse(schedule(*CHAIN[::-1], places=places), "c is read before it is written")
    refuse(schedule(*CHAIN[:2], places=places), "the result out is never written")
    refuse(schedule(copy("x", "nothing")), "buffer nothing does not exist")
    first, second = (call(outputs=(None,), ordered=True, name=name) for name in ("e1", "e2"))
    steps = (copy("x", "out"), second, first)
    refuse(schedule(*steps, nodes=(first, second)), "ordered calls ['e1', 'e2'] run as ['e2', 'e1']")


def test_symbolic_memory_plans_are_checked_for_sample_sizes() -> None:
    n = size_symbol("s0", 2)

    def plan(offset: Expr) -> Schedule:
        sizes = (of(n),)
        temps = [buffer(name, sizes) for name in "ab"]
        p = program([buffer("x", sizes, "input"), buffer("out", sizes, "output"), *temps], [])
        (loop,) = loops(of(n), prefix="o")
        names = ("x", "a", "b", "out")
        steps = tuple(
            kernel((loop,), (), [load(s, at(loop))], [Store(t, at(loop), 0)], sizes=(n,))
            for s, t in itertools.pairwise(names)
        )
        return Schedule(p, steps, (("a", ArenaPlace(ZERO)), ("b", ArenaPlace(offset))), of(n) * 8 + 64)

    verify_schedule(plan(of(n) * 4))
    refuse(plan(as_expr(16)), "overlap")


@pytest.mark.parametrize("first", ["s0", "s1"])
def test_a_place_of_the_size_of_another_buffer_is_refused(first: str) -> None:
    """Sizes that are equal in all samples would not show it."""
    n, m = size_symbol("s0", 2), size_symbol("s1", 2)
    one, other = (n, m) if first == "s0" else (m, n)
    inputs = [buffer("x", (of(n),), "input"), buffer("y", (of(m),), "input")]
    temps = [buffer("a", (of(one),)), buffer("b", (of(other),))]
    p = replace(
        program(
            [*inputs, *temps, OUT], (), inputs=tuple(InputSpec(k, buffer=b, symbol=None) for k, b in enumerate("xy"))
        ),
        bindings=(SizeBinding(n, "x", 0), SizeBinding(m, "y", 0)),
    )
    steps = (
        call(whole(inputs[0]), outputs=("a",)),
        call(whole(temps[0]), outputs=("b",), name="extern1"),
        call(whole(temps[0]), whole(temps[1]), outputs=("out",), name="extern2"),
    )

    def planned(second: Expr) -> Schedule:
        places = (("a", ArenaPlace(ZERO)), ("b", ArenaPlace(second)))
        return Schedule(p, steps, places, (of(n) + of(m)) * 4)

    verify_schedule(planned(of(one) * 4))
    with pytest.raises(InternalError, match=r"overlap|leaves the arena"):
        verify_schedule(planned(of(other) * 4))
