"""Convolutions alone, channels-last: layers of a ResNet-50, dilated ones of segmentation networks, and transposed ones
of U-Nets, generators and decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares quantized_decomposed
from torch import nn

from bench_suites.gemm.contest import Call, Row, compete, ours
from bench_suites.gemm.machine import its_peak

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

#: In a training step.
_IMAGES = 8

#: No unit of its own multiplies fp16: it is computed as floats.
PEAKS = {"bf16": "bf16", "fp16": "fp32", "fp32": "fp32"}


@dataclass(frozen=True)
class Layer:
    """A square window over a square image of `size` pixels, padded so that a stride of 1 keeps the size."""

    channels: int
    columns: int
    window: int
    size: int
    stride: int = 1
    dilation: int = 1

    def __str__(self) -> str:
        more = "".join(f" {what} {n}" for what, n in (("stride", self.stride), ("dilation", self.dilation)) if n > 1)
        return f"{self.channels}-{self.columns} {self.window}x{self.window} of {self.size}{more}"

    def build(self) -> nn.Conv2d:
        """The module, in float32."""
        padding = self.dilation * (self.window // 2)
        return nn.Conv2d(self.channels, self.columns, self.window, self.stride, padding, self.dilation, bias=False)

    @property
    def work(self) -> float:
        """Operations for one image."""
        return 2.0 * self.channels * self.columns * self.window**2 * (self.size // self.stride) ** 2


@dataclass(frozen=True)
class Transposed:
    """The same with transposed windows, which make the image `stride` times as large."""

    channels: int
    columns: int
    window: int
    size: int
    stride: int

    def __str__(self) -> str:
        return f"{self.channels}-{self.columns} {self.window}x{self.window} of {self.size} stride {self.stride}"

    def build(self) -> nn.ConvTranspose2d:
        """The module, in float32."""
        padding = (self.window - self.stride + 1) // 2
        more = 2 * padding + self.stride - self.window
        return nn.ConvTranspose2d(self.channels, self.columns, self.window, self.stride, padding, more, bias=False)

    @property
    def work(self) -> float:
        """Operations for one image."""
        return 2.0 * self.channels * self.columns * self.window**2 * self.size**2


class Quantized(nn.Module):
    """A layer and relu between dequantize and quantize: uint8 by int8, with a scale for each output channel."""

    SCALE, ZERO, RESULT_SCALE = 0.02, 3, 0.4
    weight: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        weight = layer.build().weight
        padding = layer.dilation * (layer.window // 2)
        self.window = ([layer.stride] * 2, [padding] * 2, [layer.dilation] * 2)
        self.register_buffer("weight", torch.randint(-128, 128, weight.shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(layer.columns) * 1e-3 + 1e-4)
        self.register_buffer("bias", torch.randn(layer.columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x, result: uint8 (batch, channels, height, width)."""
        operators = torch.ops.quantized_decomposed
        wide = operators.dequantize_per_tensor(x, self.SCALE, self.ZERO, 0, 255, torch.uint8)
        weight = operators.dequantize_per_channel(self.weight, self.scales, None, 0, -128, 127, torch.int8)
        y = torch.relu(nn.functional.conv2d(wide, weight, self.bias, *self.window))
        return operators.quantize_per_tensor(y, self.RESULT_SCALE, 0, 0, 255, torch.uint8)

    def by_onednn(self, x: torch.Tensor) -> Call:
        """The same by oneDNN's quantized convolution, its weight packed before."""
        onednn, windows = torch.ops.onednn, (*self.window, 1)
        packed = onednn.qconv_prepack(self.weight, self.scales, self.SCALE, self.ZERO, *windows, list(x.shape))
        operands = (x, self.SCALE, self.ZERO, packed, self.scales, torch.zeros_like(self.scales).long(), self.bias)
        result: tuple[Any, ...] = (self.RESULT_SCALE, 0, torch.uint8, "relu", [], "")
        return lambda: onednn.qconv_pointwise(*operands, *windows, *result)


LAYERS = (
    Layer(3, 64, 7, 224, stride=2),
    Layer(64, 64, 3, 56),
    Layer(64, 256, 1, 56),
    Layer(256, 64, 1, 56),
    Layer(128, 128, 3, 28),
    Layer(256, 512, 1, 56, stride=2),
    Layer(256, 256, 3, 14),
    Layer(1024, 256, 1, 14),
    Layer(512, 512, 3, 7),
    Layer(64, 64, 3, 28),
    Layer(64, 64, 5, 56),
    Layer(512, 512, 3, 28, dilation=2),
    Layer(512, 256, 3, 65, dilation=12),
    Layer(512, 256, 3, 65, dilation=36),
)


TRANSPOSED = (
    Transposed(128, 64, 2, 64, stride=2),
    Transposed(512, 256, 2, 16, stride=2),
    Transposed(512, 256, 4, 8, stride=2),
    Transposed(256, 128, 4, 32, stride=2),
    Transposed(192, 192, 5, 16, stride=2),
    Transposed(21, 21, 64, 16, stride=32),
    Transposed(128, 64, 3, 56, stride=2),
)


@pytest.mark.parametrize("layer", [*LAYERS, *TRANSPOSED], ids=str)
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_convolution(benchmark: Any, rows: list[Row], threads: int, kind: str, layer: Layer | Transposed) -> None:
    """One image, against eager mode, which calls oneDNN or, where that lacks a type, loops of ATen."""
    limit = its_peak(PEAKS[kind], threads)
    module = layer.build().to(dtype=DTYPES[kind]).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(1, layer.channels, layer.size, layer.size).to(DTYPES[kind], memory_format=torch.channels_last)
    calls = {"icpu": ours(module, x), "eager": lambda: module(x)}
    name = f"convolution {kind}" if isinstance(layer, Layer) else f"transposed convolution {kind}"
    rows.append(compete(benchmark, Row(name, str(layer), threads, layer.work, limit), calls))


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@torch.no_grad()
def test_int8_convolution(benchmark: Any, rows: list[Row], threads: int, layer: Layer) -> None:
    """One image between dequantize and quantize, against oneDNN's quantized convolution."""
    limit = its_peak("int8", threads)
    module = Quantized(layer)
    x = torch.randint(0, 256, (1, layer.channels, layer.size, layer.size), dtype=torch.uint8)
    x = x.contiguous(memory_format=torch.channels_last)
    calls = {"icpu": ours(module, x), "onednn": module.by_onednn(x)}
    rows.append(compete(benchmark, Row("convolution int8", str(layer), threads, layer.work, limit), calls))


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.window == 3 and layer.dilation == 1], ids=str)
def test_training_convolution(benchmark: Any, rows: list[Row], threads: int, layer: Layer) -> None:
    """Eight images forward and backward, with the gradients of images and weights, in float32, against eager mode
    channels-last and as models are by default."""
    limit, module = its_peak("fp32", threads), layer.build()
    x = torch.randn(_IMAGES, layer.channels, layer.size, layer.size)
    calls = {
        "icpu": _step(torch.compile(module, backend="icpu", dynamic=False), x, torch.channels_last),
        "eager": _step(module, x, torch.channels_last),
        "eager by planes": _step(module, x, torch.contiguous_format),
    }
    work = 3 * _IMAGES * layer.work
    rows.append(compete(benchmark, Row("training convolution fp32", str(layer), threads, work, limit), calls))


def _step(function: Callable[..., torch.Tensor], images: torch.Tensor, layout: torch.memory_format) -> Call:
    """Forward and backward, by gradients of results that are one."""
    x = images.contiguous(memory_format=layout).requires_grad_()

    def call() -> None:
        result = function(x)
        result.backward(torch.ones_like(result))
        x.grad = None

    return call
