"""Gradients of pooling in compiled training steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from inductor_cpu.schedule.vectorize import Reason
from tests.cases import in_turns
from tests.e2e.support import compile_counted

Pool = Callable[[torch.Tensor], torch.Tensor]

POOLS: dict[str, Pool] = {
    "maximum of overlapping windows": lambda x: F.max_pool2d(x, 3, 2, 1),
    "maximum of neighbouring windows": lambda x: F.max_pool2d(x, 2),
    "maximum of dilated windows": lambda x: F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True),
    "adaptive maximum": lambda x: F.adaptive_max_pool2d(x, 5),
    "average of overlapping windows": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "average of neighbouring windows": lambda x: F.avg_pool2d(x, 2),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, 7),
}

#: Whose gradients are added to maxima one after another in contiguous planes.
OVERLAPPING_MAXIMA = ("maximum of overlapping windows", "maximum of dilated windows", "adaptive maximum")

#: Dtypes and layouts, which each pooling has in turns.
FORMS = [
    (torch.float32, torch.contiguous_format),
    (torch.bfloat16, torch.channels_last),
    (torch.float32, torch.channels_last),
    (torch.bfloat16, torch.contiguous_format),
]
STEPS = in_turns(POOLS, FORMS)


@pytest.mark.parametrize(("name", "form"), STEPS, ids=str)
def test_the_gradient_of_pooling_is_a_loop_as_exact_as_eager(
    name: str, form: tuple[torch.dtype, torch.memory_format]
) -> None:
    dtype, memory_format = form
    x = torch.randn(2, 20, 35, 37).to(dtype).contiguous(memory_format=memory_format)
    pool = POOLS[name]

    def function(x: torch.Tensor) -> torch.Tensor:
        return pool(x.relu())

    compiled, reports = compile_counted(function)
    weights = torch.randn_like(function(x))
    ours, theirs, exact = (
        _gradient(f, x, weights, t) for f, t in ((compiled, dtype), (function, dtype), (function, torch.double))
    )
    assert ours.stride() == theirs.stride()
    error, allowed = (
        (ours - exact).abs().max(),
        2 * (theirs - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max(),
    )
    assert error <= allowed
    backward = reports[1]
    assert (backward.kind, backward.extern_calls) == ("backward", 0)
    scalar = [kernel for kernel in backward.kernels if not kernel.vectorized]
    within_planes = memory_format == torch.contiguous_format and name in OVERLAPPING_MAXIMA
    assert len(scalar) == within_planes
    assert all(kernel.reasons == (Reason.ADDS.value,) for kernel in scalar)


def _gradient(function: Pool, x: torch.Tensor, weights: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    leaf = x.clone().to(dtype).requires_grad_()
    (function(leaf) * weights.to(dtype)).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def test_positions_that_max_pooling_keeps_are_int32() -> None:
    kept: list[torch.Tensor] = []
    compiled, _ = compile_counted(lambda x: F.max_pool2d(x, 3, 2, 1))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        compiled(torch.randn(2, 3, 9, 9, requires_grad=True)).sum().backward()
    assert [t.dtype for t in kept if not t.is_floating_point()] == [torch.int32]


def test_positions_that_the_program_returns_stay_int64() -> None:
    x = torch.randn(2, 3, 9, 9)
    compiled, _ = compile_counted(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True))
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    values, positions = compiled(leaf)
    expected, places = F.max_pool2d(other, 3, 2, 1, return_indices=True)
    values.sum().backward()
    expected.sum().backward()
    assert torch.equal(positions, places)
    assert leaf.grad is not None
    assert other.grad is not None
    assert torch.equal(leaf.grad, other.grad)


@pytest.mark.parametrize(("scale", "calls"), [(2.0, 0), (1.05, 1)], ids=["another size", "the same size"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_the_gradient_of_resizing_is_a_loop_unless_a_size_stays(mode: str, scale: float, calls: int) -> None:
    x = torch.randn(2, 5, 9, 11)

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x.relu(), scale_factor=scale, mode=mode)

    compiled, reports = compile_counted(function)
    weights = torch.randn_like(function(x))
    ours, theirs = (_gradient(f, x, weights, torch.float32) for f in (compiled, function))
    torch.testing.assert_close(ours, theirs)
    assert reports[1].extern_calls == calls


RESIZED: dict[str, tuple[int, ...]] = {
    "nearest of lines": (2, 3, 9),
    "nearest-exact of lines": (2, 3, 9),
    "linear": (2, 3, 9),
    "bilinear": (2, 3, 9, 11),
    "nearest of volumes": (2, 3, 5, 9, 7),
    "nearest-exact of volumes": (2, 3, 5, 9, 7),
    "trilinear": (2, 3, 5, 9, 7),
    "bicubic": (2, 3, 9, 11),
}


@pytest.mark.parametrize(("name", "channels_last"), in_turns(RESIZED, [False, True]))
def test_gradients_of_resizing_are_eager_s_where_sizes_are_symbols(name: str, channels_last: bool) -> None:
    mode = name.split()[0]

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x.relu(), scale_factor=1.1, mode=mode, antialias=mode == "bicubic")

    compiled = torch.compile(function, backend="icpu", dynamic=True)
    for longer in (0, 11):
        x = torch.randn([*RESIZED[name][:-1], RESIZED[name][-1] + longer])
        x = x.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else x
        weights = torch.randn_like(function(x))
        ours, theirs = (_gradient(f, x, weights, torch.float32) for f in (compiled, function))
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
