"""Training steps whose convolutions of single pixels, and gradients of them, are products of matrices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import inductor_cpu
from tests.cases import in_turns
from tests.e2e.support import Layers, compile_counted, step

AVX2 = {"cpp.max_isa": "avx2"}

#: (channels, columns, sizes of the images, stride)
CASES = {
    "even sizes": (32, 48, (3, 8, 12), 1),
    "odd sizes": (7, 13, (2, 5, 9), 1),
    "one pixel an image": (24, 40, (6, 1, 1), 1),
    "one image of one pixel": (8, 16, (1, 1, 1), 1),
    "a line": (16, 8, (2, 1, 21), 1),
    "one channel": (1, 8, (2, 6, 5), 1),
    "one channel of one pixel": (1, 8, (3, 1, 1), 1),
    "one column": (8, 1, (2, 6, 5), 1),
    "every second pixel": (16, 24, (3, 9, 8), 2),
    "every third of some lines": (16, 24, (3, 9, 8), (2, 3)),
    "so many that a kernel of ours multiplies": (256, 192, (1, 28, 28), 1),
}


def plans(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*/*codegen.txt"))


@pytest.mark.parametrize(
    ("dtype", "dynamic"), in_turns([torch.float32, torch.bfloat16, torch.float16], [False, True]), ids=str
)
def test_a_step_is_as_near_to_the_exact_one_as_eager_s(dtype: torch.dtype, dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(c, k, 1, stride=stride, bias=n % 2 == 0) for n, (c, k, _, stride) in enumerate(CASES.values())]
    module = Layers(layers).to(dtype)
    images = [torch.randn(case[2][0], case[0], *case[2][1:]).to(dtype) for case in CASES.values()]
    if dynamic:
        for image in images:
            for dim in (0, 2, 3):
                torch._dynamo.maybe_mark_dynamic(image, dim)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        got = step(module, torch.compile(module, backend="icpu", options=AVX2), images)
    exact = step(copied := copy.deepcopy(module).double(), copied, [image.double() for image in images])
    eager = step(module, module, images)
    for number, (mine, true, other) in enumerate(zip(got, exact, eager, strict=True)):
        assert mine.stride() == other.stride(), number
        last_place = torch.finfo(dtype).eps * true.abs().max()
        assert (mine - true).abs().max() <= 2 * (other - true).abs().max() + 2 * last_place, number
    assert "aten.convolution" not in plans(tmp_path)
    assert any("= fma_" in path.read_text() for path in tmp_path.glob("*/*schedule.txt"))


class Part(nn.Module):
    """A convolution of some channels of an image, which are no image of their own, that is also a result."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.pixels = nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.Conv2d(10, 12, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.depthwise(x)
        return self.pixels(y[:, 5:15]), y


def test_channels_of_a_larger_image_have_eagers_gradients(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Part(), torch.randn(2, 24, 7, 6)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        compiled = torch.compile(module, backend="icpu", options=AVX2)
        got = step(module, lambda images: list(compiled(images[0])), [x])
    for mine, other in zip(got, step(module, lambda images: list(module(images[0])), [x]), strict=True):
        assert mine.stride() == other.stride()
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    assert plans(tmp_path).count("aten.convolution.default") == 1  # the depthwise one


def test_gradients_that_nobody_wants_are_not_computed() -> None:
    """Of the image of a first layer, and of weights that are frozen."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(64, 96, 1), nn.Conv2d(96, 32, 1).requires_grad_(False))
    x = torch.randn(2, 64, 9, 9)
    compiled, reports = compile_counted(module, options=AVX2)
    compiled(x).square().sum().backward()
    got = [p.grad.clone() for p in module[0].parameters()]
    module.zero_grad()
    module(x).square().sum().backward()
    for mine, p in zip(got, module[0].parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad, rtol=1e-4, atol=1e-3)
    assert [sum(e.count for e in r.externs if "mm" in e.op) for r in reports] == [2, 2]


#: Convolutions that are no such products, in float32 with AVX2, of images (4, 16, 8, 8).
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "padded": lambda: nn.Conv2d(16, 24, 1, padding=1),
    "grouped": lambda: nn.Conv2d(16, 24, 1, groups=2),
    "transposed": lambda: nn.ConvTranspose2d(16, 24, 1),
    "of lines": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(16, 24, 1)),
    "a window": lambda: nn.Conv2d(16, 24, (1, 2)),
    "float64": lambda: nn.Conv2d(16, 24, 1).double(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_aten_s(name: str, tmp_path: Path) -> None:
    module = OTHERS[name]()
    x = torch.randn(4, 16, 8, 8, dtype=next(module.parameters()).dtype)
    assert "aten.convolution" in plans_of_step(module, x, AVX2, tmp_path)


@pytest.mark.parametrize("settings", [{"cpp.weight_prepack": False}, {"cpp.max_isa": "avx512"}], ids=str)
def test_a_setting_or_another_cpu_leaves_them_to_aten(settings: dict[str, object], tmp_path: Path) -> None:
    if settings.get("cpp.max_isa") and "avx512f" not in inductor_cpu.targets.cpu.detect().features:
        pytest.skip("this CPU has no avx512")
    made = plans_of_step(nn.Conv2d(16, 24, 1), torch.randn(4, 16, 8, 8), settings, tmp_path)
    assert "aten.convolution" in made


def plans_of_step(module: nn.Module, x: torch.Tensor, settings: dict[str, object], folder: Path) -> str:
    """The plans of a step, whose numbers are checked."""
    torch.manual_seed(0)
    with inductor_cpu.config.patch({"dump": str(folder)}):
        compiled = torch.compile(module, backend="icpu", options=dict(settings))
        got = step(module, lambda images: [compiled(images[0])], [x])
    for mine, other in zip(got, step(module, lambda images: [module(images[0])], [x]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    return plans(folder)
