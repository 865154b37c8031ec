"""Graphs of quantization: convolutions of dequantized values as products of integers over windows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators
from torch import nn
from torch.nn import functional as F

from inductor_cpu.errors import UserError
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import detect
from tests.cases import in_turns
from tests.e2e.support import compile_counted

ops = torch.ops.quantized_decomposed

INTEGERS = {row.dtype for name, row in MICRO_KERNELS.items() if name in usable_micro_kernels(detect())}
needs_integers = pytest.mark.skipif(
    not {torch.uint8, torch.int8} <= INTEGERS, reason="this CPU has no dot products of 8-bit integers"
)

LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
SCALE, OF_ONE_WEIGHT = 0.02, 0.003

#: channels, columns, (window), (stride, padding, dilation), (batch, height, width)
WINDOWS = {
    "1x1": (64, 40, (1, 1), (1, 0, 1), (2, 7, 9)),
    "1x1 with a stride": (64, 50, (1, 1), (2, 0, 1), (1, 14, 13)),
    "1x1 padded": (40, 32, (1, 1), (1, 1, 1), (2, 5, 6)),
    "3x3": (32, 64, (3, 3), (1, 1, 1), (2, 14, 13)),
    "3x3 with a stride": (37, 49, (3, 3), (2, 1, 1), (2, 15, 17)),
    "dilated": (24, 32, (3, 3), (1, 2, 2), (2, 12, 9)),
    "7x7 of an image": (3, 64, (7, 7), (2, 3, 1), (1, 30, 40)),
    "larger than the image": (33, 32, (5, 5), (1, 2, 1), (1, 2, 3)),
    "in parts of the depth": (300, 64, (3, 3), (1, 1, 1), (1, 9, 20)),
    "other numbers down than across": (32, 48, (5, 3), ((2, 1), (1, 3), (2, 1)), (2, 19, 18)),
}


class Convolution(nn.Module):
    """What PT2E makes of a convolution. points: the zero points of the weight; single: one scale for all of it."""

    def __init__(
        self,
        name: str,
        dtype: torch.dtype,
        zero: int,
        points: torch.Tensor | None = None,
        single: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        channels, columns, window, self.how, _ = WINDOWS[name]
        self.dtype, self.zero, self.single = dtype, zero, single
        self.register_buffer("weight", torch.randint(-128, 128, (columns, channels, *window), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(columns) * 0.01 + 0.001)
        self.register_buffer("points", points)
        self.register_buffer("bias", torch.randn(columns) if bias else None)

    def dequantized(self, x: torch.Tensor) -> torch.Tensor:
        return ops.dequantize_per_tensor(x, SCALE, self.zero, *LIMITS[self.dtype], self.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.single:
            weight = ops.dequantize_per_tensor(self.weight, OF_ONE_WEIGHT, 0, -128, 127, torch.int8)
        else:
            limits = (0, -128, 127, torch.int8)
            weight = ops.dequantize_per_channel(self.weight, self.scales, self.points, *limits)
        return F.conv2d(self.dequantized(x), weight, self.bias, *self.how)

    def expected(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of products of integers, exactly, and what follows it in float32."""
        total = F.conv2d(x.double() - self.zero, self.weight.double(), None, *self.how)
        scales = SCALE * OF_ONE_WEIGHT if self.single else (self.scales * SCALE)[:, None, None]
        y = total.float() * scales
        return y if self.bias is None else y + self.bias[:, None, None]

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution in float64."""
        shape = (-1, 1, 1, 1)
        points = 0 if self.points is None else self.points.double().view(shape)
        weight = (self.weight.double() - points) * self.scales.double().view(shape)
        y = F.conv2d((x.double() - self.zero) * SCALE, weight, None, *self.how)
        return y if self.bias is None else y + self.bias.double()[:, None, None]


def image(name: str, dtype: torch.dtype) -> torch.Tensor:
    batch, *sizes = WINDOWS[name][4]
    return random_bytes(dtype, batch, WINDOWS[name][0], *sizes)


def random_bytes(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    low, high = LIMITS[dtype]
    x = torch.randint(low, high + 1, sizes, dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize(("name", "dtype"), in_turns(WINDOWS, LIMITS), ids=str)
def test_a_convolution_of_dequantized_values_is_a_product_of_integers(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Convolution(name, dtype, zero=LIMITS[dtype][0] + 90)
    x = image(name, dtype)
    compiled, reports = compile_counted(module)
    result = compiled(x)
    assert [(len(report.kernels), report.extern_calls) for report in reports] == [(1, 0)]
    assert torch.equal(result, module.expected(x))
    assert result.stride() == module(x).stride()
    assert error(result, module.exact(x)) <= error(module(x), module.exact(x)) + 1e-8


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize(
    ("zero", "single", "bias"), [(0, False, True), (0, True, False), (255, True, True), (255, False, False)]
)
def test_scales_zero_points_and_biases_of_any_kind_are_exact(zero: int, single: bool, bias: bool) -> None:
    torch.manual_seed(0)
    module = Convolution("3x3", torch.uint8, zero, single=single, bias=bias)
    x = image("3x3", torch.uint8)
    assert torch.equal(torch.compile(module, backend="icpu")(x), module.expected(x))


@needs_integers
@torch.no_grad()
def test_an_image_that_is_not_channels_last_becomes_so() -> None:
    torch.manual_seed(0)
    module, x = Convolution("3x3", torch.uint8, 7), image("3x3", torch.uint8).contiguous()
    result = torch.compile(module, backend="icpu")(x)
    assert torch.equal(result, module.expected(x))
    assert result.is_contiguous()


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize("name", ["3x3 with a stride", "1x1"])
def test_a_convolution_of_integers_serves_any_batch_and_image(name: str) -> None:
    torch.manual_seed(0)
    module = Convolution(name, torch.uint8, 100)
    compiled, reports = compile_counted(module, dynamic=True)
    for batch, height in ((2, 8), (1, 9), (3, 16)):
        x = random_bytes(torch.uint8, batch, WINDOWS[name][0], height, height + 1)
        assert torch.equal(compiled(x), module.expected(x))
    assert not any(report.extern_calls for report in reports)


class Block(nn.Module):
    """Two convolutions, a batch norm, a residual, activations; bytes in, bytes out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Convolution("3x3", torch.uint8, 100)
        self.second = Convolution("1x1", torch.uint8, 3)
        self.norm = nn.BatchNorm2d(40)
        nn.init.normal_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        y = ops.quantize_per_tensor(torch.relu(self.first(x)), 0.4, 3, 0, 255, torch.uint8)
        y = self.norm(self.second(y)) + ops.dequantize_per_tensor(other, 0.03, 128, 0, 255, torch.uint8)
        return ops.quantize_per_tensor(torch.relu(y), 0.05, 0, 0, 255, torch.uint8)


@needs_integers
@torch.no_grad()
def test_batch_norm_residual_activation_and_quantize_join_the_convolution() -> None:
    torch.manual_seed(0)
    module = Block().eval().requires_grad_(False)
    x, other = image("3x3", torch.uint8), random_bytes(torch.uint8, 2, 40, 14, 13)
    compiled, reports = compile_counted(module)
    result = compiled(x, other)
    (report,) = reports
    assert report.extern_calls == 0
    assert len(report.kernels) == 3  # one has the norm's factors for each channel only
    # The same integers but where a float lies on the border of two, within the error of its few operations.
    differ = (result.int() - module(x, other).int()).abs()
    assert differ.max() <= 1
    assert (differ > 0).double().mean() < 1e-3


@torch.no_grad()
@pytest.mark.parametrize("then", ["pointwise", "grouped", "transposed"])
def test_what_is_no_product_over_windows_stays_one_of_floats(then: str) -> None:
    torch.manual_seed(0)
    weight = torch.randint(-128, 128, (16, 16, 3, 3), dtype=torch.int8)

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight[:, :8] if then == "grouped" else weight)

        def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            x = ops.dequantize_per_tensor(x, 0.02, 3, 0, 255, torch.uint8)
            used = given if then == "pointwise" else self.weight
            wide = ops.dequantize_per_tensor(used, 0.01, 0, -128, 127, torch.int8)
            if then == "transposed":
                return F.conv_transpose2d(x, wide, padding=1)
            return F.conv2d(x, wide, padding=1, groups=2 if then == "grouped" else 1)

    module, x = Other(), random_bytes(torch.uint8, 2, 16, 9, 8)
    result = torch.compile(module, backend="icpu")(x, weight)
    torch.testing.assert_close(result, module(x, weight), rtol=1e-5, atol=1e-4)


class WithTensor(nn.Module):
    """A zero point that is a tensor."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding
        self.register_buffer("weight", torch.randint(-128, 128, (32, 32, 3, 3), dtype=torch.int8))

    def forward(self, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        wide = ops.dequantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        weight = ops.dequantize_per_tensor(self.weight, 0.01, 0, -128, 127, torch.int8)
        return F.conv2d(wide, weight, padding=self.padding)


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize("padding", [0, 1])
def test_a_zero_point_that_is_a_tensor_needs_no_constant_unless_it_pads(padding: int) -> None:
    torch.manual_seed(0)
    module, x = WithTensor(padding), random_bytes(torch.uint8, 2, 32, 9, 8)
    compiled, reports = compile_counted(module)
    for zero in (0, 31):
        scale, point = torch.tensor(0.02), torch.tensor(zero)
        result = compiled(x, scale, point)
        total = F.conv2d(x.double() - zero, module.weight.double(), padding=padding)
        torch.testing.assert_close(result, (total * 0.02 * 0.01).float(), rtol=1e-5, atol=1e-4)
    assert all((report.extern_calls == 0) == (padding == 0) for report in reports)


@needs_integers
@torch.no_grad()
@pytest.mark.parametrize(
    "make", [lambda n: torch.zeros(n, dtype=torch.int64), lambda n: torch.zeros(n)], ids=["integers", "floats"]
)
def test_zero_points_that_are_zeros_cost_nothing(make: Callable[[int], torch.Tensor]) -> None:
    torch.manual_seed(0)
    module, x = Convolution("1x1", torch.uint8, 7, points=make(40)), image("1x1", torch.uint8)
    compiled, reports = compile_counted(module)
    assert torch.equal(compiled(x), module.expected(x))
    assert [(len(report.kernels), report.extern_calls) for report in reports] == [(1, 0)]
    module.weight.neg_()
    assert torch.equal(compiled(x), module.expected(x))


@needs_integers
@torch.no_grad()
def test_zero_points_that_were_zeros_are_looked_at_again() -> None:
    torch.manual_seed(0)
    module, x = Convolution("1x1", torch.uint8, 7, points=torch.zeros(40).long()), image("1x1", torch.uint8)
    compiled = torch.compile(module, backend="icpu")
    compiled(x)
    module.points[3] = 5
    with pytest.raises(UserError, match="zero points"):
        compiled(x)
    torch._dynamo.reset()
    exact = module.exact(x)
    assert error(torch.compile(module, backend="icpu")(x), exact) <= 1.2 * error(module(x), exact) + 1e-7


@torch.no_grad()
def test_zero_points_of_any_value_are_right() -> None:
    torch.manual_seed(0)
    module = Convolution("3x3", torch.uint8, 7, points=torch.randint(-128, 128, (64,)))
    x = image("3x3", torch.uint8)
    exact = module.exact(x)
    assert error(torch.compile(module, backend="icpu")(x), exact) <= 1.2 * error(module(x), exact) + 1e-7
