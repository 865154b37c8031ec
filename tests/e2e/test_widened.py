"""Convolutions of bf16 and f16 on CPUs where oneDNN has none of the type: they are computed in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.cases import cases, in_turns
from tests.e2e.support import Layers, compile_counted, step

DTYPES = [torch.bfloat16, torch.float16]

#: A layer, and the sizes of its images.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "3x3 by tiles": (lambda: nn.Conv2d(32, 48, 3, padding=1), (3, 32, 8, 9)),
    "5x5 with a stride": (lambda: nn.Conv2d(8, 12, 5, padding=2, stride=2, bias=False), (2, 8, 11, 10)),
    "dilated": (lambda: nn.Conv2d(8, 12, 3, dilation=2), (2, 8, 11, 10)),
    "grouped": (lambda: nn.Conv2d(24, 12, 3, groups=4), (2, 24, 7, 8)),
    "depthwise": (lambda: nn.Conv2d(16, 16, 7, padding=3, groups=16), (2, 16, 9, 8)),
    "single pixels with gaps": (lambda: nn.Conv2d(8, 12, 1, stride=2), (2, 8, 9, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2), (2, 8, 5, 6)),
    "of lines": (lambda: nn.Conv1d(8, 6, 3), (2, 8, 21)),
    "of volumes": (lambda: nn.Conv3d(4, 6, 3, bias=False), (2, 4, 5, 6, 7)),
}


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without convolutions of low precision, whatever this one has."""
    monkeypatch.setattr("inductor_cpu.graph.widened.unsupported_dtype", lambda *_: "this CPU has no such convolution")


@pytest.mark.parametrize(("dtype", "dynamic"), in_turns(DTYPES, [False, True]), ids=str)
@pytest.mark.usefixtures("lacking")
def test_a_step_is_as_near_to_the_exact_one_as_eager_s(dtype: torch.dtype, dynamic: bool) -> None:
    torch.manual_seed(0)
    module = Layers(make() for make, _ in LAYERS.values()).to(dtype)
    images = [torch.randn(sizes).to(dtype) for _, sizes in LAYERS.values()]
    if dynamic:
        for image in images:
            torch._dynamo.maybe_mark_dynamic(image, 0)
    compiled, reports = compile_counted(module)
    got = step(module, compiled, images)
    exact = step(copied := copy.deepcopy(module).double(), copied, [image.double() for image in images])
    eager = step(module, module, images)
    for number, (mine, true, other) in enumerate(zip(got, exact, eager, strict=True)):
        assert (mine.dtype, mine.stride()) == (dtype, other.stride()), number
        last_place = torch.finfo(dtype).eps * true.abs().max()
        assert (mine - true).abs().max() <= 1.5 * (other - true).abs().max() + last_place, number
    for kind in ("in float32", "by tiles of windows"):
        assert all(any(note.endswith(kind) for note in report.notes) for report in reports), kind


@pytest.mark.usefixtures("lacking")
def test_autocast_trains_in_float32_what_it_casts() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Conv2d(8, 12, 3), nn.ReLU(), nn.Conv2d(12, 6, 3)), torch.randn(2, 8, 9, 9)

    def run(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        def cast(image: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return function(image)

        return step(module, lambda images: [cast(images[0])], [x])

    compiled, reports = compile_counted(module)
    for mine, other in zip(run(compiled), run(module), strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-2, atol=2e-2)
    assert all("2 convolutions and gradients of convolutions in float32" in report.notes for report in reports)


@pytest.mark.usefixtures("lacking")
def test_a_step_keeps_nothing_in_float32() -> None:
    """Images would take twice the memory until the gradients are computed."""
    kept: list[torch.Tensor] = []
    module = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 48, 3)).bfloat16()
    compiled, reports = compile_counted(module)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        compiled(torch.randn(3, 32, 9, 9).bfloat16()).sum().backward()
    assert "2 convolutions and gradients of convolutions by tiles of windows" in reports[0].notes
    assert {t.dtype for t in kept} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("name", "dtype"),
    cases(
        [("transposed", torch.bfloat16), ("of lines", torch.float16), ("of volumes", torch.bfloat16)],
        [("transposed", torch.float16), ("of lines", torch.bfloat16), ("of volumes", torch.float16)],
    ),
    ids=str,
)
@pytest.mark.usefixtures("lacking")
@torch.no_grad()
def test_inference_widens_what_no_kernel_of_ours_computes(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an edit of the weight."""
    monkeypatch.setattr("inductor_cpu.graph.convolution.unsupported_dtype", lambda *_: "this CPU has none")
    torch.manual_seed(0)
    make, sizes = LAYERS[name]
    module, x = make().eval().to(dtype), torch.randn(sizes).to(dtype)
    compiled, reports = compile_counted(module)
    for _ in range(2):
        got, exact = compiled(x), copy.deepcopy(module).double()(x.double())
        assert got.stride() == module(x).stride()
        assert ((got - exact).abs() <= torch.finfo(dtype).eps * (exact.abs() + 1e-3)).all()
        module.weight.mul_(-2)
    assert "1 convolutions in float32" in reports[0].notes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.usefixtures("lacking")
def test_other_types_stay_what_they_are(dtype: torch.dtype) -> None:
    compiled, reports = compile_counted(nn.Conv2d(8, 12, 3).to(dtype))
    compiled(torch.randn(2, 8, 9, 9, dtype=dtype)).sum().backward()
    assert not any("in float32" in note for note in reports[0].notes)


def test_what_onednn_has_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inductor_cpu.graph.widened.unsupported_dtype", lambda *_: None)
    compiled, reports = compile_counted(nn.Conv2d(8, 12, 3).bfloat16())
    compiled(torch.randn(2, 8, 9, 9).bfloat16()).sum().backward()
    assert not any("in float32" in note for note in reports[0].notes)
