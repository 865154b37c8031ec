"""Tensors made from numbers: full, arange, linspace, eye."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.body import Body, check_held
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.pointwise import aten, operand, prims
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_expr
from inductor_cpu.lower.terms import Term, where
from inductor_cpu.lower.values import TensorValue

#: Operators that make an infinity of a number that low precision does not hold; others refuse it.
_ROUNDED = frozenset({aten.scalar_tensor.default, prims.scalar_tensor.default})


def filled(ctx: Lowering, node: fx.Node, value: Any) -> TensorValue:
    """The node's tensor with one value everywhere."""
    fake = meta_of(node)
    if fake.layout != torch.strided or fake.device.type != "cpu":
        raise Unsupported(node, f"a new tensor with layout {fake.layout} on {fake.device}")
    if fake.dtype not in LOW_PRECISION or node.target not in _ROUNDED:
        check_held(value, fake.dtype)
    return ctx.pointwise(node, lambda body, at: operand(ctx, body, at, value, fake.dtype))


@rule(aten.full.default, aten.full_like.default, prims.full.default, prims.full_like.default)
def full(ctx: Lowering, node: fx.Node, _: Any, value: Any, *__: Any, **___: Any) -> TensorValue:
    return filled(ctx, node, value)


@rule(aten.new_full.default)
def new_full(ctx: Lowering, node: fx.Node, _: Any, size: Any, value: Any, **__: Any) -> TensorValue:
    return filled(ctx, node, value)


@rule(aten.fill.Scalar, aten.fill.Tensor)
def fill(ctx: Lowering, node: fx.Node, _: Any, value: Any) -> TensorValue:
    return filled(ctx, node, value)


@rule(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    prims.empty_strided.default,
    aten.zero.default,
)
def zeros(ctx: Lowering, node: fx.Node, *_: Any, **__: Any) -> TensorValue:
    """Zeros; also for tensors whose contents are not defined."""
    return filled(ctx, node, 0)


@rule(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(ctx: Lowering, node: fx.Node, *_: Any, **__: Any) -> TensorValue:
    return filled(ctx, node, 1)


@rule(aten.scalar_tensor.default, prims.scalar_tensor.default)
def scalar_tensor(ctx: Lowering, node: fx.Node, value: Any, **_: Any) -> TensorValue:
    return filled(ctx, node, value)


# -- ranges ----------------------------------------------------------------------------------------------------------
def _accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager counts."""
    if dtype in LOW_PRECISION:
        return torch.float32
    return torch.float64 if dtype.is_floating_point else torch.int64


def _progression(ctx: Lowering, node: fx.Node, start: Any, step: Any) -> TensorValue:
    """start + k * step."""
    wide = _accumulate_dtype(meta_of(node).dtype)
    if wide == torch.int64 and all(isinstance(value, (int, Expr)) for value in (start, step)):
        return ctx.pointwise(node, lambda body, at: body.index(at[0] * size_expr(step) + size_expr(start)))

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        first, by = (Term(body, operand(ctx, body, (), value, wide)) for value in (start, step))
        return (first + Term(body, body.index(at[0])).cast(wide) * by).value

    return ctx.pointwise(node, compute)


@rule(aten.arange.default)
def arange(ctx: Lowering, node: fx.Node, end: Any, **_: Any) -> TensorValue:
    return _progression(ctx, node, 0, 1)


@rule(aten.arange.start, aten.arange.start_step)
def arange_from(ctx: Lowering, node: fx.Node, start: Any, end: Any, step: Any = 1, **_: Any) -> TensorValue:
    return _progression(ctx, node, start, step)


@rule(prims.iota.default)
def iota(ctx: Lowering, node: fx.Node, length: Any, *, start: Any, step: Any, **_: Any) -> TensorValue:
    return _progression(ctx, node, start, step)


@rule(aten.linspace.default)
def linspace(ctx: Lowering, node: fx.Node, start: Any, end: Any, steps: Any, **_: Any) -> TensorValue:
    """Counted from the nearer end, so that both ends are exact."""
    fake, count = meta_of(node), size_expr(steps)
    if count == 1 or not fake.dtype.is_floating_point or not isinstance(steps, int):
        if count == 1:
            return filled(ctx, node, start)
        raise Unsupported(node, "linspace of integers or of a length known at run time only")
    if fake.dtype in LOW_PRECISION:
        raise Unsupported(node, f"a linspace of {fake.dtype}: eager rounds its step, ATen's vectors know where")
    wide = fake.dtype

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        first, last = (Term(body, operand(ctx, body, (), value, wide)) for value in (start, end))
        step = (last - first) / (steps - 1)
        k, left = (Term(body, body.index(expr)).cast(wide) for expr in (at[0], count - 1 - at[0]))
        return where(Term(body, body.index(at[0])) < steps // 2, first + step * k, last - step * left).value

    return ctx.pointwise(node, compute)


@rule(aten.eye.default, aten.eye.m)
def eye(ctx: Lowering, node: fx.Node, *_: Any, **__: Any) -> TensorValue:
    return ctx.pointwise(node, lambda body, at: body.op("eq", body.index(at[0]), body.index(at[1])))
