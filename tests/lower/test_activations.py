"""Activation functions and their gradients against eager, and how near they are to the exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.ir.loop_nest import LoopNest, Scalar
from tests.lower.harness import check, lower
from tests.lower.samples import FLOATS, check_each, sample

aten = torch.ops.aten

ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 1.5),
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": lambda x: F.elu(x, 1.3),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "softplus": lambda x: F.softplus(x, 2, 5),
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.2, dtype=x.dtype)),
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "glu": lambda x: F.glu(x, 1),
    "logit": lambda x: torch.logit(x, 0.1),
    "sinc": torch.sinc,
    "entr": torch.special.entr,
    "ndtr": torch.special.ndtr,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_equals_eager(name: str) -> None:
    xs = [sample(dtype) for dtype in FLOATS]
    if name in ("gelu", "gelu_tanh"):
        xs = [torch.where(x.isinf(), 9.0, x) for x in xs]  # eager gives NaN for infinities when it calls oneDNN
    check_each(ACTIVATIONS[name], *([x] for x in xs), exact=False)


BACKWARDS: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": aten.gelu_backward,
    "gelu_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "mish": aten.mish_backward,
    "softplus": lambda g, x: aten.softplus_backward(g, x, 2, 5),
    "log_sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())),
    "hardswish": aten.hardswish_backward,
    "hardsigmoid": aten.hardsigmoid_backward,
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "elu": lambda g, x: aten.elu_backward(g, 1.3, 1, 1, False, x),
    "elu_of_result": lambda g, x: aten.elu_backward(g, 1.3, 1, 1, True, x),
    "logit": lambda g, x: aten.logit_backward(g, x, 0.1),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_gradient_of_an_activation_equals_eager(name: str) -> None:
    operands = [[sample(dtype, seed)[1:].contiguous() for seed in (7, 0)] for dtype in FLOATS]
    check_each(BACKWARDS[name], *operands, exact=False)


def _units(have: torch.Tensor, exact: torch.Tensor, x: torch.Tensor) -> float:
    """The largest error in last places of the result or of x, whichever are larger."""
    place = torch.maximum(exact.abs(), x.double().abs()).clamp_min(1e-30) * torch.finfo(torch.float32).eps / 2
    return float(((have.double() - exact).abs() / place).max())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "mish"])
def test_activations_are_as_near_to_the_exact_ones_as_eager_s_everywhere(name: str, backward: bool) -> None:
    small = torch.logspace(-30, 2, 20001)
    x = torch.cat([torch.linspace(-30, 30, 200001), small, -small])

    def function(x: torch.Tensor) -> torch.Tensor:
        return BACKWARDS[name](torch.ones_like(x), x) if backward else ACTIVATIONS[name](x)

    exact = function(x.double())
    have = torch.compile(function, backend="icpu")(x)
    assert _units(have, exact, x) <= _units(function(x), exact, x) + 1


@pytest.mark.parametrize("name", BACKWARDS)
def test_gradient_of_an_activation_at_nan_equals_that_of_eager_in_vectors(name: str) -> None:
    check(BACKWARDS[name], torch.ones(64), torch.full((64,), math.nan))


def test_gradient_of_logit_with_a_negative_eps_is_that_without() -> None:
    check(lambda g, x: aten.logit_backward(g, x, -0.1), *(sample(torch.float32, seed)[1:] for seed in (0, 1)))


@pytest.mark.parametrize(
    ("dtype", "ops"),
    [
        (torch.float32, {"gelu_slope", "mul"}),
        (torch.bfloat16, {"low_gelu_slope", "mul"}),
        (torch.float16, {"low_gelu_slope", "mul"}),
        (torch.float64, {"erf", "exp", "add", "mul"}),
    ],
)
def test_the_gradient_of_gelu_has_the_bits_that_the_result_keeps(dtype: torch.dtype, ops: set[str]) -> None:
    program = lower(aten.gelu_backward, *(torch.randn(19).to(dtype) for _ in range(2)))
    bodies = [nest.body for nest in program.nodes if isinstance(nest, LoopNest)]
    assert {i.op for body in bodies for i in body if isinstance(i, Scalar)} == ops
