"""Random numbers: drawn by ATen as extern calls (see `extern.RANDOM`), where the stream is to be eager's, or computed
in loops (see `graph/random.py`).

In loops, each operator takes a seed of 64 bits from eager's generator. A number is a function of the seed and of its
place in the tensor: any vector, thread and fusion gives the same one.

Eager's dropout on CPUs draws a Bernoulli tensor of the input's dtype, divides it by 1 - p and multiplies. Only the draw
may be an extern call; the rest is loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, as_expr, product
from inductor_cpu.ir.nodes import Extern
from inductor_cpu.ir.operators import DRAWN_IN_LOOPS
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.extern import RANDOM
from inductor_cpu.lower.pointwise import KIND, aten, check_constants, compute_dtype, elementwise, operand
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.terms import Term
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import flatten

#: Bits of a uniform number: as many as the dtype has digits, as in eager mode.
_DIGITS = {torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}

#: (body, position) -> random bits, two int32 terms.
Bits = Callable[[Body, Sequence[Expr]], tuple[Term, Term]]
#: (body, position, bits) -> the number at a position.
Number = Callable[[Body, Sequence[Expr], tuple[Term, Term]], Term]


# -- bits ------------------------------------------------------------------------------------------------------------
def _bits(ctx: Lowering, node: fx.Node, sizes: Sequence[Expr]) -> Bits:
    """Random bits for each element of a tensor, from a new seed."""
    seed = ctx.new_buffer(torch.int32, (as_expr(2),), kind="extern")
    limits = (-(1 << 31), 1 << 31)
    call = Extern(
        name=ctx.fresh("extern"),
        target=aten.randint.low,
        args=(*limits, (2,)),
        kwargs=(("dtype", torch.int32),),
        outputs=(seed.name,),
        reason="a seed comes from eager's generator",
        ordered=True,
        origins=(node.name,),
    )
    ctx.nodes.append(call)
    whole, count = ctx.whole(seed), product(sizes).as_int

    def bits(body: Body, at: Sequence[Expr]) -> tuple[Term, Term]:
        place = Term(body, body.index(flatten(at, sizes)))
        key, high = (Term(body, body.load(whole, (as_expr(k),))) for k in (0, 1))
        if count is None or count > 1 << 32:
            high = high.op("bitwise_xor", place.op("rshift", 32).cast(torch.int32))
        operands = (place.cast(torch.int32), high, key)
        first, second = (operands[0].op(name, *operands[1:]) for name in ("philox", "philox_second"))
        return first, second

    return bits


def _uniform(bits: tuple[Term, Term], dtype: torch.dtype) -> Term:
    """A number in [0, 1), a multiple of 2^-24 or of the dtype's epsilon / 2."""
    first, second = bits
    if dtype == torch.float64:
        low, high = (term.op("bitwise_and", (1 << n) - 1).cast(dtype) for term, n in ((second, 27), (first, 26)))
        return (high * 2.0**27 + low) * 2.0**-53
    digits = _DIGITS[dtype]
    return first.op("bitwise_and", (1 << digits) - 1).cast(torch.float32) * 2.0**-digits


def _happens(bits: tuple[Term, Term], probability: float) -> Term:
    """True with a probability, to 32 bits."""
    limit = round(probability * 2**32) - (1 << 31)
    if limit >= 1 << 31:
        return Term(bits[0].body, bits[0].body.const(True, torch.bool))
    return bits[0] < limit


def _normal(bits: tuple[Term, Term]) -> Term:
    """A number of the standard normal distribution (G. Box, M. Muller, 1958), in float32."""
    radius = ((1.0 - _uniform(bits, torch.float32)).op("log") * -2.0).op("sqrt")
    return radius * (_uniform(bits[::-1], torch.float32) * (2 * math.pi)).op("cos")


# -- operators -------------------------------------------------------------------------------------------------------
def _drawn(ctx: Lowering, node: fx.Node, number: Number) -> TensorValue:
    """The node's tensor with number(body, position, bits) everywhere."""
    fake = meta_of(node)
    _check(node, fake)
    sizes = size_exprs(fake.shape)
    bits = _bits(ctx, node, sizes)
    return ctx.pointwise(node, lambda body, at: number(body, at, bits(body, at)).value, sizes)


def _check(node: fx.Node, fake: torch.Tensor) -> None:
    """Raise Unsupported for what ATen draws."""
    if DRAWN_IN_LOOPS not in node.meta:
        raise Unsupported(node, RANDOM)
    if fake.layout != torch.strided or fake.device.type != "cpu":
        raise Unsupported(node, f"random numbers with layout {fake.layout} on {fake.device}")


def _float(node: fx.Node, narrow: bool = False) -> torch.dtype:
    """The node's dtype, which is that of a float that loops draw; narrow: float32 at most."""
    dtype = meta_of(node).dtype
    if dtype not in _DIGITS and (narrow or dtype != torch.float64):
        raise Unsupported(node, f"random numbers of {dtype}")
    return dtype


@rule(aten.rand.default, aten.rand_like.default)
def rand(ctx: Lowering, node: fx.Node, *_: Any, **__: Any) -> TensorValue:
    dtype = _float(node)
    return _drawn(ctx, node, lambda body, at, bits: _uniform(bits, dtype))


@rule(aten.uniform.default)
def uniform(ctx: Lowering, node: fx.Node, _: Any, low: Any = 0.0, high: Any = 1.0) -> TensorValue:
    check_constants(node, (low, high))
    dtype = _float(node)
    return _drawn(ctx, node, lambda body, at, bits: _uniform(bits, dtype) * float(high - low) + float(low))


@rule(aten.randn.default, aten.randn_like.default)
def randn(ctx: Lowering, node: fx.Node, *_: Any, **__: Any) -> TensorValue:
    _float(node, narrow=True)
    return _drawn(ctx, node, lambda body, at, bits: _normal(bits))


def _scaled_normal(ctx: Lowering, node: fx.Node, mean: Any, std: Any) -> TensorValue:
    """mean: a number or a tensor of the result's shape. (Of a tensor of deviations ATen checks each: it draws.)"""
    check_constants(node, (std,))
    _float(node, narrow=True)
    if not std >= 0:
        raise Unsupported(node, "its deviation is negative")

    def number(body: Body, at: Sequence[Expr], bits: tuple[Term, Term]) -> Term:
        return _normal(bits) * float(std) + Term(body, operand(ctx, body, at, mean, torch.float32))

    return _drawn(ctx, node, number)


@rule(aten.normal.float_float, aten.normal.Tensor_float)
def normal(ctx: Lowering, node: fx.Node, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> TensorValue:
    return _scaled_normal(ctx, node, mean, std)


@rule(aten.normal_functional.default)
def normal_functional(ctx: Lowering, node: fx.Node, _: Any, mean: Any = 0.0, std: Any = 1.0) -> TensorValue:
    return _scaled_normal(ctx, node, mean, std)


@rule(aten.exponential.default)
def exponential(ctx: Lowering, node: fx.Node, _: Any, rate: Any = 1.0) -> TensorValue:
    check_constants(node, (rate,))
    _float(node, narrow=True)
    if not 0 < rate < math.inf:
        raise Unsupported(node, "its rate is not a positive number")

    def number(body: Body, at: Sequence[Expr], bits: tuple[Term, Term]) -> Term:
        """Of 23 bits and a half, which is never 0 or 1."""
        inside = (bits[0].op("bitwise_and", (1 << 23) - 1).cast(torch.float32) + 0.5) * 2.0**-23
        return -inside.op("log") / float(rate)

    return _drawn(ctx, node, number)


@rule(aten.bernoulli.p)
def bernoulli(ctx: Lowering, node: fx.Node, _: Any, p: Any = 0.5) -> TensorValue:
    check_constants(node, (p,))
    if not 0 <= p <= 1:
        raise Unsupported(node, "its probability is none")
    return _drawn(ctx, node, lambda body, at, bits: _happens(bits, float(p)))


def _whole(ctx: Lowering, node: fx.Node, low: Any, high: Any) -> TensorValue:
    """Whole numbers from low to high - 1. The most frequent one is more frequent by (high - low) / 2^32 at most."""
    check_constants(node, (low, high))
    count = high - low
    if not 0 < count <= 1 << 31:
        raise Unsupported(node, f"{count} different random numbers")

    def number(body: Body, at: Sequence[Expr], bits: tuple[Term, Term]) -> Term:
        wide = bits[0].cast(torch.int64).op("bitwise_and", (1 << 32) - 1)
        return (wide * count).op("rshift", 32) + low

    return _drawn(ctx, node, number)


@rule(aten.randint.default, aten.randint_like.default)
def randint(ctx: Lowering, node: fx.Node, *args: Any, **_: Any) -> TensorValue:
    return _whole(ctx, node, 0, args[0] if node.target is aten.randint.default else args[1])


@rule(aten.randint.low, aten.randint_like.low_dtype)
def randint_from(ctx: Lowering, node: fx.Node, *args: Any, **_: Any) -> TensorValue:
    return _whole(ctx, node, *(args[:2] if node.target is aten.randint.low else args[1:3]))


# -- dropout ---------------------------------------------------------------------------------------------------------
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
    drawn = None if DRAWN_IN_LOOPS in node.meta else _bernoulli(ctx, node, x, 1 - p)
    bits = _bits(ctx, node, x.sizes) if drawn is None else None

    def is_kept(body: Body, at: tuple[Expr, ...]) -> int:
        if drawn is not None:
            return body.cast(body.load(drawn, at), torch.bool)
        assert bits is not None
        return _happens(bits(body, at), 1 - p).value

    kept = _part(ctx, node, 1, is_kept)

    def multiplied(body: Body, at: tuple[Expr, ...]) -> int:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        noise = (Term(body, body.load(kept, at)).cast(wide) / (1 - p)).cast(x.dtype)
        return (Term(body, body.load(x, at)) * noise).value

    return _part(ctx, node, 0, multiplied), kept


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
