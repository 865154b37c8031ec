"""Values that an operator refuses, seen at run time: the kernel goes on, and reports a RuntimeError at its end."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.ir.operators import UNIT_INTERVAL
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.terms import Term, where
from inductor_cpu.lower.values import TensorValue


def required(condition: Term, value: Term) -> Term:
    """The value; it is an error where the condition (a bool term) is false."""
    return where(condition.op("check_true"), value, value)  # a check that nothing uses would go


def held(ctx: Lowering, node: fx.Node, value: Any, dtype: torch.dtype) -> Any:
    """A number to fill with, in the dtype. An element whose dtype has numbers that the other one does not hold is
    looked at; numbers of Python were before (`check_held`)."""
    if not isinstance(value, TensorValue) or _holds(dtype, value.dtype):
        return value

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        given = Term(body, body.load(value, (ZERO,) * value.ndim))
        wide = given.cast(torch.float64 if value.dtype.is_floating_point else torch.int64)
        low, high = _limits(dtype)
        inside = (wide >= low) & (wide <= high)
        if dtype.is_floating_point and value.dtype.is_floating_point:
            inside = inside | wide.op("isnan") | wide.op("isinf")
        return required(inside, given.cast(dtype)).value

    return ctx.pointwise(node, compute, (), dtype)


def _holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a dtype holds the numbers of another one, rounded where both are floats."""
    if torch.bool in (dtype, other):
        return True
    if other.is_floating_point and not dtype.is_floating_point:
        return False
    (low, high), (least, most) = _limits(dtype), _limits(other)
    return low <= least and most <= high


def _limits(dtype: torch.dtype) -> tuple[float, float]:
    """The least and the largest finite number; an unsigned dtype takes negative ones, too, modulo its range."""
    if dtype.is_floating_point:
        return torch.finfo(dtype).min, torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return limits.min or -limits.max, limits.max


@rule(UNIT_INTERVAL)
def unit_interval(ctx: Lowering, node: fx.Node, x: TensorValue) -> TensorValue:
    """x, whose elements must lie between 0 and 1."""

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        value = Term(body, body.load(x, at))
        return required((value >= 0) & (value <= 1), value).value

    return ctx.pointwise(node, compute)
