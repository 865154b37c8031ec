"""Graphs of quantization: linears of dequantized values as products of integers, and the operators themselves."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators
from torch import nn

import inductor_cpu
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import detect
from tests.cases import in_turns

ops = torch.ops.quantized_decomposed

INTEGERS = {row.dtype for name, row in MICRO_KERNELS.items() if name in usable_micro_kernels(detect())}
needs_integers = pytest.mark.skipif(
    not {torch.uint8, torch.int8} <= INTEGERS, reason="this CPU has no dot products of 8-bit integers"
)

DEPTH, COLUMNS = 70, 50
LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}

#: The zero point of the values, those of the weight, the axis of its scales, and whether there is a bias.
NUMBERS = [
    (0, "none", 0, True),
    (7, "zero", 0, True),
    (7, "some", 0, True),
    (0, "some", 0, False),
    (7, "none", None, False),
]


class Linear(nn.Module):
    """What PT2E makes of a linear layer. zeros: the zero points of the weight; axis: of its scales, None for one."""

    def __init__(
        self,
        dtype: torch.dtype,
        zero: int,
        zeros: str = "none",
        axis: int | None = 0,
        bias: bool = True,
        then: str = "",
    ) -> None:
        super().__init__()
        self.dtype, self.zero, self.zeros, self.axis, self.then = dtype, zero, zeros, axis, then
        channels = COLUMNS if axis == 0 else DEPTH
        self.register_buffer("weight", torch.randint(-128, 128, (COLUMNS, DEPTH), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(channels) * 0.01 + 0.001)
        points = torch.zeros(channels) if zeros == "zero" else torch.randint(-20, 20, (channels,))
        self.register_buffer("points", None if zeros == "none" else points.long())
        self.register_buffer("bias", torch.randn(COLUMNS) if bias else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = ops.dequantize_per_tensor(x, 0.02, self.zero, *LIMITS[self.dtype], self.dtype)
        if self.axis is None:
            weight = ops.dequantize_per_tensor(self.weight, 0.003, 0, -128, 127, torch.int8)
        else:
            limits = (self.axis, -128, 127, torch.int8)
            weight = ops.dequantize_per_channel(self.weight, self.scales, self.points, *limits)
        y = nn.functional.linear(x, weight, self.bias)
        if self.then:
            y = ops.quantize_per_tensor(torch.relu(y), 0.05, 3, 0, 255, torch.uint8)
        return ops.dequantize_per_tensor(y, 0.05, 3, 0, 255, torch.uint8) if self.then == "both" else y

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """The linear in float64."""
        if self.axis is None:
            weight = self.weight.double() * 0.003
        else:
            shape = (-1, 1) if self.axis == 0 else (1, -1)
            zeros = 0 if self.points is None else self.points.double().view(shape)
            weight = (self.weight.double() - zeros) * self.scales.double().view(shape)
        y = (x.double() - self.zero) * 0.02 @ weight.t()
        return y if self.bias is None else y + self.bias


def inputs(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    low, high = LIMITS[dtype]
    return torch.randint(low, high + 1, sizes, dtype=dtype)


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize(("numbers", "dtype"), in_turns(NUMBERS, LIMITS), ids=str)
def test_a_linear_of_dequantized_values_is_a_product_of_integers(
    numbers: tuple[int, str, int | None, bool], dtype: torch.dtype
) -> None:
    zero, zeros, axis, bias = numbers
    module = Linear(dtype, zero, zeros, axis, bias)
    x = inputs(dtype, 3, 5, DEPTH)
    explained = inductor_cpu.explain(module, x)
    assert f"{DEPTH}x{COLUMNS} {str(dtype).removeprefix('torch.')}" in str(explained)
    assert explained.extern_calls == 0
    torch._dynamo.reset()
    result, exact = torch.compile(module, backend="icpu")(x), module.exact(x)
    assert result.shape == exact.shape
    assert error(result, exact) <= error(module(x), exact) + 1e-8


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize("then", ["quantize", "both"])
def test_quantize_joins_the_product(then: str) -> None:
    module, x = Linear(torch.uint8, 7, then=then), inputs(torch.uint8, 40, DEPTH)
    assert len(inductor_cpu.explain(module, x).kernels) == 1
    torch._dynamo.reset()
    result = torch.compile(module, backend="icpu")(x)
    steps = module.exact(x).relu() / 0.05
    exact = (steps.round() + 3).clamp(0, 255)
    if then == "both":
        result = result / 0.05 + 3
    clear = (steps - steps.floor() - 0.5).abs() > 1e-4
    torch.testing.assert_close(result[clear].double(), exact[clear], rtol=1e-6, atol=1e-6)
    assert (result.double() - exact).abs().max() <= 1.001


@torch.no_grad()
def test_a_scale_for_each_depth_stays_a_product_of_floats() -> None:
    module, x = Linear(torch.uint8, 7, axis=1), inputs(torch.uint8, 9, DEPTH)
    assert "uint8" not in str(inductor_cpu.explain(module, x)).partition("linear ")[2]
    torch._dynamo.reset()
    exact = module.exact(x)
    assert error(torch.compile(module, backend="icpu")(x), exact) <= 1.2 * error(module(x), exact) + 1e-7


@torch.no_grad()
def test_a_weight_that_is_no_constant_stays_a_product_of_floats() -> None:
    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = ops.dequantize_per_tensor(x, 0.02, 3, 0, 255, torch.uint8)
        return x @ ops.dequantize_per_tensor(weight, 0.01, 0, -128, 127, torch.int8).t()

    x, weight = inputs(torch.uint8, 9, DEPTH), inputs(torch.int8, COLUMNS, DEPTH)
    result = torch.compile(product, backend="icpu")(x, weight)
    torch.testing.assert_close(result, product(x, weight))


@pytest.mark.parametrize(
    ("numbers", "dtype"), in_turns(product([False, True], [11, 0]), [torch.float32, torch.bfloat16]), ids=str
)
def test_quantize_and_dequantize_give_the_bits_of_eager(numbers: tuple[bool, int], dtype: torch.dtype) -> None:
    relu, zero = numbers

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x * 2) if relu else x * 2
        y = ops.quantize_per_tensor(y, 0.037, zero, 0, 255, torch.uint8)
        return y, ops.dequantize_per_tensor(y, 0.037, zero, 0, 255, torch.uint8) + 1

    extremes = torch.tensor([1e9, -1e9, torch.inf, -torch.inf])
    x = torch.cat([torch.randn(1000) * 3, torch.arange(-50, 50) * 0.037 / 4, extremes]).to(dtype)
    assert inductor_cpu.explain(both, x).extern_calls == 0
    torch._dynamo.reset()
    assert all(map(torch.equal, torch.compile(both, backend="icpu")(x), both(x)))
