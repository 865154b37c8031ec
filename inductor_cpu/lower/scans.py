"""Scans: cumsum, cumprod, cummax, cummin, logcumsumexp. One nest that folds along the dimension and stores each point.

Sums, products and logarithms of sums are folded as eager folds them, f32 in f64, low precision in f32, integers in
int64, and rounded once at each point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, of
from inductor_cpu.ir.loop_nest import Scan, Store
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims
from inductor_cpu.lower.views import canonical

#: (body, position) -> the values of each result at a point.
Compute = Callable[[Body, tuple[Expr, ...]], tuple[int, ...]]


def _scan(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, fakes: Sequence[torch.Tensor], compute: Compute
) -> tuple[TensorValue, ...]:
    """The results of a scan of x along dim, each of x's shape."""
    if x.dtype.is_complex:
        raise Unsupported(node, f"a scan of {x.dtype}")
    outs = [ctx.new_buffer(fake.dtype, size_exprs(fake.shape), dense_strides(fake)) for fake in fakes]
    dims = loop_dims(x.sizes)
    position, body = tuple(map(of, dims)), Body()
    values = compute(body, position)
    stores = tuple(
        Store(out.name, position, body.cast(value, out.dtype)) for out, value in zip(outs, values, strict=True)
    )
    ctx.add_nest(node, (*dims[:dim], *dims[dim + 1 :]), (dims[dim],), body, stores)
    return tuple(map(ctx.whole, outs))


def _running(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, kind: str) -> TensorValue:
    """sum, prod or logaddexp of all elements up to each one."""
    fake = meta_of(node)
    dtype: torch.dtype = fake.dtype
    if dtype == torch.bool:
        raise Unsupported(node, "a scan that gives bools, which is an error")
    wide = torch.float32 if dtype in LOW_PRECISION else torch.float64 if dtype.is_floating_point else torch.int64

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[int]:
        value = body.cast(body.cast(body.load(x, at), dtype), wide)
        return (value if x.ndim == 0 else body.emit(Scan(kind, value, wide)),)

    if x.ndim == 0:
        return ctx.pointwise(node, lambda body, at: compute(body, at)[0])
    return _scan(ctx, node, x, canonical(dim, x.ndim), (fake,), compute)[0]


@rule(aten.cumsum.default)
def cumsum(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, *, dtype: Any = None) -> TensorValue:
    return _running(ctx, node, x, dim, "sum")


@rule(aten.cumprod.default)
def cumprod(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, *, dtype: Any = None) -> TensorValue:
    return _running(ctx, node, x, dim, "prod")


@rule(aten.logcumsumexp.default)
def logcumsumexp(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int) -> TensorValue:
    if not x.dtype.is_floating_point:
        raise Unsupported(node, f"logcumsumexp of {x.dtype}")
    return _running(ctx, node, x, dim, "logaddexp")


def _extreme(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, kind: str) -> tuple[TensorValue, TensorValue]:
    """(the extreme of all elements up to each one, its position)."""
    values, positions = meta_of(node)
    if x.ndim == 0:
        first = ctx.pointwise(node, lambda body, at: body.load(x, at), (), values.dtype)
        return first, ctx.pointwise(node, lambda body, at: body.const(0, torch.int64), (), torch.int64)

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[int, int]:
        value = body.load(x, at)
        value = body.cast(value, torch.uint8) if x.dtype == torch.bool else value
        found = body.emit(Scan(kind, value, body.dtype(value)))
        return body.cast(found, x.dtype), body.emit(Scan("arg" + kind, value, torch.int64))

    first, second = _scan(ctx, node, x, canonical(dim, x.ndim), (values, positions), compute)
    return first, second


@rule(aten.cummax.default)
def cummax(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
    return _extreme(ctx, node, x, dim, "max")


@rule(aten.cummin.default)
def cummin(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
    return _extreme(ctx, node, x, dim, "min")
