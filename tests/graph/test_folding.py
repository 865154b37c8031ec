"""Batch norms, scales and shifts that go into weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from inductor_cpu.ir.operators import SCALE_SHIFT
from tests.graph.harness import CONV, CONV_TRANSPOSE, LINEAR, aten, check, randomize
from tests.graph.test_convolution import Net

Tensor = torch.Tensor
LOW_PRECISION = (torch.bfloat16, torch.float16)
NORM = aten._native_batch_norm_legit_no_training.default
AFFINE = (aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), (2, 8, 7, 7)),
        (lambda: nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU()), (2, 8, 7, 7)),
        (lambda: nn.Sequential(nn.Conv1d(8, 16, 3), nn.BatchNorm1d(16), nn.ReLU()), (2, 8, 7)),
        (lambda: nn.Sequential(nn.Conv3d(4, 8, 2), nn.BatchNorm3d(8), nn.ReLU()), (2, 4, 5, 5, 5)),
        (lambda: nn.Sequential(nn.ConvTranspose2d(8, 12, 3, groups=2), nn.BatchNorm2d(12), nn.ReLU()), (2, 8, 5, 5)),
        (lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU()), (4, 8)),
        (lambda: nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()), (4, 8)),
    ],
    ids=["conv2d", "depthwise", "conv1d", "conv3d", "transposed", "linear", "linear without bias"],
)
def test_batch_norm_after_a_layer_is_folded(model: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    passed = check(randomize(model()), torch.randn(shape))
    assert not passed.calls(NORM, aten.relu.default)
    assert len(passed.calls(CONV, CONV_TRANSPOSE, LINEAR)) == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_before_a_convolution_without_padding_is_folded(groups: int) -> None:
    net = randomize(nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, groups=groups)))
    passed = check(net, torch.randn(2, 8, 7, 7))
    assert not passed.calls(NORM)


@pytest.mark.parametrize("dtype", LOW_PRECISION, ids=str)
def test_low_precision_weights_are_not_rounded_a_second_time(dtype: torch.dtype) -> None:
    net = randomize(nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()))
    passed = check(net, torch.randn(2, 8, 7, 7), dtype=dtype)
    assert passed.calls(SCALE_SHIFT)
    assert not passed.calls(NORM)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, padding=1)),
        Net(nn.Conv2d(8, 8, 3), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(8))),
        Net(nn.Conv2d(8, 8, 3), lambda y: functional.batch_norm(y, y.mean((0, 2, 3)), y.var((0, 2, 3)))),
        nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)),
        nn.Sequential(nn.Linear(9, 9), nn.BatchNorm2d(8)),
    ],
    ids=["before, padded", "after an activation", "statistics from data", "no statistics", "other channels"],
)
def test_other_batch_norms_stay(net: nn.Module) -> None:
    passed = check(randomize(net), torch.randn(2, 8, 9, 9))
    assert " 0 batch norms" in " " + passed.notes


def test_batch_norm_of_a_layer_with_two_readers_stays() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return self.norm(y), y

    passed = check(randomize(Both()), torch.randn(2, 8, 7, 7))
    assert "0 batch norms" in passed.notes


class Frozen(nn.Module):
    """A batch norm written as arithmetic on buffers, as detection models have it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "var"):
            self.register_buffer(name, torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, mean, var = (self.get_buffer(n).reshape(1, -1, 1, 1) for n in ("weight", "bias", "mean", "var"))
        scale = weight * (var + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


def test_frozen_batch_norm_is_folded() -> None:
    net = nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), Frozen(16), nn.ReLU())
    passed = check(net, torch.randn(2, 8, 7, 7))
    assert passed.names() in ([str(CONV)], ["aten.clone.default", str(CONV)])


class WithWeights(nn.Module):
    """A layer and a function of its result and of a parameter."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...], then: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.w, self.then = layer, nn.Parameter(torch.rand(shape) + 0.5), then

    def forward(self, x: Tensor) -> Any:
        return self.then(self.layer(x), self.w)


@pytest.mark.parametrize(
    ("layer", "shape", "x"),
    [
        (lambda: nn.Conv2d(8, 16, 3), (16, 1, 1), (2, 8, 7, 7)),
        (lambda: nn.Conv2d(8, 16, 3, bias=False), (1, 16, 1, 1), (2, 8, 7, 7)),
        (lambda: nn.Conv2d(8, 16, 3), (1,), (2, 8, 7, 7)),
        (lambda: nn.Linear(8, 16), (16,), (2, 5, 8)),
        (lambda: nn.Linear(8, 16, bias=False), (16,), (5, 8)),
    ],
    ids=["conv", "conv without bias", "one number", "linear", "linear without bias"],
)
@pytest.mark.parametrize(
    "then",
    [lambda y, w: y * w, lambda y, w: w + y, lambda y, w: y - w, lambda y, w: y * 0.25 + w],
    ids=["y * w", "w + y", "y - w", "y / 4 + w"],
)
def test_scale_or_shift_by_weights_is_folded(
    layer: Callable[[], nn.Module], shape: tuple[int, ...], x: tuple[int, ...], then: Any
) -> None:
    passed = check(WithWeights(layer(), shape, then), torch.randn(x))
    assert not passed.calls(*AFFINE)
    assert len(passed.calls(CONV, LINEAR)) == 1


def test_layer_scale_behind_a_transpose_is_folded() -> None:
    net = WithWeights(nn.Linear(8, 16), (16,), lambda y, w: y.permute(0, 3, 1, 2) * w.reshape(1, -1, 1, 1))
    passed = check(net, torch.randn(2, 5, 5, 8))
    assert not passed.calls(aten.mul.Tensor)


@pytest.mark.parametrize(
    ("shape", "then"),
    [
        ((7, 1), lambda y, w: y * w[:5]),
        ((16, 1, 1), lambda y, w: w - y),
        ((16, 1, 1), lambda y, w: w / y.abs().add(1)),
        ((16, 1, 1), lambda y, w: (y * w, y)),
        ((16, 1, 1), lambda y, w: torch.relu(y) * w),
        ((2, 1, 1, 1), lambda y, w: y * w),
        ((16, 1, 1), lambda y, w: y * float("inf")),
        ((16, 1, 1), lambda y, w: (y * w.double()).float()),
    ],
    ids=["per row", "w - y", "w / y", "two readers", "after an activation", "per sample", "infinite", "other dtype"],
)
def test_other_arithmetic_stays(shape: tuple[int, ...], then: Any) -> None:
    passed = check(WithWeights(nn.Conv2d(8, 16, 3), shape, then), torch.randn(2, 8, 7, 7))
    assert passed.calls(*AFFINE)


def test_dropout_is_gone() -> None:
    passed = check(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU()), torch.randn(4, 8))
    assert passed.names() == [str(LINEAR)]
