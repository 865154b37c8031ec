"""What a call gives, and whether two backends gave the same, as PyTorch's own dashboards judge it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import same

from bench_suites.suites.case import tensors

Outcome = dict[str, list[torch.Tensor]]
"""Tensors by what they are: outputs, and of a training step also loss, gradients and buffers, all in a fixed order."""


def collect(module: nn.Module, output: Any, loss: torch.Tensor | None) -> Outcome:
    """Copies of the outputs, which a later call might overwrite; with a loss, also of gradients and buffers.

    A parameter without a gradient has no entry, so that a gradient that is missing on one side is a difference.
    """
    outcome = {"outputs": [t.detach().clone() for t in tensors(output)]}
    if loss is None:
        return outcome
    outcome["loss"] = [loss.detach().clone()]
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            outcome[f"gradient of {name}"] = [parameter.grad.detach().clone()]
    for name, buffer in module.named_buffers():
        outcome[f"buffer {name}"] = [buffer.detach().clone()]
    return outcome


def difference(expected: Outcome, actual: Outcome, exact: Outcome | None, tolerance: float) -> str | None:
    """Why `actual` is not the same as `expected`, in words; None when it is.

    `exact` is the outcome in double precision: what differs by more than the tolerance still passes when its RMSE to
    `exact` is at most a small multiple of `expected`'s own (`torch._dynamo.utils.same`).
    """
    if expected.keys() != actual.keys():
        odd = sorted(expected.keys() ^ actual.keys())
        return f"only one side has: {', '.join(odd[:5])}"
    for name, values in expected.items():
        others = actual[name]
        if [v.shape for v in values] != [o.shape for o in others]:
            return f"{name}: {_shapes(values)} became {_shapes(others)}"
        doubles = exact.get(name) if exact is not None else None
        if doubles is None or [d.shape for d in doubles] != [v.shape for v in values]:
            doubles = values
        else:  # a model that casts its result does so in double precision, too, and `same` would not look at it
            doubles = [d.double() if d.is_floating_point() else d for d in doubles]
        for value, other, double in zip(values, others, doubles, strict=True):
            messages: list[str] = []
            passes = same(
                value,
                other,
                double,
                tol=tolerance,
                equal_nan=True,
                log_error=lambda text, *args, into=messages: into.append(text % args),
            )
            if not passes:
                detail = "; ".join(messages) or "the values differ"
                return f"{name}, {value.dtype} {tuple(value.shape)}: {detail} (largest error {_error(value, other)})"
    return None


def relative_error(outcome: Outcome, exact: Outcome) -> float:
    """RMSE over the RMS of the exact values, the largest over the floating outputs."""
    errors = [0.0]
    for value, double in zip(outcome["outputs"], exact["outputs"], strict=True):
        if double.is_floating_point() and double.numel() and value.shape == double.shape:
            scale = double.square().mean().sqrt().item()
            error = (value.double() - double.double()).square().mean().sqrt().item()
            errors.append(error / scale if scale else error)
    return max(errors)


def _shapes(values: list[torch.Tensor]) -> str:
    return ", ".join(str(tuple(v.shape)) for v in values) or "nothing"


def _error(value: torch.Tensor, other: torch.Tensor) -> str:
    if not value.numel():
        return "none"
    return f"{(value.double() - other.double()).abs().max().item():.3g} of {value.double().abs().max().item():.3g}"
