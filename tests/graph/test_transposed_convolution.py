"""Transposed convolutions as convolutions of all phases."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from inductor_cpu.graph.transposed_convolution import Phases, phases_of
from inductor_cpu.ir.operators import SCALE_SHIFT
from tests.cases import cases, in_turns
from tests.graph.harness import CONV, CONV_TRANSPOSE, aten, check, compile_passed, randomize

#: (kernel, stride, padding, dilation, output padding) of one dimension
SIZES = [
    sizes
    for sizes in itertools.product(range(1, 8), range(1, 5), range(4), (1, 2, 3), range(3))
    if sizes[4] < max(sizes[1], sizes[3])
]


def _sums(kernel: int, stride: int, padding: int, dilation: int, size: int, place: int) -> set[tuple[int, int]]:
    """Which (weight, element) a result of a transposed convolution is the sum of."""
    reached = {weight: place + padding - weight * dilation for weight in range(kernel)}
    return {(w, at // stride) for w, at in reached.items() if at % stride == 0 and 0 <= at // stride < size}


def _sums_of_phases(phases: Phases, kernel: int, dilation: int, size: int, place: int) -> set[tuple[int, int]]:
    """The same of what takes its place: the window of a convolution, whose weights are every `count`-th, reversed."""
    window, phase = divmod(place + phases.left, phases.count)
    places = {window - phases.padding + n * dilation: n for n in range(phases.weights)}
    weights = {at: phase + phases.count * (phases.weights - 1 - n) for at, n in places.items()}
    return {(weight, at) for at, weight in weights.items() if weight < kernel and 0 <= at < size}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_phases_sum_the_same_products_as_the_transposed_convolution(size: int) -> None:
    seen = 0
    for kernel, stride, padding, dilation, more in SIZES:
        phases = phases_of(kernel, stride, padding, dilation, more)
        results = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
        if phases is None or results < 1:
            continue
        windows = size + 2 * phases.padding - dilation * (phases.weights - 1)
        assert min(phases.padding, phases.left, phases.right) >= 0
        assert windows * stride - phases.left - phases.right == results
        for place in range(results):
            expected = _sums(kernel, stride, padding, dilation, size, place)
            assert _sums_of_phases(phases, kernel, dilation, size, place) == expected
            seen += 1
    assert seen > 1000


def test_dilated_weights_with_a_stride_have_no_common_windows() -> None:
    assert phases_of(4, 2, 1, 2, 0) is None


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "2 by 2 apart": (lambda: nn.ConvTranspose2d(8, 12, 2, 2), (2, 8, 5, 7)),
    "4 by 4": (lambda: nn.ConvTranspose2d(8, 12, 4, 2, 1), (2, 8, 5, 7)),
    "two strides": (lambda: nn.ConvTranspose2d(8, 12, (4, 3), (2, 1), (1, 0)), (2, 8, 5, 7)),
    "output padding": (lambda: nn.ConvTranspose2d(8, 12, 4, 4, 1, output_padding=3), (1, 8, 3, 3)),
    "without a stride": (lambda: nn.ConvTranspose2d(8, 12, 3, 1, 1), (2, 8, 5, 7)),
    "padding above the kernel": (lambda: nn.ConvTranspose2d(8, 12, 2, 1, 3), (1, 8, 8, 9)),
    "dilated": (lambda: nn.ConvTranspose2d(8, 12, 3, 1, 2, dilation=2), (2, 8, 5, 7)),
    "groups": (lambda: nn.ConvTranspose2d(8, 12, 4, 2, 1, groups=4), (2, 8, 5, 7)),
    "channels alone": (lambda: nn.ConvTranspose2d(16, 16, 4, 2, 1, groups=16), (1, 16, 5, 7)),
    "no bias": (lambda: nn.ConvTranspose2d(8, 12, 2, 2, bias=False), (2, 8, 5, 7)),
    "one dimension": (lambda: nn.ConvTranspose1d(8, 12, 16, 8, 4), (2, 8, 9)),
    "three dimensions": (lambda: nn.ConvTranspose3d(4, 8, (2, 4, 2), 2, (0, 1, 0)), (1, 4, 3, 4, 5)),
}


@pytest.mark.parametrize(("name", "dynamic"), in_turns(LAYERS, [False, True]))
def test_transposed_convolution_is_one_convolution(name: str, dynamic: bool) -> None:
    make, shape = LAYERS[name]
    passed = check(nn.Sequential(make(), nn.ReLU()), torch.randn(shape), dynamic=dynamic)
    assert len(passed.calls(CONV)) == 1
    assert not passed.calls(CONV_TRANSPOSE, aten.convolution.default)
    assert "1 transposed convolutions as convolutions" in passed.notes


@pytest.mark.parametrize("name", cases(list(LAYERS)[:3], list(LAYERS)[3:]))
@torch.no_grad()
def test_result_lies_as_in_eager_mode(name: str) -> None:
    make, shape = LAYERS[name]
    layer, x = make().eval(), torch.randn(shape)
    formats = [x, x.to(memory_format=torch.channels_last)] if x.dim() == 4 else [x]
    for image in formats:
        compiled = torch.compile(layer, backend="icpu")
        assert compiled(image).stride() == layer(image).stride()


def test_batch_norm_is_in_the_weights_of_the_phases() -> None:
    net = randomize(nn.Sequential(nn.ConvTranspose2d(8, 12, 4, 2, 1), nn.BatchNorm2d(12), nn.ReLU()))
    passed = check(net, torch.randn(2, 8, 5, 7))
    assert len(passed.calls(CONV)) == 1
    assert not passed.calls(aten._native_batch_norm_legit_no_training.default)


@torch.no_grad()
def test_batch_norm_of_low_precision_scales_all_phases() -> None:
    net = randomize(nn.Sequential(nn.ConvTranspose2d(8, 12, 4, 2, 1), nn.BatchNorm2d(12))).eval()
    x = torch.randn(2, 8, 5, 7)
    exact, expected = net.double()(x.double()), net.bfloat16()(x.bfloat16())
    compiled, passed = compile_passed(net)
    error = (compiled(x.bfloat16()).double() - exact).abs().max()
    (scaled,) = passed.calls(SCALE_SHIFT)
    assert scaled.meta["val"].shape[1] == 4 * 12
    assert error <= 1.5 * (expected.double() - exact).abs().max()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.ConvTranspose2d(8, 12, 3, 2, 1), (2, 8, 5, 7)),
        (nn.ConvTranspose2d(8, 12, 4, 2, 1, dilation=3), (2, 8, 5, 7)),
        (nn.ConvTranspose2d(8, 12, 5, 2, 2), (2, 8, 5, 7)),
    ],
    ids=["zeros to multiply by", "dilated with a stride", "tiles do not pay"],
)
def test_transposed_convolution_stays_where_phases_take_more_work(layer: nn.Module, shape: tuple[int, ...]) -> None:
    passed = check(layer, torch.randn(shape))
    assert len(passed.calls(CONV_TRANSPOSE)) == 1


@pytest.mark.parametrize("kernel", [5, (6, 5)], ids=str)
def test_kernels_get_zeros_where_windows_become_tiles(kernel: int | tuple[int, int]) -> None:
    asked: list[tuple[object, ...]] = []
    layer = nn.ConvTranspose2d(32, 16, kernel, 2, 2)
    passed = check(layer, torch.randn(2, 32, 8, 9), tiling=lambda *shape: asked.append(shape) or "some kernel")
    assert len(passed.calls(CONV)) == 1
    assert not passed.calls(CONV_TRANSPOSE)
    assert asked[0][1:] == (32, 4 * 16, torch.float32)


class Weighted(nn.Module):
    """A transposed convolution whose weight is an input."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv_transpose2d(x, weight, stride=2)


def test_weight_that_is_no_constant_stays() -> None:
    passed = check(Weighted(), torch.randn(1, 8, 4, 4), torch.randn(8, 4, 2, 2))
    assert len(passed.calls(aten.convolution.default)) == 1
