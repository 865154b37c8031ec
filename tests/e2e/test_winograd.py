"""Convolutions of 3 x 3 windows by tiles of windows (Winograd's): as exact as eager mode, also beside infinities."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

import inductor_cpu
from tests.e2e.support import Layers, compile_counted

INF, NAN = float("inf"), float("nan")

#: (channels, columns, padding, sizes of the images)
CASES = {
    "even sizes": (32, 16, 1, (2, 8, 12)),
    "odd sizes, columns of half a panel": (32, 40, 1, (1, 7, 9)),
    "without padding": (48, 24, 0, (3, 9, 8)),
    "padding on one side": (32, 33, (0, 1), (1, 6, 5)),
    "padding wider than a window's edge": (32, 16, 2, (1, 5, 6)),
    "one result": (32, 16, 0, (1, 3, 3)),
    "a line": (32, 16, 1, (3, 1, 21)),
    "a column": (32, 16, 1, (1, 21, 1)),
    "more blocks than are packed at once": (32, 16, 1, (1, 90, 70)),
    "depth in parts": (528, 16, 1, (2, 4, 4)),
}


def layer(channels: int, columns: int, padding: int | tuple[int, int], bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(channels, columns, 3, padding=padding, bias=bias).eval().requires_grad_(False)


def templates(folder: Path) -> list[bool]:
    """Of each call of a kernel with a product whether it is by tiles."""
    (plan,) = (path.read_text() for path in folder.glob("*/03_codegen.txt"))
    found = {path.stem: path.read_text() for path in folder.glob("*/icpu_*.cpp")}
    texts = [found[symbol] for symbol in re.findall(r"\bicpu_[0-9a-f]{24}\b", plan)]
    return ["convolve_tiles" in text for text in texts if "icpu::gemm::" in text]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@torch.no_grad()
def test_results_are_as_near_to_the_exact_ones_as_eager_s(dynamic: bool, level: dict[str, str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Layers([layer(*case[:3]) for case in CASES.values()])
    images = [torch.randn(case[3][0], case[0], *case[3][1:]) for case in CASES.values()]
    if dynamic:
        for image in images:
            for dim in (2, 3):
                if image.shape[dim] > 3:
                    torch._dynamo.maybe_mark_dynamic(image, dim)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        results = torch.compile(module, backend="icpu", options=level)(images)
    assert templates(tmp_path) == [True] * len(CASES)
    exact = module.double()([image.double() for image in images])
    eager = module.float()(images)
    for name, got, true, other in zip(CASES, results, exact, eager, strict=True):
        assert got.shape == true.shape, name
        assert got.stride() == other.stride(), name
        last_place = torch.finfo(torch.float32).eps * true.abs().max()
        assert (got - true).abs().max() <= 2 * (other - true).abs().max() + 4 * last_place, name


def by_taps(x: torch.Tensor, conv: nn.Conv2d) -> torch.Tensor:
    """The results of a convolution with a padding of 1, in float64; what lies outside of an image has no product."""
    height, width = x.shape[2:]
    out = conv.bias.double()[None, :, None, None].repeat(x.shape[0], 1, height, width)
    for i, j in itertools.product(range(3), repeat=2):
        to_y, to_x = slice(max(1 - i, 0), height + min(1 - i, 0)), slice(max(1 - j, 0), width + min(1 - j, 0))
        from_y, from_x = slice(max(i - 1, 0), height + min(i - 1, 0)), slice(max(j - 1, 0), width + min(j - 1, 0))
        seen = x[:, :, from_y, from_x].double()
        out[:, :, to_y, to_x] += nn.functional.conv2d(seen, conv.weight.double()[:, :, i : i + 1, j : j + 1])
    return out


@torch.no_grad()
def test_what_is_not_finite_stays_in_the_windows_that_see_it(level: dict[str, str]) -> None:
    """Also at edges, in both columns of registers, and where sums of pixels overflow although no result does."""
    torch.manual_seed(0)
    conv = layer(32, 24, 1)
    x = torch.randn(3, 32, 12, 11)
    x[0, 3, 5, 4], x[0, 31, 0, 0], x[0, 0, 11, 10] = INF, NAN, -INF
    x[1, 7, 2:6, 2:6] = 2e38
    conv.weight[:, 7] *= 1e-3
    conv.weight[5, 0, 1, 1], conv.weight[20, 2, 0, 0] = 0.0, NAN
    conv.weight[3, 1, 0, 1], conv.weight[4, 30, 2, 2], conv.weight[23, 5, 1, 1] = INF, -INF, INF
    conv.weight[6, 9, 0, 0], conv.weight[6, 9, 2, 0] = 3e38, 3e38  # their sum is infinite, neither is
    x[:, 9] *= 0.1
    got = torch.compile(conv, backend="icpu", options=level)(x)
    exact = by_taps(x, conv)
    shown = exact.float()
    assert torch.equal(got.isnan(), shown.isnan())
    assert torch.equal(got.isinf(), shown.isinf())
    assert torch.equal(got[shown.isinf()], shown[shown.isinf()])
    seen = torch.nn.functional.max_pool2d(x.nan_to_num().abs().amax(1, keepdim=True), 5, 1, 2)
    largest = conv.weight.nan_to_num(0.0, 0.0, 0.0).abs().amax((1, 2, 3)).clamp_min(1.0)[:, None, None]
    finite = shown.isfinite()
    assert ((got - exact).abs() / (seen.double() * largest))[finite].max() <= 2e-6


@torch.no_grad()
def test_what_follows_is_computed_with_the_results_of_a_tile_and_weights_may_change(level: dict[str, str]) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = layer(32, 32, 1, bias=False), nn.BatchNorm2d(32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.norm(self.conv(x)) + x)

    torch.manual_seed(0)
    block, x = Block().eval().requires_grad_(False), torch.randn(2, 32, 9, 13)
    block.norm.running_mean.normal_()
    compiled, reports = compile_counted(block, options=level)
    assert torch.allclose(compiled(x), block(x), atol=1e-5)
    (report,) = reports
    assert report.externs == ()
    block.conv.weight.mul_(-0.5)
    assert torch.allclose(compiled(x), block(x), atol=1e-5)


@torch.no_grad()
def test_other_convolutions_are_not_multiplied_by_tiles(level: dict[str, str], tmp_path: Path) -> None:
    """Strides, dilations, other windows, channels that are no whole steps, few channels or columns, groups."""
    others = Layers(
        [
            nn.Conv2d(32, 16, 3, padding=1, stride=2),
            nn.Conv2d(32, 16, 3, padding=2, dilation=2),
            nn.Conv2d(32, 16, (3, 5), padding=(1, 2)),
            nn.Conv2d(40, 16, 3, padding=1),
            nn.Conv2d(16, 64, 3, padding=1),
            nn.Conv2d(32, 8, 3, padding=1),
            nn.Conv2d(64, 16, 3, padding=1, groups=2),
        ]
    )
    assert not any(compiled_by_tiles(others, level, tmp_path))


@torch.no_grad()
@pytest.mark.parametrize("setting", [{"cpp.winograd": False}, {"cpp.drop_original_weights": True}], ids=str)
def test_no_convolution_is_multiplied_by_tiles_if_the_setting_is_off_or_memory_is_to_be_saved(
    setting: dict[str, bool], level: dict[str, str], tmp_path: Path
) -> None:
    assert not any(compiled_by_tiles(Layers([layer(32, 16, 1)]), {**level, **setting}, tmp_path))


def compiled_by_tiles(module: Layers, settings: Mapping[str, object], folder: Path) -> list[bool]:
    """`templates` of the layers, whose results are checked."""
    module.eval().requires_grad_(False)
    images = [torch.randn(1, conv.in_channels, 8, 8) for conv in module.layers]
    with inductor_cpu.config.patch({"dump": str(folder)}):
        results = torch.compile(module, backend="icpu", options=dict(settings))(images)
    for got, expected in zip(results, module(images), strict=True):
        assert torch.allclose(got, expected, atol=1e-5)
    return templates(folder)
