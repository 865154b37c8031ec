"""Order of steps and phases around mutated buffers and sizes that depend on data, in programs written by hand."""

from __future__ import annotations

import torch

from inductor_cpu.ir.index import of, size_symbol
from inductor_cpu.ir.loop_nest import Cast, Index, LoopNest, Reduce, Scalar, Store, View
from inductor_cpu.ir.nodes import Extern, Program
from tests.ir.build import F32, at, buffer, exprs, load, loops, nest, program, whole
from tests.schedule.harness import check_program, kernels, only_kernel

R, C = loops(6, 16)
(K,) = loops(16, prefix="r")


def doubled_then_centered() -> Program:
    """x <- 2 x, in place; total <- sum of each row of the new x; out <- new x - total."""
    x, total, out = buffer("x", (6, 16), "input"), buffer("t", (6,)), buffer("o", (6, 16), "output")
    double = (load("x", at(R, C)), Scalar("add", (0, 0), F32))
    center = (load("x", at(R, C)), load("t", at(R)), Scalar("sub", (0, 1), F32))
    nodes = (
        nest((R, C), double, Store("x", at(R, C), 1), name="double"),
        nest((R,), (load("x", at(R, K)), Reduce("sum", 0, F32)), Store("t", at(R), 1), reduce=(K,), name="total"),
        nest((R, C), center, Store("o", at(R, C), 2), name="center"),
    )
    return program((x, total, out), nodes)


def test_an_overwritten_input_is_stored_in_the_last_phase_that_reads_it() -> None:
    kernel = only_kernel(check_program(doubled_then_centered(), [torch.randn(6, 16)]))
    assert [sorted(kernel.stores[n].buffer for n in phase.stores) for phase in kernel.phases] == [[], ["o", "x"]]


def reader(name: str, source: str, target: str, step: int) -> LoopNest:
    """target[i] <- source[i] + step."""
    (d,) = loops(16)
    body = (load(source, at(d)), Index(of(d) * 0 + step), Cast(1, F32), Scalar("add", (0, 2), F32))
    return nest((d,), body, Store(target, at(d), 3), name=name)


def test_a_producer_is_not_inlined_past_any_of_two_writes() -> None:
    """The input is written before and after the reader of the copy: the copy keeps the first value."""
    x, old, first = buffer("x", (16,), "input"), buffer("old", (16,)), buffer("first", (16,), "output")
    nodes = (
        reader("copy", "x", "old", 0),
        reader("write", "x", "x", 1),
        reader("read", "old", "first", 5),
        reader("again", "x", "x", 2),
    )
    check_program(program((x, old, first), nodes), [torch.randn(16)], 0.0)


def test_a_nest_does_not_move_ahead_of_the_call_that_gives_its_size_a_value() -> None:
    u = size_symbol("u0")
    x, count = buffer("x", (16,), "input"), buffer("n", (), "input", torch.int64)
    first, second = buffer("a", (16,), "output"), buffer("b", (16,), "output")
    call = Extern(
        "item", torch.ops.aten.item.default, (View("n", (), (), exprs((0,))[0]),), (), (None,), "test", ((0, u),)
    )
    (d,) = loops(16)
    body = (load("x", at(d)), Index(of(u)), Cast(1, F32), Scalar("mul", (0, 2), F32))
    late = nest((d,), body, Store("b", at(d), 3), name="late")
    nodes = (reader("early", "x", "a", 1), call, late)
    made = program((x, count, first, second), nodes, [whole(first), whole(second)])
    schedule = check_program(made, [torch.randn(16), torch.tensor(3)], 0.0)
    assert isinstance(schedule.steps[0], Extern)
    assert len(kernels(schedule)) == 1
