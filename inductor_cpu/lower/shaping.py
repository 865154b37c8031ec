"""Ops that rearrange elements: pad, repeat, roll, flip, tril. For cat and stack see `lower/concat.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, maximum, minimum
from inductor_cpu.lower.body import Body, check_held
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.pointwise import aten, prims
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_expr, size_exprs
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import canonical


# -- pad -------------------------------------------------------------------------------------------------------------
@rule(aten.constant_pad_nd.default)
def constant_pad(ctx: Lowering, node: fx.Node, x: TensorValue, pad: Sequence[Any], value: Any = 0) -> TensorValue:
    if not isinstance(value, (bool, int, float)):
        raise Unsupported(node, "a fill value that is known at run time only")
    check_held(value, x.dtype)
    before = _befores(x, pad)
    fill = Body()
    fill_value = fill.instructions[fill.const(value, x.dtype)].value  # type: ignore[union-attr]

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        position = [p - low for p, low in zip(at, before, strict=True)]
        mask = None
        for d, (place, size) in enumerate(zip(position, x.sizes, strict=True)):
            for test in _outside_tests(body, place, size, before[d], size_exprs(meta_of(node).shape)[d]):
                mask = test if mask is None else body.op("logical_and", mask, test)
        return body.load(x, position, mask, fill_value if mask is not None else 0)

    return ctx.pointwise(node, compute)


def _befores(x: TensorValue, pad: Sequence[Any]) -> list[Expr]:
    """How much is padded before each dimension; `pad` lists pairs from the last dimension on."""
    before = [ZERO] * x.ndim
    for k in range(len(pad) // 2):
        before[x.ndim - 1 - k] = size_expr(pad[2 * k])
    return before


def _outside_tests(body: Body, place: Expr, size: Expr, before: Expr, result: Expr) -> list[int]:
    """The tests that a coordinate is inside of the padded tensor, those that can fail."""
    tests = []
    if (known := before.as_int) is None or known > 0:
        tests.append(body.op("ge", body.index(place), body.index(0)))
    if (known := (result - before - size).as_int) is None or known > 0:
        tests.append(body.op("lt", body.index(place), body.index(size)))
    return tests


def _reflect(place: Expr, size: Expr) -> Expr:
    last = size - 1
    folded = maximum(place, -place)
    beyond = last - folded
    return last - maximum(beyond, -beyond)


def _replicate(place: Expr, size: Expr) -> Expr:
    return minimum(maximum(place, ZERO), size - 1)


def _border(*targets: Any, fold: Callable[[Expr, Expr], Expr]) -> None:
    @rule(*targets)
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, pad: Sequence[Any]) -> TensorValue:
        before = _befores(x, pad)
        padded = x.ndim - len(pad) // 2

        def compute(body: Body, at: tuple[Expr, ...]) -> int:
            return body.load(x, [p if d < padded else fold(p - before[d], x.sizes[d]) for d, p in enumerate(at)])

        return ctx.pointwise(node, compute)


_border(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default, fold=_reflect)
_border(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default, fold=_replicate)


# -- rearrangements --------------------------------------------------------------------------------------------------
@rule(aten.repeat.default)
def repeat(ctx: Lowering, node: fx.Node, x: TensorValue, repeats: Sequence[Any]) -> TensorValue:
    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        own = at[len(at) - x.ndim :]
        counts = repeats[len(at) - x.ndim :]
        return body.load(x, [p if r == 1 else p % n for p, n, r in zip(own, x.sizes, counts, strict=True)])

    return _filled(ctx, node, compute)


def _filled(ctx: Lowering, node: fx.Node, compute: Callable[[Body, tuple[Expr, ...]], int]) -> TensorValue:
    """A pointwise nest whose index expressions divide by sizes: an empty result never evaluates them."""
    fake = meta_of(node)
    if any(size == 0 for size in fake.shape if isinstance(size, int)):
        return ctx.pointwise(node, lambda body, at: body.const(0, fake.dtype))
    return ctx.pointwise(node, compute)


@rule(aten.roll.default)
def roll(ctx: Lowering, node: fx.Node, x: TensorValue, shifts: Any, dims: Any = ()) -> TensorValue:
    moves = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    axes = dims if isinstance(dims, (tuple, list)) else (dims,)
    if not axes and x.ndim != 1:
        raise Unsupported(node, "a roll over the flattened tensor")
    by = [ZERO] * x.ndim
    for axis, move in zip(axes or (0,), moves, strict=True):
        by[canonical(axis, x.ndim)] = by[canonical(axis, x.ndim)] + size_expr(move)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        return body.load(
            x, [p if move == 0 else (p - move) % size for p, size, move in zip(at, x.sizes, by, strict=True)]
        )

    return _filled(ctx, node, compute)


@rule(aten.flip.default, prims.rev.default)
def flip(ctx: Lowering, node: fx.Node, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    flipped = {canonical(d, x.ndim) for d in dims}

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        return body.load(x, [x.sizes[d] - 1 - p if d in flipped else p for d, p in enumerate(at)])

    return ctx.pointwise(node, compute)


# -- triangles -------------------------------------------------------------------------------------------------------
def _triangle(target: Any, test: str) -> None:
    @rule(target)
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, diagonal: Any = 0) -> TensorValue:
        def compute(body: Body, at: tuple[Expr, ...]) -> int:
            inside = body.op(test, body.index(at[-1] - at[-2]), body.index(diagonal))
            return body.op("where", inside, body.load(x, at), body.const(0, x.dtype))

        return ctx.pointwise(node, compute)


_triangle(aten.tril.default, "le")
_triangle(aten.triu.default, "ge")
