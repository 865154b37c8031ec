"""Activations that are spelled out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.graph.harness import LINEAR, check
from tests.graph.test_convolution import DTYPES, Net

Tensor = torch.Tensor

FORMULAS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "silu": (lambda x: x * torch.sigmoid(x), "swish"),
    "silu, other order": (lambda x: torch.sigmoid(x) * x, "swish"),
    "silu by exp": (lambda x: x / (1 + torch.exp(-x)), "swish"),
    "sigmoid by exp": (lambda x: 1 / (1 + torch.exp(-x)), "sigmoid"),
    "leaky_relu by where": (lambda x: torch.where(x > 0, x, x * 0.2), "leaky_relu"),
    "leaky_relu by maximum": (lambda x: torch.maximum(0.2 * x, x), "leaky_relu"),
    "hardswish": (lambda x: x * functional.relu6(x + 3) / 6, "hardswish"),
    "hardswish, other grouping": (lambda x: x * (functional.relu6(x + 3.0) / 6.0), "hardswish"),
    "hardswish, clamp": (lambda x: x * (x + 3).clamp(0, 6) * (1 / 6), "hardswish"),
    "hardswish by hardsigmoid": (lambda x: x * functional.hardsigmoid(x), "hardswish"),
    "hardsigmoid": (lambda x: functional.relu6(3 + x) / 6, "hardsigmoid"),
    "relu": (lambda x: x.clamp(min=0), "relu"),
    "relu6": (lambda x: x.clamp_min(0).clamp_max(6), "hardtanh"),
    "relu6 of relu": (lambda x: torch.relu(x).clamp(max=6), "hardtanh"),
    "gelu": (lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), "gelu"),
    "gelu, other grouping": (lambda x: x * (0.5 * (1.0 + torch.erf(x * 0.70710678))), "gelu"),
    "gelu tanh": (
        lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
        "gelu",
    ),
    "gelu tanh by products": (
        lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))),
        "gelu",
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_formula_becomes_a_post_op(name: str, dtype: torch.dtype) -> None:
    formula, post_op = FORMULAS[name]
    passed = check(Net(nn.Linear(8, 16), formula), torch.randn(4, 8) * 3, dtype=dtype)
    assert passed.names() == [str(LINEAR)]
    assert passed.calls(LINEAR)[0].args[3] == post_op


@pytest.mark.parametrize("name", FORMULAS)
def test_formula_in_float32_between_casts_becomes_a_post_op(name: str) -> None:
    formula, post_op = FORMULAS[name]
    net = Net(nn.Linear(8, 16), lambda y: formula(y.float()).to(y.dtype))
    passed = check(net, torch.randn(4, 8) * 3, dtype=torch.bfloat16)
    assert passed.names() == [str(LINEAR)]
    assert passed.calls(LINEAR)[0].args[3] == post_op


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: x / (2 + torch.exp(-x)),
        lambda x: x / (1 + torch.exp(x)),
        lambda x: (x + 1) / (1 + torch.exp(-x)),
        lambda x: torch.where(x > 0.5, x, x * 0.2),
        lambda x: torch.where(x > 0, x * 0.2, x),
        lambda x: torch.maximum(x, x * 1.5),
        lambda x: torch.maximum(x, (y := x * 0.5)) + y,
        lambda x: x * torch.sigmoid(x * 1.702),
        lambda x: x * torch.sigmoid(x + 0.1),
        lambda x: x * functional.relu6(x + 3) / 5,
        lambda x: x * functional.relu6(x + 2) / 6,
        lambda x: x.relu() * torch.sigmoid(x),
        lambda x: 0.5 * x * (1 + torch.erf(x)),
        lambda x: 0.5 * x * (2 + torch.erf(x / math.sqrt(2))),
        lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.05 * x**3))),
        lambda x: x * (s := torch.sigmoid(x)) + s,
    ],
    ids=[
        "2 + exp",
        "exp(x)",
        "other numerator",
        "from 0.5",
        "slope of positives",
        "slope 1.5",
        "slope used",
        "scaled",
        "shifted",
        "by 5",
        "plus 2",
        "two inputs",
        "erf(x)",
        "2 + erf",
        "other cubic",
        "inner value used",
    ],
)
def test_near_formula_stays(formula: Callable[[Tensor], Tensor]) -> None:
    passed = check(Net(nn.Linear(8, 16), formula), torch.randn(4, 8) * 3)
    assert passed.calls(LINEAR)[0].args[3] == "none"
    assert "0 spelled-out activations" in passed.notes


def test_integers_keep_their_formula() -> None:
    class Integers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return x.clamp(min=0) * torch.sigmoid(x) * self.w

    passed = check(Integers(), torch.arange(-3, 3))
    assert "0 spelled-out" in passed.notes
