"""Convolutions of groups of channels by themselves: numbers against fp64, and what is in the same kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.targets.cpu import LEVELS
from tests.cases import cases
from tests.e2e.test_depthwise import check, options_for

#: (channels, results) of a group, groups, (kernel, stride, padding, dilation), input (batch, height, width).
CASES: dict[str, tuple[tuple[int, int], int, tuple[Any, ...], tuple[int, int, int]]] = {
    "permuted": ((4, 4), 16, (3, 1, 1), (2, 9, 11)),
    "a narrow last panel": ((4, 4), 50, (3, 2, 1), (1, 7, 8)),
    "fewer channels than results": ((2, 4), 24, (3, 1, 1), (1, 6, 17)),
    "one channel": ((1, 2), 40, (3, 1, 1), (2, 5, 6)),
    "groups across vectors": ((2, 6), 16, (3, 1, (0, 2)), (1, 8, 5)),
    "blended in each vector": ((12, 12), 8, ((1, 3), 1, (0, 1)), (2, 4, 13)),
    "blended in one of three": ((24, 24), 4, (3, 1, 1), (1, 4, 29)),
    "an odd number of groups": ((24, 24), 3, (3, 1, 1), (2, 5, 6)),
    "one group a vector": ((8, 16), 8, (3, 2, 1), (2, 15, 14)),
    "several parts of a group": ((10, 128), 2, (3, 1, 2, 2), (1, 10, 7)),
    "part of a vector": ((14, 14), 2, (2, 2, 0), (1, 8, 10)),
    "seven taps of a line": ((8, 8), 6, (7, 1, 3), (1, 12, 31)),
    "larger than the image": ((16, 16), 3, (5, 1, 2), (1, 2, 3)),
    "far outside": ((16, 16), 2, (3, 2, 4, 3), (1, 5, 9)),
}


class Layer(nn.Module):
    """A convolution of groups, a batch norm, an activation and a residual addition where sizes allow it."""

    def __init__(self, channels: tuple[int, int], groups: int, *window: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels[0] * groups, channels[1] * groups, *window, groups=groups)
        self.norm = nn.BatchNorm2d(channels[1] * groups)
        nn.init.normal_(self.norm.running_mean, 0, 0.1)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.hardswish(self.norm(self.conv(x)))
        return y + x if y.shape == x.shape else y


class Layers(nn.Module):
    """A layer for each case, and an image for each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(each, groups, *window) for each, groups, window, _ in CASES.values())

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(image) for layer, image in zip(self.layers, images, strict=True))


@pytest.mark.parametrize(
    "name",
    cases(
        ["groups_f32", "groups_dot_bf16", "groups_f32_avx2"],
        ["groups_bf16", "groups_f16", "groups_bf16_avx2", "groups_f16_avx2"],
    ),
)
def test_each_is_one_kernel_with_its_norm_activation_and_residual(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """All in one graph, whose kernels are compiled together."""
    row = MICRO_KERNELS[name]
    level = [level for level, features in LEVELS.items() if not row.unless & features][-1]
    options = options_for(row.isa) | {"cpp.max_isa": level}  # a library is faster with newer instructions
    record_property("micro_kernel", (row.isa, name, "ran"))
    torch.manual_seed(0)
    module = Layers().eval().to(row.dtype).requires_grad_(False)
    images = [torch.randn(n, c * groups, *size).to(row.dtype) for (c, _), groups, _, (n, *size) in CASES.values()]
    images = [image.contiguous(memory_format=torch.channels_last) for image in images]
    check(module, torch.compile(module, backend="icpu", options=options), *images)
    with torch.no_grad(), inductor_cpu.config.patch(options):
        explained = inductor_cpu.explain(module, *images)
    assert explained.extern_calls == 0
    assert (len(explained.kernels), explained.vectorized) == (len(CASES), len(CASES))


@pytest.mark.parametrize("dtype", cases([torch.bfloat16], [torch.float32]), ids=str)
def test_it_serves_any_batch_and_image(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Layer((8, 8), 4, 3, 1, 1).eval().to(dtype).requires_grad_(False)
    compiled = torch.compile(module, backend="icpu", dynamic=True)
    for batch, height in ((2, 8), (1, 9), (3, 16), (1, 40)):
        check(module, compiled, torch.randn(batch, 32, height, height + 1).to(dtype))


@torch.no_grad()
@pytest.mark.parametrize(
    ("groups", "size"), [(8, (2, 40, 1100)), (160, (1, 2, 70))], ids=["copied lines", "slices of channels"]
)
def test_threads_share_lines_or_slices(groups: int, size: tuple[int, int, int]) -> None:
    """Few of the lines of large images are copied at once."""
    torch.manual_seed(0)
    module = Layer((8, 8), groups, 3, 1, 1).eval().requires_grad_(False)
    batch, *image = size
    x, results = torch.randn(batch, 8 * groups, *image).contiguous(memory_format=torch.channels_last), []
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


@pytest.mark.parametrize("outputs", [4, 8, 12, 24, 32])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_value_that_is_no_number_stays_in_its_group(outputs: int, value: float) -> None:
    """Lanes of several groups share a vector."""
    torch.manual_seed(0)
    module = nn.Conv2d(4 * 8, outputs * 8, 3, padding=1, groups=8).eval().requires_grad_(False)
    x = torch.randn(1, 32, 5, 6).contiguous(memory_format=torch.channels_last)
    x[:, 13] = value
    finite = torch.compile(module, backend="icpu")(x).reshape(8, outputs, 5, 6).isfinite()
    assert finite[[0, 1, 2, 4, 5, 6, 7]].all()
    assert not finite[3].any()


def test_an_edited_weight_is_followed() -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(32, 32, 3, groups=4).eval().bfloat16().requires_grad_(False)
    compiled, x = torch.compile(module, backend="icpu"), torch.randn(1, 32, 6, 6).bfloat16()
    check(module, compiled, x)
    module.weight.mul_(2)
    check(module, compiled, x)


def test_some_channels_of_an_image_are_read_where_they_lie() -> None:
    """Pixels are further apart than the channels that are convolved."""
    torch.manual_seed(0)
    module = nn.Conv2d(32, 32, 3, padding=1, groups=4).eval().requires_grad_(False)
    part = nn.Sequential(_Middle(), module)
    x = torch.randn(2, 48, 6, 7).contiguous(memory_format=torch.channels_last)
    check(part, torch.compile(part, backend="icpu"), x)


class _Middle(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 8:40]


@pytest.mark.parametrize(
    ("channels", "results", "groups", "kernel"),
    [(3, 3, 4, 3), (15, 15, 7, 1)],
    ids=["few lanes would have work", "windows of one pixel"],
)
def test_others_stay_with_onednn(channels: int, results: int, groups: int, kernel: int) -> None:
    module = nn.Conv2d(channels * groups, results * groups, kernel, groups=groups).eval().requires_grad_(False)
    with torch.no_grad():
        assert inductor_cpu.explain(module, torch.randn(1, channels * groups, 6, 6)).extern_calls == 1
