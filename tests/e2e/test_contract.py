"""What any function may do with tensors, and eager mode then promises: aliases, mutation, odd outputs, randomness."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import inductor_cpu
from tests.e2e.support import assert_like_eager, assert_same, compile_counted

Tensor = torch.Tensor


def test_output_is_a_view_of_an_input() -> None:
    compiled, _ = compile_counted(lambda x: (x.t(), x + 1))
    x = torch.randn(3, 4)
    view, _ = compiled(x)
    x.zero_()
    assert view.shape == (4, 3)
    assert not view.any()


def test_outputs_that_alias_each_other_stay_aliases() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return y, y[1:]

    whole, part = compile_counted(f)[0](torch.randn(3, 4))
    whole.zero_()
    assert not part.any()


def test_repeated_none_int_and_constant_outputs() -> None:
    def f(x: Tensor) -> tuple[Any, ...]:
        y = x * 2
        return y, None, y, 3, x.shape[0], torch.tensor([1.0, 2.0]), "text"

    assert_like_eager(f, torch.randn(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.add_(1),
        lambda x: x[1:].mul_(2).sum(),
        lambda x: (x.t().copy_(torch.ones(4, 3)), x + 1),
        lambda x: torch.sin(x, out=x),
        lambda x: functional.relu(x, inplace=True) + x,
    ],
    ids=["add_", "slice", "transposed copy_", "out", "relu_"],
)
def test_input_mutated_in_place(f: Callable[[Tensor], Any]) -> None:
    assert_like_eager(f, torch.randn(3, 4))


def test_two_views_of_one_storage_one_mutated() -> None:
    def run(f: Callable[..., Any]) -> Any:
        base = torch.arange(8.0)
        out = f(base[:6], base[2:])
        return out, base

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return a.sum() + b.sum()

    assert_same(run(compile_counted(f)[0]), run(f))


@torch.no_grad()
def test_running_statistics_of_batch_norm_move_as_in_eager_mode() -> None:
    eager = torch.nn.BatchNorm2d(4)
    ours = copy.deepcopy(eager)
    compiled, _ = compile_counted(ours)
    for _ in range(3):
        x = torch.randn(2, 4, 5, 5)
        torch.testing.assert_close(compiled(x), eager(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.state_dict(), eager.state_dict(), atol=1e-6, rtol=1e-5)
    assert eager.running_mean is not None
    assert eager.running_mean.any()


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(3.0),
        torch.empty(0),
        torch.empty(2, 0, 3),
        torch.randn(4, 6).t(),
        torch.randn(4, 6)[:, ::2],
        torch.randn(12)[1:],
        torch.randn(1).expand(5),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40]),
    ],
    ids=["0-dim", "empty", "zero-sized", "transposed", "strided", "offset", "expanded", "channels last", "special"],
)
def test_any_input_layout(x: Tensor) -> None:
    assert_like_eager(lambda x: ((x * 2 + 1).tanh(), x.sum(), torch.where(x > 0, x, -x)), x, atol=1e-5, rtol=1e-5)


DTYPES = [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def test_arithmetic_in_every_dtype() -> None:
    def arithmetic(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x + y, x * y - 3, x.abs().float().sqrt(), x > y, x.sum(0), x.amax(1)

    # Of numbers of columns that differ, so that no loop serves two dtypes.
    sizes = list(enumerate(DTYPES, 37))
    xs, ys = ([(torch.randn(*rows, n) * 50).to(dtype) for n, dtype in sizes] for rows in ((5,), ()))
    assert_like_eager(lambda xs, ys: [arithmetic(x, y) for x, y in zip(xs, ys, strict=True)], xs, ys)


def test_complex_input_and_intermediate() -> None:
    x = torch.randn(4, 5, dtype=torch.complex64)
    assert_like_eager(
        lambda x: ((x * 1j + 2).abs(), x.conj() @ x.t(), torch.fft.fft(x.real + 1)), x, atol=1e-4, rtol=1e-4
    )


def test_sparse_input_and_intermediate_give_eager_results() -> None:
    def f(s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp() + 1
        return torch.sparse.mm(s, y), torch.sparse.mm(y.to_sparse(), x)

    x = torch.rand(4, 4)
    args = (x.relu().to_sparse(), x)
    assert_same(compile_counted(f)[0](*args), f(*args))


def test_autocast_region() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return functional.gelu(x @ w).float().softmax(-1)

    assert_like_eager(f, torch.randn(8, 16), torch.randn(16, 16), atol=2e-2, rtol=2e-2)


def test_graph_break_in_the_middle() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * x.shape[0] if y.sum() > 0 else y - 1

    assert_like_eager(f, torch.randn(6))


def test_explain_of_a_broken_graph_names_the_break_and_the_kernels() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return torch.special.bessel_j0(y) * 2

    explained = inductor_cpu.explain(f, torch.randn(64))
    assert len(explained.graphs) == 2
    assert explained.kernels
    assert any("bessel" in e.op and e.reason for e in explained.externs)
    assert explained.breaks


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (torch.rand_like(x), x + torch.randn_like(x), torch.randint(0, 9, (5,))),
        lambda x: functional.dropout(x, 0.5) + functional.dropout(x, 0.1),
        lambda x: (x.bernoulli(0.3), torch.randperm(7), torch.empty(3).normal_()),
    ],
    ids=["rand", "dropout", "others"],
)
def test_random_numbers_are_those_of_eager_mode_in_order(f: Callable[[Tensor], Any]) -> None:
    assert_like_eager(f, torch.rand(33))


def test_generator_goes_on_where_eager_mode_would() -> None:
    def f(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    after = []
    for run in (f, compile_counted(f)[0]):
        torch.manual_seed(5)
        run(torch.zeros(17))
        after.append(torch.rand(4))
    torch.testing.assert_close(after[1], after[0], rtol=0, atol=0)


def test_threads_that_call_one_compiled_function_at_once() -> None:
    compiled, _ = compile_counted(lambda x: (x.softmax(-1) * 3 + x.sum(-1, keepdim=True)).sin())
    inputs = [torch.randn(64, 129) for _ in range(8)]
    expected = [(x.softmax(-1) * 3 + x.sum(-1, keepdim=True)).sin() for x in inputs]
    compiled(inputs[0])
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                torch.testing.assert_close(compiled(inputs[number]), expected[number], atol=1e-5, rtol=1e-4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("threads", [1, 2])
def test_result_with_another_number_of_threads_set_after_the_compile(threads: int) -> None:
    compiled, _ = compile_counted(lambda x: (x * 2).sum(-1) + x.amax())
    x = torch.randn(300, 500)
    before = torch.get_num_threads()
    compiled(x)
    torch.set_num_threads(threads)
    try:
        torch.testing.assert_close(compiled(x), (x * 2).sum(-1) + x.amax(), atol=1e-4, rtol=1e-5)
    finally:
        torch.set_num_threads(before)


def test_higher_order_condition() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,)) * 2

    assert_like_eager(f, torch.ones(5))
    assert_like_eager(f, -torch.ones(5))


def test_inference_mode() -> None:
    with torch.inference_mode():
        assert_like_eager(lambda x: x.exp().cumsum(0) + 1, torch.randn(5))


def test_an_index_out_of_range_raises_the_type_of_eager() -> None:
    """The gather that torch makes of a loss raises what the loss raises, a gather of the program something else."""
    x, index = torch.randn(4, 3), torch.tensor([0, 3, 1, 2])
    with torch.no_grad(), pytest.raises(IndexError, match="out of range"):
        torch.compile(torch.nn.functional.cross_entropy, backend="icpu")(x, index)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.compile(lambda x, i: x.gather(1, i), backend="icpu")(x, index[:, None])


REFUSED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "no probability": (functional.binary_cross_entropy, (torch.tensor([0.5, 1.5]), torch.ones(2))),
    "NaN for a probability": (functional.binary_cross_entropy, (torch.tensor([torch.nan, 0.5]), torch.ones(2))),
    "no probability as target": (functional.binary_cross_entropy, (torch.rand(40), -torch.ones(40))),
    "a number too large": (lambda x, n: x.masked_fill(x > 0, n), (torch.ones(20, dtype=torch.int8), torch.tensor(300))),
    "in a product's loops": (
        lambda x, w, n: (x @ w).masked_fill(x[:, :1] > 0, n),
        (torch.ones(40, 64, dtype=torch.float16), torch.ones(64, 64, dtype=torch.float16), torch.tensor(1e6)),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_eager_refuses_are_an_error(name: str) -> None:
    function, arguments = REFUSED[name]
    with pytest.raises(RuntimeError):
        function(*arguments)
    with pytest.raises(RuntimeError, match="out of range in"):
        torch.compile(function, backend="icpu")(*arguments)


def test_a_loss_of_probabilities_and_its_gradient() -> None:
    def loss(x: Tensor, target: Tensor, weight: Tensor, reduction: str) -> Tensor:
        value = functional.binary_cross_entropy(x, target, weight, reduction=reduction)
        return torch.autograd.grad(value.sum(), x)[0] + value

    arguments = (torch.rand(3, 7, requires_grad=True), torch.rand(3, 7), torch.rand(7))
    assert_like_eager(lambda *args: [loss(*args, reduction) for reduction in ("none", "mean")], *arguments)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x - (x > 0), torch.randn(5)),
        (lambda x: x - True, torch.arange(5)),
        (lambda x: torch.argmax(x), torch.ones(5, dtype=torch.bool)),
        (lambda x: torch.argmin(x, 0), torch.ones(5, 2, dtype=torch.bool)),
        (lambda x: torch.var(x), torch.arange(6)),
        (lambda x: torch.std(x, 0), torch.ones(3, 2, dtype=torch.bool)),
        (lambda x: torch.pow(x, 300), torch.ones(2, dtype=torch.int8)),
    ],
    ids=["sub of bools", "sub of True", "argmax", "argmin", "var", "std", "pow"],
)
def test_what_eager_refuses_raises_the_same_error(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with pytest.raises(RuntimeError) as eager:
        function(x)
    compiled, _ = compile_counted(function)
    with pytest.raises(RuntimeError, match=re.escape(str(eager.value).split("\n", maxsplit=1)[0][:40])):
        compiled(x)


def test_inputs_beside_an_operator_with_effects_are_not_taken_for_weights() -> None:
    weight = torch.nn.Linear(16, 16, bias=False).requires_grad_(False).weight

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return weight.inverse().sum() + (x.exp() + 1).cumsum(0), x + 1

    compiled, _ = compile_counted(f)
    with torch.inference_mode():
        x = torch.randn(16, 16)
        for _ in range(3):
            x.copy_(torch.randn(16, 16))
            for result, wanted in zip(compiled(x), f(x), strict=True):
                torch.testing.assert_close(result, wanted, rtol=1e-3, atol=1e-3)
