"""Compare lowered functions with eager where the order of the additions differs: against an fp64 reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.verify import verify_program
from tests.lower.harness import check, externs, lower


def check_exact(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False) -> None:
    """The lowered function is valid, makes no extern call and gives eager's bits."""
    verify_program(check(function, *inputs, dynamic=dynamic))


def interpreted(
    function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False, extern: bool = False
) -> Any:
    """What the lowered function gives: its only result, or all of them. `extern`: whether it must call ATen."""
    program = lower(function, *inputs, dynamic=dynamic)
    assert bool(externs(program)) == extern, externs(program)
    results = run(program, inputs)
    return results[0] if len(results) == 1 else results


def check_accurate(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False) -> None:
    """The error against an fp64 reference is at most twice eager's, plus two roundings of the first result's dtype
    (relative to the largest value). For fp64, eager itself is the reference, which has its own roundings: 16 then."""
    program = lower(function, *inputs, dynamic=dynamic)
    verify_program(program)
    assert not externs(program)
    double = [x.double() if x.dtype.is_floating_point else x for x in inputs]
    eager = tree_leaves(function(*inputs))
    rounding = torch.finfo(eager[0].dtype).eps * (16 if eager[0].dtype == torch.float64 else 2)
    for got, want, exact in zip(run(program, inputs), eager, tree_leaves(function(*double)), strict=True):
        assert isinstance(got, torch.Tensor)
        _same_layout(got, want)
        if want.dtype.is_floating_point:
            _within(got.double(), want.double(), exact.double(), rounding)
        else:
            assert torch.equal(got, want)


def _same_layout(got: torch.Tensor, want: torch.Tensor) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    for size, have, wanted in zip(want.shape, got.stride(), want.stride(), strict=True):
        assert size <= 1 or want.numel() == 0 or have == wanted, f"{got.stride()}, eager {want.stride()}"


def _within(got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor, rounding: float) -> None:
    finite = exact.isfinite()
    torch.testing.assert_close(got[~finite], exact[~finite], rtol=0, atol=0, equal_nan=True)
    if finite.any():
        got, want, exact = got[finite], want[finite], exact[finite]
        error, allowed = (got - exact).abs().max(), 2 * (want - exact).abs().max() + rounding * exact.abs().max()
        assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"
