"""Random numbers follow eager's generator stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.nodes import Extern
from tests.lower.harness import check, lower

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(3, 5), (64, 70)])
def test_dropout_equals_eager_under_the_same_seed(shape: tuple[int, ...], p: float, dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, p) + F.dropout(x, p)

    check(fn, torch.randn(shape, dtype=dtype), calls=["bernoulli.p", "bernoulli.p"], seed=3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "strided"])
def test_native_dropout_gives_each_element_the_number_of_eager(layout: str, dtype: torch.dtype) -> None:
    whole = torch.randn(6, 10, dtype=dtype)
    x = {"contiguous": whole, "permuted": whole.t(), "strided": whole[:, ::2].t()}[layout]
    program = lower(lambda x: aten.native_dropout(x, 0.3, True)[0], x)
    torch.manual_seed(3)
    expected = F.dropout(x, 0.3)
    torch.manual_seed(3)
    torch.testing.assert_close(run(program, [x])[0], expected, rtol=0, atol=0, check_stride=True)


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (1.0, True), (0.5, False)])
def test_dropout_that_draws_nothing(p: float, train: bool) -> None:
    check(lambda x: F.dropout(x, p, train) + 1, torch.randn(4, 5), seed=3)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32], ids=str)
def test_gradient_of_dropout_of_other_numbers_is_left_to_aten(dtype: torch.dtype) -> None:
    check(lambda grad, mask: aten.native_dropout_backward(grad, mask, 2.0),
          torch.tensor([3, 0, 5]).to(dtype), torch.tensor([True, True, False]),
          calls=["native_dropout_backward.default"])  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradient_of_dropout_uses_the_same_noise(dtype: torch.dtype) -> None:
    x = torch.randn(64, 70, dtype=dtype)

    def eager(grad: torch.Tensor) -> torch.Tensor:
        leaf = torch.zeros_like(grad).requires_grad_()
        with torch.enable_grad():
            (result,) = torch.autograd.grad(F.dropout(leaf, 0.3), leaf, grad)
        return result

    def own(grad: torch.Tensor) -> torch.Tensor:
        mask = aten.native_dropout(torch.zeros_like(grad), 0.3, True)[1]
        return aten.native_dropout_backward(grad, mask, 1 / (1 - 0.3))

    from_program = lower(own, x)
    torch.manual_seed(3)
    expected = eager(x)
    torch.manual_seed(3)

    torch.testing.assert_close(run(from_program, [x])[0], expected, rtol=0, atol=0)


DRAWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rand": lambda x: x + torch.rand(4, 5),
    "randn": lambda x: x + torch.randn(4, 5),
    "rand_like": lambda x: x + torch.rand_like(x),
    "randn_like": lambda x: x + torch.randn_like(x),
    "randint": lambda x: x + torch.randint(0, 10, (4, 5)),
    "randperm": lambda x: torch.randperm(20).view(4, 5) + x,
    "bernoulli": lambda x: torch.bernoulli(x.abs().clamp(0, 1)),
    "uniform": lambda x: x.clone().uniform_(-1, 1),
    "normal": lambda x: x.clone().normal_(1, 2),
    "exponential": lambda x: x.clone().exponential_(),
    "multinomial": lambda x: torch.multinomial(x.abs(), 2),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_equal_eager_under_the_same_seed(name: str) -> None:
    x = torch.randn(4, 5)
    calls = [str(n.target).split(".", 1)[1] for n in lower(DRAWS[name], x).nodes if isinstance(n, Extern)]
    assert len(calls) == 1
    program = check(DRAWS[name], x, calls=calls, seed=3)
    drawn = [node for node in program.nodes if isinstance(node, Extern)]
    assert all(node.ordered and "generator stream" in node.reason for node in drawn)
