"""Training steps whose convolutions of 3 x 3 windows, and gradients of them, are computed by tiles of windows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

import inductor_cpu
from tests.e2e.support import Layers, compile_counted, step

INF, NAN = float("inf"), float("nan")

#: (channels, columns, padding, sizes of the images)
CASES = {
    "even sizes": (32, 32, 1, (3, 8, 12)),
    "odd sizes, columns of some panels": (32, 48, 1, (4, 7, 9)),
    "without padding": (48, 32, 0, (4, 9, 8)),
    "padding on one side": (32, 64, (0, 1), (5, 8, 5)),
    "padding of two": (32, 32, 2, (5, 5, 6)),
    "one result an image": (32, 32, 0, (130, 3, 3)),
    "a line": (32, 32, 1, (7, 1, 21)),
    "more tiles than are packed at once": (32, 112, 1, (2, 45, 36)),
}


def calls(folder: Path) -> dict[str, int]:
    """How many kernels call each of the templates, and how many calls of ATen's convolutions there are."""
    texts = [path.read_text() for path in folder.glob("*/icpu_*.cpp")]
    names = ("convolve_tiles", "gradient_of_weights", "pack_tiles")
    plans = "".join(path.read_text() for path in folder.glob("*/*codegen.txt"))
    return {"aten": plans.count("aten.convolution"), **{n: sum(f"{n}<" in text for text in texts) for n in names}}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_step_is_as_near_to_the_exact_one_as_eager_s(dynamic: bool, level: dict[str, str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(c, k, 3, padding=pad, bias=n % 2 == 0) for n, (c, k, pad, _) in enumerate(CASES.values())]
    module = Layers(layers)
    images = [torch.randn(case[3][0], case[0], *case[3][1:]) for case in CASES.values()]
    if dynamic:
        for image in images:
            torch._dynamo.maybe_mark_dynamic(image, 0)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        got = step(module, torch.compile(module, backend="icpu", options=level), images)
    exact = step(copied := copy.deepcopy(module).double(), copied, [image.double() for image in images])
    eager = step(module, module, images)
    for number, (mine, true, other) in enumerate(zip(got, exact, eager, strict=True)):
        assert mine.stride() == other.stride(), number
        last_place = torch.finfo(torch.float32).eps * true.abs().max()
        assert (mine - true).abs().max() <= 2 * (other - true).abs().max() + 8 * last_place, number
    made = calls(tmp_path)
    assert made.pop("aten") == 0
    assert min(made.values()) > 0, made


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_gradients_are_the_same_for_any_number_of_threads_that_share_channels_or_tiles(
    threads: int, level: dict[str, str]
) -> None:
    """Up to the order of their sums."""
    torch.manual_seed(0)
    module = Layers([nn.Conv2d(64, 96, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)])
    images = [torch.randn(3, 64, 8, 8), torch.randn(2, 32, 40, 40)]
    expected = step(module, module, images)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got = step(module, torch.compile(module, backend="icpu", options=level), images)
    finally:
        torch.set_num_threads(before)
    for mine, other in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_an_infinite_weight_meets_only_the_pixels_it_sees(level: dict[str, str]) -> None:
    torch.manual_seed(0)
    conv, x = nn.Conv2d(32, 32, 3, padding=1, bias=False), torch.randn(4, 32, 7, 8, requires_grad=True)
    with torch.no_grad():
        conv.weight[5, 4, 0, 0] = conv.weight[5, 9, 2, 2] = INF

    got = torch.compile(conv, backend="icpu", options=level)(x)
    got.backward(torch.ones_like(got))
    assert got[:, 5, 0, -1].isfinite().all()  # the corners that neither weight sees
    assert got[:, 5, -1, 0].isfinite().all()
    assert got[:, 5].isfinite().sum() == 8
    assert not got.isnan()[:, :5].any()
    assert x.grad is not None
    assert x.grad[:, 4].isinf().sum() == 4 * 6 * 7
    assert x.grad[:, 9].isinf().sum() == 4 * 6 * 7
    assert not x.grad.isnan().any()


def test_what_is_not_finite_stays_in_the_weights_that_see_it(level: dict[str, str]) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(32, 32, 3, bias=False)
    x = torch.randn(2, 32, 12, 13)
    x[0, 3, 5, 4], x[1, 17, 0, 0] = INF, NAN  # the corner is seen by one weight of a window

    def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        conv.zero_grad()
        results = function(x)
        gradients = torch.ones_like(results)
        gradients[0, 9, 0, 0] = INF
        results.backward(gradients)
        assert conv.weight.grad is not None
        return conv.weight.grad

    got, eager = gradient(torch.compile(conv, backend="icpu", options=level)).clone(), gradient(conv)
    assert torch.equal(got.isnan(), eager.isnan())
    assert torch.equal(got.isinf(), eager.isinf())
    assert 0 < eager.isfinite().sum() < eager.numel()
    finite = eager.isfinite()
    torch.testing.assert_close(got[finite], eager[finite], rtol=1e-4, atol=1e-4)


def test_gradients_that_nobody_wants_are_not_computed(level: dict[str, str], tmp_path: Path) -> None:
    """Of the image of a first layer, and of weights that are frozen."""
    first, second = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1).requires_grad_(False)
    module = nn.Sequential(first, second)
    x = torch.randn(2, 32, 9, 9)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        compiled = torch.compile(module, backend="icpu", options=level)
        compiled(x).square().sum().backward()
    got = [p.grad.clone() for p in first.parameters()]
    module.zero_grad()
    module(x).square().sum().backward()
    for mine, p in zip(got, first.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad, rtol=1e-4, atol=1e-3)
    made = calls(tmp_path)
    assert (made["aten"], made["gradient_of_weights"]) == (0, 1)


OTHERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "strided": (lambda: nn.Conv2d(32, 32, 3, padding=1, stride=2), (4, 32, 16, 16)),
    "dilated": (lambda: nn.Conv2d(32, 32, 3, padding=2, dilation=2), (4, 32, 8, 8)),
    "grouped": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=2), (4, 64, 8, 8)),
    "part of a step": (lambda: nn.Conv2d(40, 40, 3, padding=1), (4, 40, 8, 8)),
    "few windows": (lambda: nn.Conv2d(32, 32, 3, padding=1), (1, 32, 8, 8)),
    "float64": (lambda: nn.Conv2d(32, 32, 3, padding=1).double(), (4, 32, 8, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(32, 32, 3, padding=1), (4, 32, 8, 8)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_aten_s(name: str, tmp_path: Path) -> None:
    make, shape = OTHERS[name]
    assert of_one_layer(make(), shape, {}, tmp_path)["pack_tiles"] == 0


@pytest.mark.parametrize("setting", ["cpp.winograd", "cpp.weight_prepack"])
def test_a_setting_leaves_all_of_them_to_aten(setting: str, tmp_path: Path) -> None:
    layer = nn.Conv2d(32, 32, 3, padding=1)
    assert of_one_layer(layer, (4, 32, 8, 8), {setting: False}, tmp_path)["pack_tiles"] == 0


def test_an_image_that_is_padded_by_more_than_a_window_has_gradients_of_aten_s(tmp_path: Path) -> None:
    layer = nn.Conv2d(32, 32, 3, padding=3)
    made = of_one_layer(layer, (4, 32, 8, 8), {}, tmp_path)
    assert (made["convolve_tiles"], made["gradient_of_weights"]) == (1, 1)


def of_one_layer(
    layer: nn.Module, shape: tuple[int, ...], settings: Mapping[str, object], folder: Path
) -> Mapping[str, int]:
    """`calls` of a step of a layer, whose numbers are checked."""
    torch.manual_seed(0)
    module = Layers([layer])
    images = [torch.randn(shape, dtype=next(layer.parameters()).dtype)]
    with inductor_cpu.config.patch({"dump": str(folder)}):
        got = step(module, torch.compile(module, backend="icpu", options=dict(settings)), images)
    for mine, other in zip(got, step(module, module, images), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    return calls(folder)


class Shrinking(nn.Module):
    """A residual block with a 1 x 1 convolution of every second pixel beside 3 x 3 ones, as in ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.beside = nn.Conv2d(32, 32, 1, stride=(2, 3), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.silu(self.first(x))
        return self.beside(y) + self.second(y)[..., ::2, ::3]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_single_pixels_with_gaps_beside_tiles_have_eagers_gradients(dynamic: bool, level: dict[str, str]) -> None:
    torch.manual_seed(0)
    module, x = Shrinking(), torch.randn(3, 32, 9, 11)
    if dynamic:
        for dim in (0, 2, 3):
            torch._dynamo.maybe_mark_dynamic(x, dim)
    compiled = torch.compile(module, backend="icpu", options=level)
    got = step(module, lambda images: [compiled(images[0])], [x])
    exact = step(copied := copy.deepcopy(module).double(), lambda images: [copied(images[0])], [x.double()])
    eager = step(module, lambda images: [module(images[0])], [x])
    for mine, true, other in zip(got, exact, eager, strict=True):
        assert mine.stride() == other.stride()
        assert (mine - true).abs().max() <= 2 * (other - true).abs().max() + 1e-6 * true.abs().max()


class Features(nn.Module):
    """Tiles, and a convolution with more weights than pixels, as the head of VGG is written."""

    def __init__(self) -> None:
        super().__init__()
        self.tiled, self.head = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 48, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.tiled(x)))


def test_a_convolution_with_more_weights_than_pixels_keeps_the_layout_of_its_weights() -> None:
    torch.manual_seed(0)
    module, x = Features(), torch.randn(3, 32, 8, 8)
    compiled, reports = compile_counted(module)
    got = step(module, lambda images: [compiled(images[0])], [x])
    for mine, other in zip(got, step(module, lambda images: [module(images[0])], [x]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    assert "2 convolutions and gradients of convolutions run channels-last" in reports[0].notes


def test_a_few_tiles_among_other_convolutions_do_not_change_their_layout() -> None:
    """Less than a quarter of the work: tiles copy their images."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 160, 5, padding=2)]
    module, x = nn.Sequential(*layers), torch.randn(3, 32, 8, 8)
    compiled, reports = compile_counted(module)
    got = step(module, lambda images: [compiled(images[0])], [x])
    for mine, other in zip(got, step(module, lambda images: [module(images[0])], [x]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    notes = " ".join(note for report in reports for note in report.notes)
    assert "channels-last" not in notes
    assert "1 convolutions and gradients of convolutions by tiles of windows" in notes


@pytest.mark.parametrize("dim", [0, 2])
def test_images_whose_sizes_depend_on_data_may_be_none(dim: int, level: dict[str, str]) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(32, 48, 3, padding=1)
    compiled = torch.compile(conv, backend="icpu", options=level)
    for size in (5, 0) if dim == 0 else (5,):
        x = torch.randn([size if d == dim else n for d, n in enumerate((4, 32, 9, 10))])
        torch._dynamo.decorators.mark_unbacked(x, dim)
        got = step(conv, lambda images: [compiled(images[0])], [x])
        for mine, other in zip(got, step(conv, lambda images: [conv(images[0])], [x]), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
