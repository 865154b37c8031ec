"""Convolutions of each channel by itself in low precision: numbers against fp64, and what is in the same kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import inductor_cpu
from tests.cases import in_turns

#: channels, (kernel, stride, padding, dilation), input (batch, height, width)
CASES: dict[str, tuple[int, tuple[Any, ...], tuple[int, int, int]]] = {
    "3x3": (32, (3, 1, 1), (2, 9, 11)),
    "5x5 with a stride": (24, (5, 2, 2), (1, 15, 14)),
    "7x7": (40, (7, 1, 3), (1, 12, 12)),
    "dilated": (16, (3, 1, 2, 2), (3, 10, 7)),
    "without padding": (33, (3, 1, 0), (1, 6, 5)),
    "a line": (16, ((1, 5), (1, 2), (0, 2)), (2, 4, 13)),
    "larger than the image": (48, (5, 1, 2), (1, 2, 3)),
    "an even window": (16, (2, 2, 0), (1, 8, 10)),
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


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """RMSE over the RMS of the exact value."""
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@torch.no_grad()
def check(module: nn.Module, compiled: Any, x: torch.Tensor) -> None:
    """The compiled result is at least about as near to fp64 as eager's, with eager's strides."""
    eager, result = module(x), compiled(x)
    exact = module.double()(x.double())
    module.to(x.dtype)
    assert (result.dtype, result.stride()) == (eager.dtype, eager.stride())
    assert error(result, exact) <= 1.2 * error(eager, exact)


@pytest.mark.parametrize(("name", "dtype"), in_turns(CASES, [torch.bfloat16, torch.float16]), ids=str)
def test_it_is_one_kernel_with_its_norm_activation_and_residual(name: str, dtype: torch.dtype) -> None:
    channels, window, (batch, height, width) = CASES[name]
    torch.manual_seed(0)
    module = Layer(channels, *window).eval().to(dtype).requires_grad_(False)
    x = torch.randn(batch, channels, height, width).to(dtype).contiguous(memory_format=torch.channels_last)
    check(module, torch.compile(module, backend="icpu"), x)
    with torch.no_grad():
        explained = inductor_cpu.explain(module, x)
    assert explained.extern_calls == 0
    assert (len(explained.kernels), explained.vectorized) == (1, 1)


def test_it_serves_any_batch_and_image() -> None:
    torch.manual_seed(0)
    module = Layer(16, 3, 1, 1).eval().bfloat16().requires_grad_(False)
    compiled = torch.compile(module, backend="icpu", dynamic=True)
    for batch, height in ((2, 8), (1, 9), (3, 16)):
        check(module, compiled, torch.randn(batch, 16, height, height + 1).bfloat16())


def test_an_edited_weight_is_followed() -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(16, 16, 3, groups=16).eval().bfloat16().requires_grad_(False)
    compiled, x = torch.compile(module, backend="icpu"), torch.randn(1, 16, 6, 6).bfloat16()
    check(module, compiled, x)
    module.weight.mul_(2)
    check(module, compiled, x)


def test_two_results_a_channel_stay_with_the_library() -> None:
    """A multiplier is no window of one channel."""
    module = nn.Conv2d(16, 32, 3, groups=16).eval().bfloat16().requires_grad_(False)
    with torch.no_grad():
        assert inductor_cpu.explain(module, torch.randn(1, 16, 6, 6).bfloat16()).extern_calls == 1
