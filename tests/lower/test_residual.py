"""Convolutions that add into the memory of their other operand, and those that must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.graph.harness import TOLERANCES, skip_unless_supported

Tensor = torch.Tensor


class Block(nn.Module):
    """Two convolutions on a first one, whose results meet in a sum, and a function of all."""

    def __init__(self, then: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.a, self.b = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.then = then

    def forward(self, x: Tensor) -> Any:
        y = torch.relu(self.first(x))
        return self.then(y, self.a(y), self.b)


def residual(y: Tensor, a: Tensor, b: Callable[[Tensor], Tensor]) -> Any:
    return torch.relu(b(torch.relu(a)) + y)


UPDATES: dict[str, Callable[..., Any]] = {
    "an earlier convolution": residual,
    "a pointwise result": lambda y, a, b: torch.relu(b(torch.relu(a)) + torch.sin(y)),
    "read before": lambda y, a, b: (torch.cos(y) + 1, b(a) + y),
    "concatenated": lambda y, a, b: torch.cat([b(a) + y, a], 1),
    "concatenated pointwise": lambda y, a, b: torch.cat([b(a) + torch.sin(y), a], 1) + 1,
    "then pointwise": lambda y, a, b: torch.sin(b(a) + y) * 2,
    "then a sum again": lambda y, a, b: b(torch.tanh(b(a) + y)) + a,
}

KEEPS: dict[str, Callable[..., Any]] = {
    "read after": lambda y, a, b: (b(torch.relu(a)) + y) * torch.sin(y * (b(a).sum() + 1)),
    "a result": lambda y, a, b: (b(torch.relu(a)) + y, y),
    "a view of it is a result": lambda y, a, b: (b(torch.relu(a)) + y, y.flatten(1)[:, :4]),
    "convolved": lambda y, a, b: b(y) + y,
    "other operation": lambda y, a, b: b(torch.relu(a)) * y,
}


@torch.no_grad()
def run(then: Callable[..., Any], dtype: torch.dtype, dynamic: bool | None) -> str:
    """Compare with float64 and give the report's text."""
    skip_unless_supported(dtype)
    net = Block(then).eval()
    inputs = [torch.randn(batch, 8, 7, 7).to(dtype) for batch in ((2, 3, 2) if dynamic else (2, 2))]
    exact = [net.double()(x.double()) for x in inputs]
    compiled, reports = compile_counted(net.to(dtype), dynamic=dynamic)
    for x, expected in zip(inputs, exact, strict=True):
        before, actual = x.clone(), compiled(x)
        assert torch.equal(x, before)
        flat = torch.utils._pytree.tree_leaves
        for a, e in zip(flat(actual), flat(expected), strict=True):
            scale = max(1.0, float(e.abs().max()))
            torch.testing.assert_close(a.double(), e, atol=3 * TOLERANCES[dtype] * scale, rtol=3 * TOLERANCES[dtype])
    return str(reports[0])


#: Each in every dtype and with both kinds of sizes, which have nothing to do with each other: static or dynamic in
#: turns. (Not every CPU has those of low precision.)
RUNS = [
    (name, dtype, True if (number + turn) % 2 else None)
    for number, name in enumerate(UPDATES)
    for turn, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16))
]
MORE = [(name, torch.float32, None if number % 2 else True) for number, name in enumerate(UPDATES)]


@pytest.mark.parametrize(
    ("name", "dtype", "dynamic"),
    cases(RUNS, MORE),
    ids=lambda value: {None: "static", True: "dynamic"}.get(value, str(value)),
)
def test_sum_is_written_into_an_operand_that_nobody_reads_later(
    name: str, dtype: torch.dtype, dynamic: bool | None
) -> None:
    text = run(UPDATES[name], dtype, dynamic)
    assert "_convolution_pointwise_." in text or dtype == torch.bfloat16  # which a kernel of ours may compute


@pytest.mark.parametrize("name", KEEPS)
def test_operand_that_is_needed_is_kept(name: str) -> None:
    assert "_convolution_pointwise_." not in run(KEEPS[name], torch.float32, None)


@torch.no_grad()
def test_input_is_not_written() -> None:
    net, x, y = nn.Conv2d(8, 8, 3, padding=1).eval(), torch.randn(2, 8, 7, 7), torch.randn(2, 8, 7, 7)
    x, y = (t.to(memory_format=torch.channels_last) for t in (x, y))
    compiled, reports = compile_counted(lambda x, y: net(x) + y)
    before = y.clone()
    torch.testing.assert_close(compiled(x, y), net(x) + y, atol=1e-5, rtol=1e-5)
    assert torch.equal(y, before)
    assert "_convolution_pointwise_." not in str(reports[0])
