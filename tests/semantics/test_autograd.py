"""Gradients: which results need them, modes inside, hooks, checkpoints, functions with a backward of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from inductor_cpu.errors import UserError
from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.semantics.support import Tensor, check


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


def leaf_and_data() -> tuple[Tensor, Tensor]:
    return leaf(3, 4), torch.randn(3, 4)


def some_results_need_gradients(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y, y * 2, x.detach() + y, (x > 0), x.argmax(), x.long(), x.sum()


def no_grad_inside(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        z = x * y
        with torch.enable_grad():
            w = x * 3
    return z, w, x * z


def set_grad_enabled_inside(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.set_grad_enabled(False):
        z = x * y
    return z, x + z


def inference_mode_inside(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode():
        z = (x * y).sum()
    return x * 2, z.clone()


def requires_grad_inside(x: Tensor, y: Tensor) -> Tensor:
    return (x * 2 + (y * 1).detach()).sum(0)


def in_place_chain(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z[0].mul_(y[0])
    z.add_(y).sigmoid_()
    return z


def relu_in_place(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu_(x * y) + nn.functional.dropout(x, 0.5, training=False)


def view_results(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = x * y
    return z.t(), z[1:], x.view(-1), z


def result_that_overlaps(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (x * 1).unfold(1, 3, 1), y * 2


def unused_input(x: Tensor, y: Tensor) -> Tensor:
    return y * 2


def repeated(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * y
    return z, z


@pytest.mark.parametrize(
    "function",
    cases(
        [some_results_need_gradients, no_grad_inside, in_place_chain, view_results, result_that_overlaps],
        [set_grad_enabled_inside, inference_mode_inside, requires_grad_inside, relu_in_place, repeated],
    ),
)
def test_results_and_gradients(function: Callable[..., Any]) -> None:
    check(function, leaf_and_data, backward=True)


@pytest.mark.full
def test_input_without_a_part_in_the_result_has_no_gradient() -> None:
    check(unused_input, lambda: (leaf(3, 4), leaf(3, 4)), backward=True)


@pytest.mark.parametrize("mode", cases([torch.inference_mode], [torch.no_grad, torch.enable_grad]))
def test_call_under_a_mode(mode: Callable[[], Any]) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x + y, x.t(), y.add_(1)

    compiled, reports = compile_counted(function)
    results = []
    for call in (function, compiled):
        torch.manual_seed(0)
        x, y = leaf_and_data()
        with mode():
            results.append(call(x, y))
    for have, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(have, want)
        assert have.requires_grad == want.requires_grad
        assert have.is_inference() == want.is_inference()
    assert reports


def test_one_compiled_function_called_under_each_mode() -> None:
    compiled, reports = compile_counted(lambda x: x * 2 + 1)
    x = leaf(4)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            have, want = compiled(x), x * 2 + 1
        assert have.requires_grad == want.requires_grad
        assert have.is_inference() == want.is_inference()
        torch.testing.assert_close(have, want)
    assert [r.kind for r in reports][:2] == ["forward", "inference"]


def test_double_backward_raises_as_aot_autograd_does() -> None:
    errors = []
    for backend in ("aot_eager", "icpu"):
        torch._dynamo.reset()
        x = leaf(4)
        y = torch.compile(lambda x: (x * x).sin(), backend=backend)(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(gradient.sum(), x)
        errors.append((error.type, str(error.value)))
    assert errors[0] == errors[1]


@pytest.mark.full
def test_backward_twice_with_retain_graph() -> None:
    def run(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        x = torch.arange(1.0, 5.0).requires_grad_()
        y = function(x)
        y.sum().backward(retain_graph=True)
        assert x.grad is not None
        first = x.grad.clone()
        (y * 2).sum().backward()
        return [first, x.grad]

    function = lambda x: (x * x).exp()  # noqa: E731
    torch.testing.assert_close(run(compile_counted(function)[0]), run(function))


def test_backward_twice_without_retain_graph_is_the_error_of_eager_mode() -> None:
    y = compile_counted(lambda x: (x * x).exp())[0](leaf(4)).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.full
def test_gradients_accumulate() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * x).sum()

    compiled, _ = compile_counted(function)
    x, y = torch.ones(3).requires_grad_(), torch.ones(3).requires_grad_()
    for _ in range(3):
        compiled(x).backward()
        function(y).backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.full
def test_grad_inside_with_autograd_grad_breaks_the_graph_and_is_right() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x * x).sum()
        (g,) = torch.autograd.grad(y, x)
        return g * 2

    check(function, lambda: (leaf(4),), compiled=False)


# -- hooks -------------------------------------------------------------------------------------------------------------
def test_hook_on_an_input() -> None:
    def make() -> tuple[Tensor]:
        x = leaf(4)
        x.register_hook(lambda g: g * 10)
        return (x,)

    check(lambda x: (x * x).exp(), make, backward=True)


def test_hook_on_a_value_inside() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * x
        y.register_hook(lambda g: g * 10)
        return y.exp()

    check(function, lambda: (leaf(4),), backward=True)


@pytest.mark.full
def test_hook_on_a_result() -> None:
    compiled, _ = compile_counted(lambda x: x * x)
    x, seen = leaf(4), []
    y = compiled(x)
    y.register_hook(lambda g: seen.append(g) or g * 2)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 4 * x.detach())
    assert len(seen) == 1


@pytest.mark.parametrize("when", cases(["after the compile"], ["before the compile"]))
def test_module_hooks(when: str) -> None:
    def run(compiled: bool) -> tuple[list[str], list[Tensor]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        call = compile_counted(module)[0] if compiled else module
        x = torch.randn(2, 4)
        if when == "after the compile":
            call(x)
        seen: list[str] = []

        def before(m: nn.Module, args: Any) -> Any:
            seen.append("before")
            return (args[0] * 2,)

        def after(m: nn.Module, args: Any, out: Tensor) -> Tensor:
            seen.append("after")
            return out + 1

        def backward(m: nn.Module, grad_in: Any, grad_out: Any) -> None:
            seen.append("backward")

        module[0].register_forward_pre_hook(before)
        module[0].register_forward_hook(after)
        module[1].register_full_backward_hook(backward)
        y = call(x)
        y.sum().backward()
        return seen, [y.detach(), *(p.grad for p in module.parameters() if p.grad is not None)]

    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):  # else Dynamo does not look for new hooks
        have, want = run(True), run(False)
    torch.testing.assert_close(have[1], want[1], rtol=1e-5, atol=1e-6)
    assert have[0] == want[0]


@pytest.mark.full
def test_post_accumulate_gradient_hook() -> None:
    module = nn.Linear(3, 2)
    seen: list[Tensor] = []
    module.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    compile_counted(module)[0](torch.ones(4, 3)).sum().backward()
    torch.testing.assert_close(seen[0], torch.full((2, 3), 4.0))


# -- checkpoints -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reentrant", cases([False], [True]))
@pytest.mark.parametrize("outside", [False, True], ids=["inside the compiled function", "around it"])
def test_checkpoint(reentrant: bool, outside: bool) -> None:
    def block(x: Tensor) -> Tensor:
        return nn.functional.dropout((x * x).tanh().sin(), 0.5)

    def function(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=reentrant) * 2

    if not outside:
        # Under functionalized random numbers a recomputed dropout must draw what the forward drew.
        check(function, lambda: (leaf(64),), backward=True, compiled=not reentrant)
        return
    results = []
    for inner in (block, compile_counted(block)[0]):
        torch.manual_seed(3)
        x = leaf(64)
        y = checkpoint(inner, x, use_reentrant=reentrant)
        y.sum().backward()
        results.append((y.detach(), x.grad, torch.rand(2)))
    torch.testing.assert_close(results[1], results[0])


# -- a backward of one's own -------------------------------------------------------------------------------------------
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.scale * 100 + x, None


class Setup(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.exp(), x > 0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.saved_tensors[0] * 7


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * 2


@pytest.mark.parametrize(
    "function",
    [lambda x: Scaled.apply(x * 2, 3.0) + 1, lambda x: Setup.apply(x)[0] * 2, lambda x: Scaled.apply(x, 2.0).detach()],
    ids=["ctx", "setup_context", "detached"],
)
def test_autograd_function(function: Callable[[Tensor], Tensor]) -> None:
    check(function, lambda: (leaf(5),), backward=function(torch.ones(1, requires_grad=True)).requires_grad)


def test_autograd_function_that_writes_its_input() -> None:
    check(lambda x: InPlace.apply(x * 3), lambda: (leaf(5),), backward=True, compiled=False)


@pytest.mark.full
def test_gradient_scaling_and_anomaly_mode() -> None:
    with torch.autograd.set_detect_anomaly(True):
        check(lambda x: (x * x).log(), lambda: (leaf(5),), backward=True)


def test_saved_tensor_hooks_see_what_the_compiled_forward_saves() -> None:
    packed: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        packed.append(x)
        return x.clone()

    x = leaf(5)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = compile_counted(lambda x: (x * x).exp())[0](x)
    y.sum().backward()
    assert packed
    torch.testing.assert_close(x.grad, 2 * x.detach() * (x * x).exp().detach())


def test_forward_mode_over_a_compiled_function_is_an_error_and_no_lost_tangent() -> None:
    compiled, _ = compile_counted(lambda x: x * 2 + 1)
    x = torch.randn(4)
    with forward_ad.dual_level():
        torch.testing.assert_close(compiled(x), x * 2 + 1)
        with pytest.raises(UserError, match="forward-mode"):
            compiled(forward_ad.make_dual(x, torch.ones(4)))


@pytest.mark.full
def test_gradient_of_a_tensor_with_a_channels_last_weight() -> None:
    def make() -> tuple[Tensor, Tensor]:
        weight = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
        return torch.randn(2, 3, 8, 8), weight

    check(nn.functional.conv2d, make, backward=True, tolerance=1e-4)


def test_conjugated_gradient_of_view_as_complex() -> None:
    """The graph was traced for a gradient without the bit, and `view_as_real` refuses it."""

    def function(x: Tensor) -> Tensor:
        return torch.view_as_complex(x * 2)

    given = torch.randn(3, 4, dtype=torch.complex64).conj()
    gradients = []
    for call in (function, compile_counted(function)[0]):
        x = torch.ones(3, 4, 2, requires_grad=True)
        call(x).backward(given)
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
