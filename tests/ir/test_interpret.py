"""The reference interpreter against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir import interpret_loops
from inductor_cpu.ir.index import ZERO, as_expr, of, size_symbol, value_symbol
from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.interpret_loops import run_kernel
from inductor_cpu.ir.kernel import Kernel, Phase
from inductor_cpu.ir.loop_nest import Buffer, Cast, Const, Index, Reduce, Scalar, Store, View
from inductor_cpu.ir.nodes import Extern, InputSpec, Program, SizeBinding
from tests.ir.build import F32, at, buffer, exprs, kernel, load, loops, nest, program, whole

I64 = torch.int64


def add_transposed(n: Any, m: Any, **kw: Any) -> Program:
    d0, d1 = loops(n, m)
    body = [load("x", at(d0, d1)), load("y", at(d1, d0)), Scalar("add", (0, 1), F32)]
    buffers = [buffer("x", (n, m), "input"), buffer("y", (m, n), "input"), buffer("out", (n, m), "output")]
    return program(buffers, [nest((d0, d1), body, Store("out", at(d0, d1), 2))], **kw)


def test_pointwise_with_a_transposed_operand() -> None:
    x, y = torch.randn(3, 5), torch.randn(5, 3)
    (out,) = run(add_transposed(3, 5), [x, y])
    assert torch.equal(out, x + y.t())


def test_grids_larger_than_a_chunk_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpret_loops, "CHUNK_POINTS", 7)
    x, y = torch.randn(9, 5), torch.randn(5, 9)
    (out,) = run(add_transposed(9, 5), [x, y])
    assert torch.equal(out, x + y.t())


def test_a_nest_over_no_points_divides_by_nothing() -> None:
    (d0,) = loops(0)
    body = [load("x", at(ZERO), dtype=I64), load("x", at(ZERO), dtype=I64), Scalar("remainder", (0, 1), I64)]
    buffers = [buffer("x", (1,), "input", I64), buffer("out", (0,), "output", I64)]
    (out,) = run(program(buffers, [nest((d0,), body, Store("out", at(d0), 2))]), [torch.zeros(1, dtype=I64)])
    assert out.shape == (0,)


def test_sizes_are_bound_from_inputs() -> None:
    n, m = size_symbol("s0", 2), size_symbol("s1", 2)
    bindings = (SizeBinding(n, "x", 0), SizeBinding(m, "x", 1))
    p = add_transposed(of(n), of(m), bindings=bindings)
    for shape in ((2, 3), (6, 4)):
        x, y = torch.randn(shape), torch.randn(shape[::-1])
        assert torch.equal(run(p, [x, y])[0], x + y.t())


def test_int_inputs_bind_symbols_and_are_results() -> None:
    n = size_symbol("s0")
    (d0,) = loops(of(n))
    out = buffer("out", (of(n),), "output")
    fill = nest((d0,), [Index(of(d0) * 2)], Store("out", at(d0), 0))
    p = program(
        [Buffer("out", I64, out.sizes, out.strides, "output")],
        [fill],
        [whole(out), of(n) + 1, None],
        inputs=(InputSpec(0, symbol=n),),
    )
    got = run(p, [4])
    assert got[0].tolist() == [0, 2, 4, 6]
    assert got[1:] == [5, None]


def test_masked_loads_do_not_read_and_give_the_fill() -> None:
    (d0,) = loops(6)
    body = [
        Index(of(d0)),
        Const(2, I64),
        Scalar("ge", (0, 1), torch.bool),
        load("x", at(of(d0) - 2), mask=2, fill=7.0),
    ]
    p = program(
        [buffer("x", (4,), "input"), buffer("out", (6,), "output")], [nest((d0,), body, Store("out", at(d0), 3))]
    )
    assert run(p, [torch.tensor([1.0, 2, 3, 4])])[0].tolist() == [7, 7, 1, 2, 3, 4]


def test_an_unmasked_index_out_of_range_is_an_internal_error() -> None:
    (d0,) = loops(4)
    body = [load("x", at(of(d0) + 1))]
    p = program(
        [buffer("x", (4,), "input"), buffer("out", (4,), "output")], [nest((d0,), body, Store("out", at(d0), 0))]
    )
    with pytest.raises(InternalError, match="leaves"):
        run(p, [torch.zeros(4)])


def gather(mode: str = "set") -> Program:
    """out[i] = x[index[i]], with a checked index."""
    (d0,) = loops(3)
    body = [
        load("index", at(d0), I64),
        Const(4, I64),
        Scalar("check_index", (0, 1), I64),
        load("x", at(of(value_symbol(2, 4)))),
    ]
    buffers = [buffer("x", (4,), "input"), buffer("index", (3,), "input", I64), buffer("out", (3,), "output")]
    return program(buffers, [nest((d0,), body, Store("out", at(d0), 3))])


def test_gather_by_a_loaded_index() -> None:
    x = torch.randn(4)
    (out,) = run(gather(), [x, torch.tensor([3, -4, 1])])
    assert torch.equal(out, x[[3, 0, 1]])


def test_gather_out_of_range_raises_index_error() -> None:
    with pytest.raises(IndexError):
        run(gather(), [torch.randn(4), torch.tensor([0, 4, 1])])


def test_scatter_adds_duplicates_into_an_input_in_place() -> None:
    (d0,) = loops(4)
    body = [load("index", at(d0), I64), Const(1.5, F32)]
    store = Store("x", at(of(value_symbol(0, 3))), 1, mode="add")
    p = program([buffer("x", (3,), "input"), buffer("index", (4,), "input", I64)], [nest((d0,), body, store)])
    x = torch.zeros(3)
    run(p, [x, torch.tensor([0, 2, 2, 2])])
    assert x.tolist() == [1.5, 0, 4.5]


def test_masked_store_leaves_the_rest() -> None:
    (d0,) = loops(4)
    body = [load("x", at(d0)), Const(0.0, F32), Scalar("lt", (0, 1), torch.bool)]
    p = program([buffer("x", (4,), "input")], [nest((d0,), body, Store("x", at(d0), 1, mask=2))])
    x = torch.tensor([1.0, -2, 3, -4])
    run(p, [x])
    assert x.tolist() == [1, 0, 3, 0]


def test_softmax_reduces_twice_and_broadcasts() -> None:
    (d0,), (r0,) = loops(5), loops(7, prefix="r")
    body = [
        load("x", at(d0, r0)),
        Reduce("max", 0, F32),
        Scalar("sub", (0, 1), F32),
        Scalar("exp", (2,), F32),
        Reduce("sum", 3, F32),
        Scalar("log", (4,), F32),
        Scalar("add", (5, 1), F32),
    ]
    p = program(
        [buffer("x", (5, 7), "input"), buffer("out", (5,), "output")],
        [nest((d0,), body, Store("out", at(d0), 6), reduce=(r0,))],
    )
    x = torch.randn(5, 7)
    torch.testing.assert_close(run(p, [x])[0], x.logsumexp(1))


def test_reduction_of_a_value_that_does_not_depend_on_the_loop_counts_each_point() -> None:
    (d0,), reduce = loops(2), loops(3, 4, prefix="r")
    body = [load("x", at(d0)), Reduce("sum", 0, F32)]
    p = program(
        [buffer("x", (2,), "input"), buffer("out", (2,), "output")],
        [nest((d0,), body, Store("out", at(d0), 1), reduce=reduce)],
    )
    assert run(p, [torch.tensor([1.0, 2.0])])[0].tolist() == [12.0, 24.0]


def test_low_precision_scalars_are_not_rounded_but_results_are() -> None:
    (d0,) = loops(100)
    body = [load("x", at(d0), torch.bfloat16), Const(0.1, torch.bfloat16), Scalar("mul", (0, 1), torch.bfloat16)]
    p = program(
        [buffer("x", (100,), "input", torch.bfloat16), buffer("out", (100,), "output", torch.bfloat16)],
        [nest((d0,), body, Store("out", at(d0), 2))],
    )
    x = torch.randn(100, dtype=torch.bfloat16)
    assert torch.equal(run(p, [x])[0], x * 0.1)


def test_unwritten_memory_is_poisoned() -> None:
    out = buffer("out", (3,), "output")
    (d0,) = loops(2)
    p = program([out], [nest((d0,), [Const(1.0, F32)], Store("out", at(d0), 0))])
    assert run(p, [])[0].isnan().tolist() == [False, False, True]


def extern(target: Any, *args: Any, outputs: tuple[str | None, ...], **kw: Any) -> Extern:
    return Extern("extern0", target, args, kw.pop("kwargs", ()), outputs, "test", **kw)


def test_extern_results_get_the_declared_strides() -> None:
    x = buffer("x", (3, 4), "input")
    result = Buffer("r", F32, exprs((3, 4)), exprs((1, 3)), "extern")
    call = extern(torch.ops.aten.relu.default, whole(x), outputs=("r",))
    value = torch.randn(3, 4)
    (got,) = run(program([x, result], [call], [whole(result)]), [value])
    assert torch.equal(got, value.relu())
    assert got.stride() == (1, 3)


def test_extern_takes_views_lists_ints_and_keywords() -> None:
    x = buffer("x", (4, 4), "input")
    corner = View("x", exprs((2, 2)), exprs((4, 1)), as_expr(5))
    call = extern(torch.ops.aten.cat.default, (corner, corner), kwargs=(("dim", as_expr(1)),), outputs=("r",))
    value = torch.randn(4, 4)
    r = buffer("r", (2, 4), "extern")
    (got,) = run(program([x, r], [call], [whole(r)]), [value])
    assert torch.equal(got, torch.cat([value[1:3, 1:3]] * 2, 1))


def test_a_call_without_a_result_may_return_none() -> None:
    x = buffer("x", (), "input", torch.bool)
    check = extern(torch.ops.aten._assert_async.default, whole(x), outputs=())
    (got,) = run(program([x], [check], [whole(x)]), [torch.tensor(True)])
    assert bool(got)
    with pytest.raises(RuntimeError):
        run(program([x], [check], [whole(x)]), [torch.tensor(False)])


def test_data_dependent_sizes_and_ints_are_bound_after_the_call() -> None:
    count, top = size_symbol("u0"), size_symbol("u1")
    x, rows = buffer("x", (5,), "input"), buffer("rows", (of(count), 1), "extern", I64)
    calls = [
        extern(torch.ops.aten.nonzero.default, whole(x), outputs=("rows",)),
        extern(
            torch.ops.aten._local_scalar_dense.default,
            View("rows", (), (), ZERO),
            outputs=(None,),
            int_outputs=((0, top),),
        ),
    ]
    bindings = (SizeBinding(count, "rows", 0),)
    p = program([x, rows], calls, [whole(rows), of(count), of(top)], bindings=bindings)
    got = run(p, [torch.tensor([0.0, 1, 0, 2, 3])])
    assert got[0].flatten().tolist() == [1, 3, 4]
    assert got[1:] == [3, 1]


def test_results_are_the_input_itself_or_a_view_of_it() -> None:
    x = buffer("x", (4, 2), "input")
    row = View("x", exprs((2,)), exprs((1,)), as_expr(2))
    value = torch.randn(4, 2)
    got = run(program([x], [], [whole(x), row]), [value])
    assert got[0] is value
    assert torch.equal(got[1], value[1])
    assert got[1].data_ptr() == value[1].data_ptr()


def test_an_input_with_a_storage_offset_is_addressed_from_its_own_start() -> None:
    base, y = torch.randn(10, 5), torch.randn(5, 3)
    x = base[4:7]
    assert torch.equal(run(add_transposed(3, 5), [x, y])[0], x + y.t())


# -- kernels ---------------------------------------------------------------------------------------------------------
def softmax_kernel(kept: tuple[int, ...]) -> Kernel:
    (o0,), (i0,) = loops(4, prefix="o"), loops(6, prefix="i")
    flat = (of(o0) * 6 + of(i0),)
    body = [
        load("x", flat),
        Reduce("max", 0, F32),
        Scalar("sub", (0, 1), F32),
        Scalar("exp", (2,), F32),
        Reduce("sum", 3, F32),
        Scalar("div", (3, 4), F32),
    ]
    stores = [Store("out", flat, 5), Store("total", at(o0), 4)]
    return kernel((o0,), (i0,), body, stores, Phase((1,), ()), Phase((4,), ()), Phase((), (0,)), kept=kept)


@pytest.mark.parametrize("kept", [(), (3,)])
def test_kernel_with_three_phases(kept: tuple[int, ...]) -> None:
    buffers = {"x": torch.randn(4, 6), "out": torch.empty(4, 6), "total": torch.empty(4)}
    run_kernel(softmax_kernel(kept), buffers, {})
    torch.testing.assert_close(buffers["out"], buffers["x"].softmax(1))
    x = buffers["x"]
    torch.testing.assert_close(buffers["total"], (x - x.amax(1, keepdim=True)).exp().sum(1))


def test_kernel_without_phases_and_with_symbolic_sizes() -> None:
    n = size_symbol("s0")
    (o0,) = loops(of(n), prefix="o")
    body = [load("x", at(o0)), Cast(0, I64)]
    buffers = {"x": torch.tensor([1.7, -1.7]), "out": torch.empty(2, dtype=I64)}
    run_kernel(kernel((o0,), (), body, [Store("out", at(o0), 1)], sizes=(n,)), buffers, {n: 2})
    assert buffers["out"].tolist() == [1, -1]


def test_later_phases_load_what_earlier_phases_stored() -> None:
    (i0,) = loops(3, prefix="i")
    body = [Const(2.0, F32), load("t", at(i0)), Scalar("mul", (0, 1), F32)]
    stores = [Store("t", at(i0), 0), Store("out", at(i0), 2)]
    buffers = {"t": torch.zeros(3), "out": torch.zeros(3)}
    run_kernel(kernel((), (i0,), body, stores, Phase((), (0,)), Phase((), (1,))), buffers, {})
    assert buffers["out"].tolist() == [4.0] * 3
