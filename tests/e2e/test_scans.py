"""Scans from end to end: against eager and float64, with lanes along and across the scan, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from inductor_cpu import config
from inductor_cpu.targets.cpu import target_for
from tests.e2e.support import assert_same, compile_counted

Tensor = torch.Tensor
NAN, INF = float("nan"), float("inf")

SCANS: dict[str, Callable[[Tensor, int], Any]] = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: x.cumprod(dim),
    "cummax": lambda x, dim: tuple(x.cummax(dim)),
    "cummin": lambda x, dim: tuple(x.cummin(dim)),
    "logcumsumexp": lambda x, dim: x.logcumsumexp(dim),
}


@pytest.fixture(params=[0, 256, None], ids=["scalar", "256", "widest"])
def simdlen(request: pytest.FixtureRequest) -> Iterator[int | None]:
    with config.patch({"cpp.simdlen": request.param}):
        yield request.param


def kernels_only(reports: list[Any]) -> None:
    """No call of ATen; all kernels vectorized unless scalar code is asked for."""
    wanted = target_for(config.snapshot().cpp.simdlen).isa.bits > 64
    assert [extern for report in reports for extern in report.externs] == []
    assert all(kernel.vectorized == wanted for report in reports for kernel in report.kernels)


def floats(x: Tensor) -> list[Any]:
    return [SCANS[name](x, dim) for name in ("cumsum", "cumprod", "logcumsumexp") for dim in (0, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_folds_of_floats_are_as_near_to_float64_as_those_of_eager(dtype: torch.dtype, simdlen: int | None) -> None:
    x = (1 + torch.randn(37, 53) / 4).to(dtype)
    compiled, reports = compile_counted(floats)
    for ours, theirs, exact in zip(compiled(x), floats(x), floats(x.double()), strict=True):
        worst = (theirs.double() - exact).abs().max()
        assert (ours.double() - exact).abs().max() <= worst * 1.01 + exact.abs().max() * torch.finfo(dtype).eps / 2
    kernels_only(reports)


def test_folds_of_float64_are_added_in_another_order_only(simdlen: int | None) -> None:
    x = (1 + torch.randn(37, 53) / 4).double()
    compiled, reports = compile_counted(floats)
    assert_same(compiled(x), floats(x), rtol=1e-14, atol=1e-13)
    kernels_only(reports)


def extremes(x: Tensor) -> list[Any]:
    return [SCANS[name](x, dim) for name in ("cummax", "cummin") for dim in (0, 1)]


def whole(x: Tensor) -> list[Any]:
    return [SCANS[name](x, dim) for name in ("cumsum", "cumprod", "cummax") for dim in (0, 1)]


def test_extremes_are_those_of_eager_with_ties_nan_and_infinities(simdlen: int | None) -> None:
    x = torch.randint(-3, 4, (40, 35)).float()
    x[3, 7], x[9, 20], x[0, 0], x[20, 30], x[11] = NAN, NAN, -INF, INF, -0.0
    compiled, reports = compile_counted(extremes)
    assert_same(compiled(x), extremes(x), rtol=0, atol=0)
    kernels_only(reports)


def test_folds_of_integers_wrap_as_those_of_eager(simdlen: int | None) -> None:
    compiled, reports = compile_counted(whole)
    for dtype in (torch.int64, torch.int8):
        x = torch.randint(-100, 100, (19, 37)).to(dtype)
        assert_same(compiled(x), whole(x), rtol=0, atol=0)
    kernels_only(reports)


def test_infinities_and_nan_stay_in_a_sum() -> None:
    x = torch.ones(4, 40)
    x[0, 20], x[1, 5], x[2, 7], x[2, 30] = NAN, INF, INF, -INF
    compiled, _ = compile_counted(floats)
    assert_same(compiled(x), floats(x), rtol=1e-6, atol=0)


def test_scans_of_any_size() -> None:
    compiled, _ = compile_counted(whole, dynamic=True)
    for shape in ((5, 16), (33, 70), (2, 3)):
        x = torch.randint(-9, 9, shape)
        assert_same(compiled(x), whole(x), rtol=0, atol=0)


def test_a_scan_fuses_with_what_comes_before_and_after_it() -> None:
    def function(x: Tensor) -> Tensor:
        y = (x * 2).cumsum(1) + 1
        return y - y.amax(1, keepdim=True)

    x = torch.randint(-9, 9, (6, 45)).float()
    compiled, reports = compile_counted(function)
    assert_same(compiled(x), function(x), rtol=0, atol=0)
    assert [len(report.kernels) for report in reports] == [1]
    kernels_only(reports)


def test_positions_of_tokens_from_a_mask() -> None:
    def positions(mask: Tensor) -> Tensor:
        return ((mask.cumsum(-1) - 1) * mask).to(torch.int64) + 2

    mask = (torch.rand(3, 50) < 0.8).to(torch.int64)
    compiled, reports = compile_counted(positions)
    assert_same(compiled(mask), positions(mask), rtol=0, atol=0)
    assert [len(report.kernels) for report in reports] == [1]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_scans_over_no_elements_give_no_elements(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def program(x: Tensor) -> list[Any]:
        names = SCANS if x.is_floating_point() else [name for name in SCANS if name != "logcumsumexp"]
        return [SCANS[name](x, dim) for name in names for dim in range(x.ndim)]

    x = torch.empty(shape, dtype=dtype)
    compiled, reports = compile_counted(program)
    assert_same(compiled(x), program(x))
    assert [extern for report in reports for extern in report.externs] == []


def test_lanes_without_a_point_are_not_added(simdlen: int | None) -> None:
    """Rows of 8 lie apart, so that a tail is followed by the next row, and log(exp(0) + exp(0)) is not 0."""
    x, y = torch.randn(8, 17)[:, 1::2], torch.randn(8, 8)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.logaddexp(x, y).flatten().cumsum(0).unflatten(0, (8, -1)) / y

    torch.testing.assert_close(torch.compile(function, backend="icpu")(x, y), function(x, y))
