from __future__ import annotations

from typing import Any

import pytest
import torch

from inductor_cpu.ir.plan import Free, LoadInput, LoadInt, Reg, Slot
from inductor_cpu.runtime import executor as native
from tests.runtime.support import Runner, aten, extern, make_plan

X, Y, OUT, N = Slot(0), Slot(1), Slot(2), Reg(0)


def plan_of(call: Any, results: Any = (OUT,)) -> Any:
    return make_plan(LoadInput(X, 0), LoadInput(Y, 1), LoadInt(N, 2), call, results=results)


def op(target: Any, *args: Any, out: Any = (OUT,), **kwargs: Any) -> Any:
    return extern(target, *args, out=out, **kwargs)


# One row per kind of argument: the operator, its arguments, and its outputs.
NATIVE_CALLS = {
    "Tensor": op(aten.add.Tensor, X, Y),
    "Scalar keyword": op(aten.add.Tensor, X, Y, alpha=2),
    "Scalar float": op(aten.mul.Scalar, X, 2.5),
    "Scalar bool": op(aten.mul.Scalar, X, True),
    "Scalar complex": op(aten.mul.Scalar, X, 1 + 2j),
    "Scalar from a register": op(aten.mul.Scalar, X, N),
    "Scalar?": op(aten.clamp.default, X, None, 0.5),
    "Tensor[]": op(aten.cat.default, [X, Y], 1),
    "Tensor[] as tuple": op(aten.stack.default, (X, Y, X)),
    "Tensor?": op(aten.native_layer_norm.default, X, [4], None, None, 1e-5, out=(OUT, None, None)),
    "Tensor?[]": op(aten.index.Tensor, X, [None, Slot(3)]),
    "int": op(aten.select.int, X, 0, 1),
    "int from a register": op(aten.select.int, X, 0, N),
    "int[]": op(aten.permute.default, X, [1, 0]),
    "int[2] from one int": op(aten.avg_pool2d.default, Slot(4), 2),
    "int[] from registers": op(aten.expand.default, Slot(5), [N, 3]),
    "SymInt[] from registers": op(aten.view.default, Slot(4), [-1, N]),
    "float": op(aten.elu.default, X, 1, 1, 1),
    "float as int": op(aten.native_layer_norm.default, X, [4], None, None, 1, out=(OUT, None, None)),
    "float[]?": op(aten.upsample_nearest2d.vec, Slot(4), None, [2.0, 2.0]),
    "float? None": op(aten.upsample_nearest2d.default, Slot(4), [8, 8], None, None),
    "bool": op(aten.sum.dim_IntList, X, [0], True),
    "bool[]": op(
        aten.convolution_backward.default,
        Slot(6), Slot(4), Slot(7), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False],
        out=(OUT, None, None),
    ),
    "str": op(aten.div.Tensor_mode, X, Y, rounding_mode="floor"),
    "ScalarType": op(aten.sum.default, X, dtype=torch.float64),
    "factory keywords": op(
        aten.full.default, [2, N], 7, dtype=torch.int32, layout=torch.strided, device=torch.device("cpu"),
        pin_memory=False,
    ),
    "MemoryFormat": op(aten.clone.default, Slot(4), memory_format=torch.channels_last),
    "Generator None": op(aten.multinomial.default, Slot(8), 1, generator=None),
    "int result": op(aten.sym_size.int, X, 1, out=(Reg(1),)),
    "bool result": op(aten.equal.default, X, Y, out=(Reg(1),)),
    "Scalar result": op(aten._local_scalar_dense.default, Slot(9), out=(Reg(1),)),
    "two results": op(aten.max.dim, X, 1, out=(OUT, Y)),
    "list result": op(aten.split.Tensor, X, 2, 1, out=(OUT, Y)),
    "dropped result": op(aten.max.dim, X, 1, out=(None, OUT)),
    "in place": op(aten.mul_.Tensor, OUT, Y),
    "composite": op(aten.matmul.default, X, Slot(10)),
}  # fmt: skip

CONSTANTS = (
    (Slot(3), torch.tensor([0, 2])),
    (Slot(4), torch.randn(1, 3, 4, 4)),
    (Slot(5), torch.randn(1, 3)),
    (Slot(6), torch.randn(1, 2, 2, 2)),
    (Slot(7), torch.randn(2, 3, 3, 3)),
    (Slot(8), torch.tensor([0.0, 1.0, 0.0])),
    (Slot(9), torch.tensor(41)),
    (Slot(10), torch.randn(4, 5)),
)


@pytest.mark.parametrize("kind", NATIVE_CALLS)
def test_argument_kind_goes_through_the_dispatcher_as_from_python(run: Runner, either: Runner, kind: str) -> None:
    call = NATIVE_CALLS[kind]
    before = [op(aten.clone.default, X)]
    plan = make_plan(
        LoadInput(X, 0),
        LoadInput(Y, 1),
        LoadInt(N, 2),
        *before,
        call,
        results=(OUT, Y, Reg(1)),
        slots=11,
        constants=CONSTANTS,
    )
    either(plan, torch.randn(3, 4), torch.randn(3, 4), 2)
    assert {row.why_python for row in native.describe(run.load(plan))} == {""}


def test_undefined_results_are_none(either: Runner) -> None:
    call = op(
        aten.convolution_backward.default,
        *(Slot(6), Slot(4), Slot(7), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]),
        out=(OUT, Slot(0), None),
    )
    plan = make_plan(call, results=(OUT, Slot(0)), slots=11, constants=CONSTANTS)
    assert either(plan)[0] is None


def test_python_callable_gets_nested_arguments(run: Runner) -> None:
    def target(a: Any, pair: Any, *, table: Any) -> Any:
        assert isinstance(pair, tuple)
        assert isinstance(pair[1], list)
        return a * table["n"], [pair[0] + pair[1][0], 5], None

    call = op(target, X, (Y, [N, "text"]), table={"n": N, "x": X}, out=(OUT, Slot(3), Reg(1), Slot(4)))
    plan = plan_of(call, results=(OUT, Slot(3), Reg(1), Slot(4)))
    run(plan, torch.randn(3), torch.randn(3), 4)
    (row,) = native.describe(run.load(plan))
    assert (row.path, row.why_python) == ("python", "not an operator of the dispatcher")


def test_number_in_the_place_of_a_tensor_is_taken_as_from_python(either: Runner) -> None:
    plan = make_plan(LoadInput(X, 0), op(aten.add.Tensor, X, 2), results=(OUT,))
    either(plan, torch.randn(3))
    (row,) = native.describe(either.load(plan))
    assert row.path == "python"


def test_argument_without_a_native_form_goes_through_python(run: Runner) -> None:
    generator = torch.Generator().manual_seed(7)
    plan = run.load(make_plan(op(aten.randn.generator, [4], generator=generator), results=(OUT,)))
    (row,) = native.describe(plan)
    assert row.path == "python"
    assert "Generator" in row.why_python
    assert torch.equal(plan([])[0], torch.randn(4, generator=torch.Generator().manual_seed(7)))


def test_operator_written_in_python_runs_through_the_dispatcher(run: Runner, either: Runner) -> None:
    with torch.library._scoped_library("icpu_test", "DEF") as library:
        library.define("twice(Tensor x, SymInt n) -> Tensor")
        library.impl("twice", lambda x, n: x * n, "CPU")
        plan = plan_of(op(torch.ops.icpu_test.twice.default, X, N))
        either(plan, torch.randn(3), torch.randn(3), 2)
        assert native.describe(run.load(plan))[0].path == "native"


@pytest.mark.parametrize(
    ("target", "args", "error"),
    [
        (aten.mm.default, (X, Y), RuntimeError),
        (aten.select.int, (X, 0, 99), IndexError),
        (aten.softmax.int, (X, 7), IndexError),
        (aten.add_.Tensor, (X, Slot(3)), RuntimeError),
        (aten.linalg_inv_ex.default, (X,), RuntimeError),
        (aten.multinomial.default, (X, -1), RuntimeError),
    ],
)
def test_error_of_an_operator_has_the_type_it_has_in_eager(either: Runner, target: Any, args: Any, error: type) -> None:
    constants = ((Slot(3), torch.zeros(7, 7)),)
    outputs = (OUT,) * len(target._schema.returns)
    plan = either.load(
        make_plan(LoadInput(X, 0), LoadInput(Y, 1), op(target, *args, out=outputs), results=(), constants=constants)
    )
    values = {X: torch.rand(2, 3), Y: torch.rand(2, 3), Slot(3): constants[0][1]}
    with pytest.raises(error) as eager:
        target(*(values.get(a, a) if isinstance(a, Slot) else a for a in args))
    with pytest.raises(error) as native_error:
        plan([values[X], values[Y]])
    assert type(native_error.value) is type(eager.value)
    assert str(native_error.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_exception_of_a_python_callable_arrives_unchanged(either: Runner) -> None:
    class Special(Exception):
        pass

    def target() -> None:
        raise Special("here")

    plan = either.load(make_plan(op(target, out=()), results=()))
    with pytest.raises(Special, match="here"):
        plan([])


@pytest.mark.parametrize("outputs", [(), (OUT, Y), (Reg(0),)])
def test_results_that_do_not_match_the_plan_are_an_error(either: Runner, outputs: Any) -> None:
    plan = either.load(make_plan(LoadInput(X, 0), op(aten.relu.default, X, out=outputs), results=()))
    with pytest.raises(RuntimeError, match="returned"):
        plan([torch.randn(2)])


def test_freed_slot_is_empty(either: Runner) -> None:
    plan = either.load(make_plan(LoadInput(X, 0), Free((X,)), op(aten.relu.default, X), results=(OUT,)))
    with pytest.raises(RuntimeError):
        plan([torch.randn(2)])
