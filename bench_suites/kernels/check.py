"""Whether a compiled function gives what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench_suites.kernels.row import F32, Inputs
from bench_suites.suites.case import tensors


def outcome(function: Callable[..., Any], inputs: Inputs) -> list[torch.Tensor]:
    """The outputs of a call on copies of the inputs, and the copies, which it may have changed."""
    copies = tuple(t.clone() for t in inputs)
    torch.manual_seed(1)
    return [*(t.detach().clone() for t in tensors(function(*copies))), *copies]


def exact(function: Callable[..., Any], inputs: Inputs) -> list[torch.Tensor]:
    """The outcome of eager in double precision."""
    return outcome(function, tuple(t.double() if t.is_floating_point() else t for t in inputs))


def difference(got: list[torch.Tensor], eager: list[torch.Tensor], best: list[torch.Tensor]) -> str | None:
    """Why an outcome is not as good as eager's, in words; None when it is.

    Integers and booleans are equal. Floats are as near to the results in double precision as eager's: at most twice its
    largest error and a few units of the last place of the largest value.
    """
    if [(t.shape, t.dtype, t.stride()) for t in got] != [(t.shape, t.dtype, t.stride()) for t in eager]:
        return f"{[(tuple(t.shape), t.dtype, t.stride()) for t in got]} in place of eager's shapes, dtypes and strides"
    for place, (mine, theirs, double) in enumerate(zip(got, eager, best, strict=True)):
        if not mine.is_floating_point() or not double.is_floating_point():
            if not torch.equal(mine, theirs):
                return f"result {place}: {int((mine != theirs).sum())} of {mine.numel()} values differ"
            continue
        last = torch.finfo(mine.dtype).eps
        mine, theirs, double = mine.double(), theirs.double(), double.double()  # floats of 8 bits have no tests
        if not torch.equal(mine.isfinite(), theirs.isfinite()):
            return f"result {place}: not finite where eager is, or the other way"
        finite = theirs.isfinite() & double.isfinite()
        if not finite.any():
            continue
        reference = double[finite]
        error = (mine[finite] - reference).abs().max().item()
        eager_error = (theirs[finite] - reference).abs().max().item()
        last_place = last * reference.abs().max().item()
        # Of values that are computed in float32 even then (casts in the function), the reference is no better.
        own = torch.finfo(F32).eps * reference.abs().max().item()
        if error > 2 * eager_error + last_place + 4 * own:
            return f"result {place}: error {error:.3g}, eager's {eager_error:.3g}"
    return None
