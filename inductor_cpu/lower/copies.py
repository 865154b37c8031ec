"""Copies and casts: clone, dtype conversions, functional copies, and copy_ into a graph input."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.loop_nest import Store
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.pointwise import aten, operand, prims
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.values import TensorValue, loop_dims, point


def copied(ctx: Lowering, node: fx.Node, value: Any) -> TensorValue:
    """A value broadcast to the node's shape and cast to its dtype, in a new buffer."""

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        return operand(ctx, body, at, value, value.dtype if isinstance(value, TensorValue) else meta_of(node).dtype)

    return ctx.pointwise(node, compute)


@rule(aten.alias.default, aten.detach.default, aten.lift_fresh.default, prims.view_of.default)
def alias(ctx: Lowering, node: fx.Node, x: TensorValue, *_: Any) -> TensorValue:
    return x


@rule(aten.clone.default, aten.lift_fresh_copy.default, aten.contiguous.default, prims.clone.default)
def clone(ctx: Lowering, node: fx.Node, x: TensorValue, **_: Any) -> TensorValue:
    return copied(ctx, node, x)


@rule(aten._to_copy.default)
def to_copy(ctx: Lowering, node: fx.Node, x: TensorValue, device: Any = None, layout: Any = None, **_: Any) -> Any:
    if device is not None and torch.device(device).type != "cpu":
        raise Unsupported(node, f"a copy to {device}")
    if layout not in (None, torch.strided):
        raise Unsupported(node, f"a copy to layout {layout}")
    return copied(ctx, node, x)


@rule(prims.convert_element_type.default)
def convert(ctx: Lowering, node: fx.Node, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    return copied(ctx, node, x)


@rule(aten.copy.default)
def copy(ctx: Lowering, node: fx.Node, x: TensorValue, source: TensorValue, *_: Any) -> TensorValue:
    return copied(ctx, node, source)


@rule(aten.copy_.default)
def copy_(ctx: Lowering, node: fx.Node, target: TensorValue, source: Any, *_: Any) -> TensorValue:
    """Store to the target's own memory, and return the target. A source that is another view of that memory is copied
    first: a loop would read elements that it has overwritten."""
    dims, body = loop_dims(target.sizes), Body()
    if isinstance(source, TensorValue) and source.buffer == target.buffer:
        at = point(dims)[target.ndim - source.ndim :]
        if source.at(at) == target.at(point(dims)):
            return target
        source = ctx.copy(node, source)
    value = operand(ctx, body, point(dims), source, target.dtype)
    ctx.add_nest(node, dims, (), body, (Store(target.buffer, target.at(point(dims)), value),))
    return target
