"""One training step: loss and every gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import timm
import torch
import transformers
from torch import nn
from torch._dynamo.utils import same

from tests.e2e.support import compile_counted

Loss = Callable[[nn.Module], torch.Tensor]


def resnet() -> tuple[nn.Module, Callable[[torch.dtype], Loss]]:
    """ResNet-18 with one block a stage. `make test-full` trains the whole one."""
    module = timm.models.ResNet(timm.models.resnet.BasicBlock, (1, 1, 1, 1), num_classes=10)
    image, target = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
    return module, lambda dtype: lambda m: nn.functional.cross_entropy(m(image.to(dtype)), target)


def bert() -> tuple[nn.Module, Callable[[torch.dtype], Loss]]:
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, vocab_size=512
    )
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    module = transformers.BertForMaskedLM(config)
    tokens, labels = torch.randint(0, 512, (2, 16)), torch.randint(0, 512, (2, 16))
    return module, lambda dtype: lambda m: m(input_ids=tokens, labels=labels).loss


def step(module: nn.Module, loss: Loss, function: nn.Module | None = None) -> dict[str, torch.Tensor]:
    """Loss, gradients by parameter and buffers after the step."""
    value = loss(module if function is None else function)
    value.backward()  # type: ignore[no-untyped-call]
    gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return {"loss": value.detach(), **gradients, **dict(module.named_buffers())}


@pytest.mark.parametrize("make", [resnet, bert])
def test_training_step_gives_eager_loss_gradients_and_buffers(
    make: Callable[[], tuple[nn.Module, Callable[[torch.dtype], Loss]]],
) -> None:
    module, loss = make()
    module.train()
    double = copy.deepcopy(module).double()
    ours = copy.deepcopy(module)
    compiled, reports = compile_counted(ours)
    actual = step(ours, loss(torch.float32), compiled)
    expected = step(module, loss(torch.float32))
    exact = step(double, loss(torch.float64))
    assert [r.kind for r in reports] == ["forward", "backward"]
    assert actual.keys() == expected.keys()
    wrong = [n for n in expected if not same(expected[n], actual[n], exact[n], tol=1e-3)]
    assert not wrong


def test_two_steps_with_an_optimizer_use_the_new_weights() -> None:
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))
        x = torch.randn(32, 8)
        run = compile_counted(module)[0] if compiled else module
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        trail = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            trail.append(loss.item())
        losses.append(trail)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[1][3] < losses[1][0]


def test_dropout_in_training_draws_what_eager_draws() -> None:
    module = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.25))
    x = torch.randn(16, 8)
    results = []
    for run in (module, compile_counted(module)[0]):
        torch.manual_seed(3)
        module.zero_grad()
        y = run(x)
        y.sum().backward()
        results.append((y.detach(), module[0].weight.grad.clone(), torch.rand(2)))
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_loads_that_become_equal_in_a_fused_kernel() -> None:
    """The columns of an outer product of a repeated number are one number to the gradient of the norm after it."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(torch.outer(x, x[:5]).select(0, -6), (5,), eps=0.01)

    x = torch.full((1,), 2.0, dtype=torch.float64).expand(6).detach().requires_grad_()
    mark = torch.arange(5.0, dtype=torch.float64)
    want, have = (torch.autograd.grad(f(x), x, mark) for f in (function, torch.compile(function, backend="icpu")))
    torch.testing.assert_close(have, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_optimizer_step_with_in_place_fused_multiplies_is_one_loop(dtype: torch.dtype) -> None:
    def step(weight: torch.Tensor, grad: torch.Tensor, square: torch.Tensor, beta: torch.Tensor) -> None:
        square.mul_(0.9).addcmul_(grad, grad, value=0.1)
        weight.addcdiv_(grad, square.sqrt() + 1e-8, value=-1e-3)
        weight.add_(grad, alpha=beta)

    inputs = tuple(torch.randn(40, 20).abs().to(dtype) for _ in range(3))
    ours, eager, exact = ([t.clone() for t in inputs] for _ in range(3))
    exact = [t.double() for t in exact]
    compiled, reports = compile_counted(step)
    compiled(*ours, torch.tensor(0.5))
    step(*eager, torch.tensor(0.5))
    step(*exact, torch.tensor(0.5, dtype=torch.float64))
    assert [r.extern_calls for r in reports] == [0]
    assert sum(len(r.kernels) for r in reports) == 1
    for mine, theirs, best in zip(ours, eager, exact, strict=True):
        assert (mine - best).abs().max() <= 2 * (theirs - best).abs().max() + torch.finfo(dtype).eps
