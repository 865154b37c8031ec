"""Copies that nothing needs go; results stay tensors of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import inductor_cpu
from tests.graph.harness import aten, compile_passed

CLONE = aten.clone.default


def shuffled(x: torch.Tensor) -> torch.Tensor:
    """Its decomposition copies twice."""
    return torch.nn.functional.pixel_shuffle(x, 2)


def twice(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().view(-1).clone()


def read_between(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last).clone(memory_format=torch.preserve_format) + 1


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.t().contiguous()
    return y, y.clone()


def two_views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.t().contiguous()
    return y.view(-1).clone(), y.view(-1).clone()


def of_an_input(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1).clone()


def older(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    x.add_(1)
    return y


MATRIX, IMAGE = (5, 7), (2, 8, 3, 5)
CASES = [
    (shuffled, IMAGE, 1),
    (twice, MATRIX, 1),
    (read_between, IMAGE, 1),
    (two_results, MATRIX, 2),
    (two_views, MATRIX, 3),
    (of_an_input, MATRIX, 1),
    (older, MATRIX, 1),
]


@pytest.mark.parametrize(("function", "sizes", "copies"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_copies_of_copies_go_and_results_share_no_memory(
    function: Callable[..., Any], sizes: tuple[int, ...], copies: int
) -> None:
    compiled, passed = compile_passed(function)
    x = torch.randn(sizes)
    want, given = function(x.clone()), x.clone()
    have = compiled(given)
    assert len(passed.calls(CLONE)) == copies
    one = isinstance(want, torch.Tensor)
    results = [have] if one else list(have)
    for result, expected in zip(results, [want] if one else want, strict=True):
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()
    places = [result.untyped_storage().data_ptr() for result in (*results, given)]
    assert len(set(places)) == len(places)


def test_pixels_are_shuffled_by_one_kernel_without_gathers(tmp_path: Path) -> None:
    x = torch.randn(1, 8, 5, 32)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        assert torch.equal(torch.compile(shuffled, backend="icpu")(x), shuffled(x))
    (text,) = (path.read_text() for path in tmp_path.glob("*/icpu_*.cpp"))
    assert "gather" not in text


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_shuffled_pixels_behind_a_convolution_have_the_strides_of_eager(layout: torch.memory_format) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.PixelShuffle(2)).eval()
    x = torch.randn(2, 3, 9, 11).to(memory_format=layout)
    have, want = torch.compile(model, backend="icpu")(x), model(x)
    torch.testing.assert_close(have, want)
    assert have.stride() == want.stride()


@pytest.mark.parametrize(
    ("function", "operator", "named"),
    [
        (torch.linalg.svdvals, aten._linalg_svd.default, "compute_uv"),
        (torch.linalg.eigvalsh, aten._linalg_eigh.default, "compute_v"),
        (lambda x: torch.linalg.eigvalsh(x, UPLO="U"), aten._linalg_eigh.default, "compute_v"),
        (lambda x: torch.linalg.matrix_norm(x, 2), aten._linalg_svd.default, "compute_uv"),
    ],
    ids=["singular values", "eigenvalues", "of the upper triangle", "norm"],
)
def test_vectors_that_nobody_reads_are_not_computed(
    function: Callable[[torch.Tensor], torch.Tensor], operator: Any, named: str
) -> None:
    compiled, passed = compile_passed(function)
    x = torch.randn(3, 6, 6)
    torch.testing.assert_close(compiled(x), function(x))
    (call,) = passed.calls(operator)
    assert call.kwargs[named] is False


@pytest.mark.parametrize("function", [torch.linalg.svd, torch.linalg.eigh], ids=["svd", "eigh"])
def test_vectors_that_are_results_are_computed(function: Callable[[torch.Tensor], Any]) -> None:
    compiled, _ = compile_passed(function)
    x = torch.randn(6, 6)
    for actual, expected in zip(compiled(x + x.mT), function(x + x.mT), strict=True):
        torch.testing.assert_close(actual.abs(), expected.abs())


def test_vectors_for_gradients_are_kept() -> None:
    x = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.linalg.svdvals(x).sum(), x)
    compiled = torch.compile(torch.linalg.svdvals, backend="icpu")
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], expected)
