"""Convolutions of each channel by itself: numbers against fp64, and what is in the same kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.targets.cpu import ISAS, detect
from tests.cases import cases

#: channels, (kernel, stride, padding, dilation), input (batch, height, width). Panels have 64 channels, of which a
#: vector or less may be left, and lines are summed a few windows at a time.
CASES: dict[str, tuple[int, tuple[Any, ...], tuple[int, int, int]]] = {
    "3x3": (32, (3, 1, 1), (2, 9, 11)),
    "5x5 with a stride": (24, (5, 2, 2), (1, 15, 14)),
    "7x7": (40, (7, 1, 3), (1, 12, 12)),
    "dilated": (16, (3, 1, 2, 2), (3, 10, 7)),
    "without padding": (33, (3, 1, 0), (1, 6, 5)),
    "a line": (16, ((1, 5), (1, 2), (0, 2)), (2, 4, 13)),
    "larger than the image": (48, (5, 1, 2), (1, 2, 3)),
    "an even window": (16, (2, 2, 0), (1, 8, 10)),
    "two panels": (67, (3, 1, 1), (2, 5, 7)),
    "a line of several segments": (72, (3, 1, 1), (1, 4, 38)),
    "borders on one side": (9, ((3, 4), (1, 3), (0, 1), (1, 2)), (2, 7, 21)),
    "a line longer than the image": (84, (7, 1, 3), (1, 3, 2)),
    "far outside": (16, (3, 2, 4, 3), (1, 5, 9)),
}


class Layer(nn.Module):
    """A depthwise convolution, a batch norm, an activation and a residual addition where sizes allow it."""

    def __init__(self, channels: int, *window: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, *window, groups=channels)
        self.norm = nn.BatchNorm2d(channels)
        nn.init.normal_(self.norm.running_mean, 0, 0.1)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.hardswish(self.norm(self.conv(x)))
        return y + x if y.shape == x.shape else y


class Layers(nn.Module):
    """A layer for each of some cases, and an image for each layer."""

    def __init__(self, cases: Iterable[tuple[int, tuple[Any, ...], tuple[int, int, int]]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(channels, *window) for channels, window, _ in cases)

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(image) for layer, image in zip(self.layers, images, strict=True))


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """RMSE over the RMS of the exact value."""
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@torch.no_grad()
def check(module: nn.Module, compiled: Any, *images: torch.Tensor) -> None:
    """The compiled results are about as near to fp64 as eager's, or as a float: loops round products before sums, which
    eager mode does at once. They have eager's strides."""
    dtype = images[0].dtype
    pairs = zip(_each(module(*images)), _each(compiled(*images)), strict=True)
    exact = _each(module.double()(*(image.double() for image in images)))
    module.to(dtype)
    for (eager, result), right in zip(pairs, exact, strict=True):
        assert (result.dtype, result.stride()) == (eager.dtype, eager.stride())
        assert error(result, right) <= max(1.2 * error(eager, right), torch.finfo(torch.float32).eps)


def _each(results: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else results


def options_for(isa: str) -> dict[str, int]:
    """What compiles for an instruction set; skips the test where the CPU has none."""
    level = next(level for level in ISAS if level.name == isa)
    if not level.needs <= detect().features:
        pytest.skip(f"this CPU has no {isa}")
    return {"cpp.simdlen": level.bits}


@pytest.mark.parametrize(
    "name",
    cases(
        ["channels_f32", "channels_bf16", "channels_f32_avx2"],
        ["channels_f16", "channels_bf16_avx2", "channels_f16_avx2"],
    ),
)
def test_each_is_one_kernel_with_its_norm_activation_and_residual(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """All in one graph, whose kernels are compiled together."""
    row = MICRO_KERNELS[name]
    options = options_for(row.isa)
    record_property("micro_kernel", (row.isa, name, "ran"))
    torch.manual_seed(0)
    module = Layers(CASES.values()).eval().to(row.dtype).requires_grad_(False)
    images = [torch.randn(n, channels, *size).to(row.dtype) for channels, _, (n, *size) in CASES.values()]
    images = [image.contiguous(memory_format=torch.channels_last) for image in images]
    check(module, torch.compile(module, backend="icpu", options=options), *images)
    with torch.no_grad(), inductor_cpu.config.patch(options):
        explained = inductor_cpu.explain(module, *images)
    assert explained.extern_calls == 0
    assert (len(explained.kernels), explained.vectorized) == (len(CASES), len(CASES))


@pytest.mark.parametrize("dtype", cases([torch.bfloat16], [torch.float32]), ids=str)
def test_it_serves_any_batch_and_image(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Layer(16, 3, 1, 1).eval().to(dtype).requires_grad_(False)
    compiled = torch.compile(module, backend="icpu", dynamic=True)
    for batch, height in ((2, 8), (1, 9), (3, 16), (1, 40)):
        check(module, compiled, torch.randn(batch, 16, height, height + 1).to(dtype))


@torch.no_grad()
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 200, 30, 31), torch.bfloat16), ((1, 1100, 1, 200), torch.float32)],
    ids=["lines", "panels"],
)
def test_threads_share_lines_or_panels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Of bf16 some lines are floats at once."""
    torch.manual_seed(0)
    module = Layer(shape[1], 3, 1, 1).eval().to(dtype).requires_grad_(False)
    x, results = torch.randn(shape).to(dtype).contiguous(memory_format=torch.channels_last), []
    compiled = torch.compile(module, backend="icpu")
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(compiled(x))
    finally:
        torch.set_num_threads(before)
    check(module, compiled, x)
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_infinite_weight_meets_no_pixel_outside_of_the_image(dtype: torch.dtype) -> None:
    """A product with what is not there would be NaN."""
    module = nn.Conv2d(16, 16, 3, padding=1, groups=16).eval().to(dtype).requires_grad_(False)
    module.weight[:, :, 0, 0] = torch.inf
    x = torch.ones(1, 16, 4, 9).to(dtype).contiguous(memory_format=torch.channels_last)
    result = torch.compile(module, backend="icpu")(x)
    assert torch.isfinite(result[:, :, 0]).all()
    assert torch.isfinite(result[:, :, :, 0]).all()
    assert torch.isinf(result[:, :, 1:, 1:]).all()


def test_an_edited_weight_is_followed() -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(16, 16, 3, groups=16).eval().bfloat16().requires_grad_(False)
    compiled, x = torch.compile(module, backend="icpu"), torch.randn(1, 16, 6, 6).bfloat16()
    check(module, compiled, x)
    module.weight.mul_(2)
    check(module, compiled, x)
