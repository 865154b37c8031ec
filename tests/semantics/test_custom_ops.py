"""Operators that a program defines: with and without a fake kernel, with gradients, with mutated arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.semantics.support import Tensor, check


@torch.library.custom_op("icpu_semantics::scaled", mutates_args=())
def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    return x.contiguous() * factor


@scaled.register_fake
def _(x: Tensor, factor: float = 2.0) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.factor = inputs[1]


scaled.register_autograd(lambda ctx, g: (scaled(g, ctx.factor), None), setup_context=_save)


@torch.library.custom_op("icpu_semantics::no_fake", mutates_args=())
def no_fake(x: Tensor) -> Tensor:
    return x + 1


@torch.library.custom_op("icpu_semantics::add_into", mutates_args={"out"})
def add_into(x: Tensor, out: Tensor) -> None:
    out.add_(x)


@torch.library.custom_op("icpu_semantics::write_both", mutates_args={"a", "b"})
def write_both(a: Tensor, b: Tensor | None, scale: float) -> Tensor:
    a.mul_(scale)
    if b is not None:
        b.add_(1)
    return a.sum().clone()


@write_both.register_fake
def _(a: Tensor, b: Tensor | None, scale: float) -> Tensor:
    return a.new_empty(())


@torch.library.custom_op("icpu_semantics::write_list", mutates_args={"xs"})
def write_list(xs: list[Tensor]) -> None:
    for x in xs:
        x.mul_(2)


@torch.library.custom_op("icpu_semantics::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("icpu_semantics::parts", mutates_args=())
def parts(x: Tensor, sizes: list[int], name: str, flag: bool = True) -> list[Tensor]:
    assert name == "split"
    return [p.clone() for p in x.split(sizes)]


@parts.register_fake
def _(x: Tensor, sizes: list[int], name: str, flag: bool = True) -> list[Tensor]:
    return [x.new_empty(n, *x.shape[1:]) for n in sizes]


@torch.library.custom_op("icpu_semantics::liar", mutates_args=())
def liar(x: Tensor) -> Tensor:
    """Its fake kernel promises another layout than the one it returns."""
    return (x * 2).t().contiguous().t()


@liar.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("icpu_semantics::fails", mutates_args=())
def fails(x: Tensor) -> Tensor:
    raise KeyError("no such thing")


@fails.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


ORDER: list[str] = []


@torch.library.custom_op("icpu_semantics::log", mutates_args=())
def log(x: Tensor, text: str) -> Tensor:
    ORDER.append(text)
    return x.clone()


@log.register_fake
def _(x: Tensor, text: str) -> Tensor:
    return torch.empty_like(x)


_register_effectful_op("icpu_semantics::log", EffectType.ORDERED)


def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3), torch.randn(4, 3)


def test_with_a_fake_kernel_and_gradients() -> None:
    check(lambda x: scaled(x.t() + 1, 3.0) * 2, lambda: (torch.randn(4, 3).requires_grad_(),), backward=True, calls=2)


def test_without_a_fake_kernel_is_dynamos_error_that_names_the_operator() -> None:
    compiled, _ = compile_counted(lambda x: no_fake(x * 2) + 1)
    with pytest.raises(RuntimeError, match=r"no fake impl registered.*no_fake"):
        compiled(torch.ones(3))


@pytest.mark.full
def test_without_a_fake_kernel_works_outside_of_the_graph() -> None:
    outside = torch.compiler.disable(no_fake)
    check(lambda x, y: outside(x * 2) * y, pair)


@pytest.mark.parametrize("dynamic", cases([True], [False]))
def test_that_writes_an_input_a_value_and_a_view(dynamic: bool) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        value = x * 2
        add_into(x, value)
        add_into(value[1:], y[1:])
        add_into(x.t(), y.t())
        return value, y * 2

    check(function, pair, calls=2, dynamic=dynamic)


@pytest.mark.parametrize("optional", cases([False], [True]))
def test_that_writes_and_returns(optional: bool) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        before = y * 1
        total = write_both(y, x if optional else None, 2.0)
        return before, total, x + y

    check(function, pair, calls=2)


@pytest.mark.full
def test_that_writes_a_list() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = x + 1
        write_list([x, y[0], z])
        return z + x

    check(function, pair, calls=2)


@pytest.mark.full
def test_of_lists_strings_and_flags() -> None:
    check(lambda x, y: [p * 2 for p in parts(x + y, [1, 3], "split", flag=False)], pair)


def test_whose_result_depends_on_data() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(lambda x, y: positive(x) * 2, pair, fullgraph=True)


def test_whose_result_has_another_layout_than_its_fake_kernel_says() -> None:
    function = lambda x: liar(x) + x  # noqa: E731
    x = torch.randn(4, 3)
    torch.testing.assert_close(compile_counted(function)[0](x), function(x))
    torch.testing.assert_close(compile_counted(liar)[0](x), liar(x))


def test_error_inside_has_its_own_type() -> None:
    check(lambda x, y: fails(x * 2) + y, pair, compiled=False)


def test_with_effects_is_called_in_order_and_if_nobody_reads_its_result() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        log(y * 2, "first")
        z = log(x, "second") + 1
        log(z, "third")
        return log(y, "fourth") + z

    ORDER.clear()
    check(function, pair)
    assert ORDER == ["first", "second", "third", "fourth"] * 2


@pytest.mark.parametrize("gradients", cases([True], [False]))
def test_linear_algebra_and_its_checks(gradients: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        square = x @ x.t() + torch.eye(4)
        return torch.linalg.inv(square) * 2, torch.linalg.solve(square, x), torch.linalg.cholesky(square).sum()

    check(function, lambda: (torch.randn(4, 3).requires_grad_(gradients),), backward=gradients, tolerance=1e-4)


@pytest.mark.full
def test_check_of_linear_algebra_that_fails_has_the_error_of_eager_mode() -> None:
    check(lambda x: torch.linalg.inv(x * 0) + 1, lambda: (torch.ones(3, 3),), compiled=False)


@pytest.mark.full
def test_library_operator_with_a_python_kernel() -> None:
    with torch.library._scoped_library("icpu_semantics_old", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")
        check(lambda x, y: torch.ops.icpu_semantics_old.twice(x + y) * 2, pair)


@pytest.mark.full
def test_wrapped_function_is_allowed_in_the_graph() -> None:
    @torch.compiler.allow_in_graph
    def opaque(x: Tensor) -> Tensor:
        return x * 2 + 1

    check(lambda x, y: opaque(x) * y, pair, fullgraph=True)


class Pair(torch.Tensor):
    """A tensor made of two, which only the dispatcher's Python key can add up."""

    @staticmethod
    def __new__(cls, a: Tensor, b: Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sides = [[getattr(x, side) if isinstance(x, Pair) else x for x in args] for side in "ab"]
        return Pair(func(*sides[0]), func(*sides[1]))


class Counting(TorchDispatchMode):
    """Counts the operators that it sees."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


def _by_subclass(x: Tensor) -> Tensor:
    pair = Pair(x, x + 1) * 2
    return pair.a + pair.b  # type: ignore[attr-defined,no-any-return]


def _by_mode(x: Tensor) -> Tensor:
    with Counting() as mode:
        y = x * 2
    return y + mode.seen


def _by_compile(x: Tensor) -> Tensor:
    return torch.compile(lambda y: y.sin() + 1, backend="icpu")(x)  # type: ignore[no-any-return]


def _by_gradient(x: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad((leaf * leaf).sum(), leaf)[0]


_BODIES = {"subclass": _by_subclass, "mode": _by_mode, "compile": _by_compile, "gradient": _by_gradient}
_LIBRARY = torch.library.Library("icpu_semantics_bodies", "DEF")
for _name, _body in _BODIES.items():
    _LIBRARY.define(f"{_name}(Tensor x) -> Tensor")
    _LIBRARY.impl(_name, _body, "CPU")
    torch.library.register_fake(f"icpu_semantics_bodies::{_name}", torch.empty_like, lib=_LIBRARY)


@pytest.mark.parametrize("name", _BODIES)
def test_what_an_operator_of_the_program_does_inside(name: str) -> None:
    operator = getattr(torch.ops.icpu_semantics_bodies, name)
    with torch.no_grad():
        check(lambda x: operator(x * 2) + 1, lambda: (torch.randn(5),))
