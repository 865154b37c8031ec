"""Dropout. All other random operators are extern calls (see `extern.RANDOM`): ATen draws, so the stream is eager's.

Eager's dropout on CPUs draws a Bernoulli tensor of the input's dtype, divides it by 1 - p and multiplies. The draw is
an extern call; the rest is loops.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.nodes import Extern
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.extern import RANDOM
from inductor_cpu.lower.pointwise import KIND, aten, check_constants, compute_dtype, elementwise
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.terms import Term
from inductor_cpu.lower.values import TensorValue


@rule(aten.native_dropout.default)
def native_dropout(
    ctx: Lowering, node: fx.Node, x: TensorValue, p: Any, train: bool | None
) -> tuple[TensorValue, TensorValue]:
    """(x * noise, noise != 0)."""
    check_constants(node, (p,))
    if train is False or p == 0:
        return _part(ctx, node, 0, lambda body, at: body.load(x, at)), _part(ctx, node, 1, _constant(True))
    if p == 1:
        nothing = _part(ctx, node, 0, lambda body, at: body.op("mul", body.load(x, at), body.const(0, x.dtype)))
        return nothing, _part(ctx, node, 1, _constant(False))
    drawn = _bernoulli(ctx, node, x, 1 - p)

    def product(body: Body, at: tuple[Expr, ...]) -> int:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        noise = (Term(body, body.load(drawn, at)).cast(wide) / (1 - p)).cast(x.dtype)
        return (Term(body, body.load(x, at)) * noise).value

    kept = _part(ctx, node, 1, lambda body, at: body.cast(body.load(drawn, at), torch.bool))
    return _part(ctx, node, 0, product), kept


def _constant(value: bool) -> Any:
    return lambda body, at: body.const(value, torch.bool)


def _part(ctx: Lowering, node: fx.Node, position: int, compute: Any) -> TensorValue:
    """One of the node's two results."""
    fake = meta_of(node)[position]
    return ctx.pointwise(node, compute, size_exprs(fake.shape), fake.dtype, dense_strides(fake))


def _bernoulli(ctx: Lowering, node: fx.Node, x: TensorValue, probability: float) -> TensorValue:
    """A tensor of zeros and ones, typed and laid out as eager's, so that each element gets the number of eager's."""
    fake = meta_of(node)[0]
    out = ctx.pointwise(
        node, lambda body, at: body.const(0, fake.dtype), size_exprs(fake.shape), fake.dtype, dense_strides(fake)
    )
    view = ctx.strided(out)
    assert view is not None
    call = Extern(
        name=ctx.fresh("extern"),
        target=aten.bernoulli_.float,
        args=(view, probability),
        kwargs=(),
        outputs=(None,),
        reason=RANDOM,
        mutates=(view.buffer,),
        ordered=True,
        origins=(node.name,),
    )
    ctx.nodes.append(call)
    return out


@rule(aten.native_dropout_backward.default)
def native_dropout_backward(
    ctx: Lowering, node: fx.Node, grad: TensorValue, mask: TensorValue, scale: Any
) -> TensorValue:
    """grad * noise, the noise rounded as in the forward direction: mask / (1 - p), scale being 1 / (1 - p)."""
    check_constants(node, (scale,))
    dtype = compute_dtype(node, node.args[:1], KIND.DEFAULT)
    if not dtype.is_floating_point:
        raise Unsupported(node, f"native_dropout_backward of {dtype}")
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def compute(body: Body, value: int, kept: int) -> int:
        shown = Term(body, kept).cast(wide)
        noise = (shown / (1 / scale) if scale else shown * 0).cast(dtype)
        return (Term(body, value) * noise).value

    return elementwise(ctx, node, compute, (grad, mask), dtype)
