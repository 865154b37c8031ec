"""Interpolation: nearest and (multi)linear, with eager's floating-point index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, contiguous_strides, divide_exact, maximum, product
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.reductions import accumulator, number
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue

aten = torch.ops.aten


def _ratio(body: Body, source: Expr, target: Expr, scale: float | None, dtype: torch.dtype) -> int:
    """Input positions per output position: 1 / scale if a scale is given, else source / target."""
    if scale is not None and scale > 0:
        return body.const(1.0 / scale, dtype)
    return body.op("div", number(body, source, dtype), number(body, target, dtype))


# -- nearest ---------------------------------------------------------------------------------------------------------
def _whole_ratio(out: Expr, source: Expr, target: Expr, centre: bool) -> Expr | None:
    """The nearest input position by integer arithmetic, where one size is a multiple of the other and the floats that
    eager computes agree."""
    up, down = _factor(target, source), _factor(source, target)
    if up is not None and (up <= 2 or (centre and up <= 256) or _floats_agree(up, target)):
        return out // up
    if down is not None and (target.as_int or _FLOAT_INTEGERS) * down < _FLOAT_INTEGERS:
        return out * down + (down // 2 if centre else 0)
    return None


_FLOAT_INTEGERS = 1 << 22  # up to here f32 also tells halves apart


def _factor(larger: Expr, smaller: Expr) -> int | None:
    """larger / smaller if that is a constant >= 1."""
    if smaller == 0 or larger == 0:
        return None
    ratio = divide_exact(larger, smaller)
    return ratio.as_int if ratio is not None else None


def _floats_agree(up: int, target: Expr) -> bool:
    """Whether floor(o * f32(1 / up)) = o // up for all outputs."""
    if target.as_int is None or target.as_int > 4096:
        return False
    outs = torch.arange(target.as_int)
    floats = outs.float() * (torch.tensor(1.0) / torch.tensor(float(up)))
    return bool(torch.equal(floats.floor().long(), outs // up))


def _nearest_float(
    body: Body, out: Expr, source: Expr, target: Expr, scale: float | None, centre: bool, fused: bool
) -> Expr:
    """floor(out * ratio) or, from the centre of the pixel, floor((out + 1/2) * ratio), in f32 and at most source - 1.

    fused: eager's one-dimensional kernel computes (out + 1/2) * ratio - 1/2 with one rounding, then adds 1/2 again."""
    f32, f64 = torch.float32, torch.float64
    ratio, place = _ratio(body, source, target, scale, f32), body.cast(body.index(out), f32)
    if centre:
        place = body.op("add", place, body.const(0.5, f32))
    if centre and fused:
        exact = body.op("mul", body.cast(place, f64), body.cast(ratio, f64))
        place = body.cast(body.op("sub", exact, body.const(0.5, f64)), f32)
        place = body.op("add", body.op("maximum", place, body.const(0.0, f32)), body.const(0.5, f32))
    else:
        place = body.op("mul", place, ratio)
    found = body.cast(body.op("floor", place), torch.int64)
    return body.as_index(body.op("minimum", found, body.index(source - 1)), source)


def _by_channels(node: fx.Node, channels: Expr) -> bool:
    """Whether eager's kernel for volumes goes by channels: it ignores a scale to the same size, or twice as large, as
    those for images do. Raises Unsupported where only the call tells."""
    if not meta_of(node).is_contiguous(memory_format=torch.channels_last_3d):
        return False
    if channels.as_int is None:
        raise Unsupported(node, "nearest interpolation of volumes with symbolic channels in the last place")
    return channels.as_int > 3


def _without_scale(body: Body, out: Expr, source: Expr, target: Expr, found: Expr) -> Expr:
    """The position found by a scale, but that without it where the call tells that eager ignores it: sizes are the
    same, or one is twice the other."""
    value, size = body.index(found), body.index(target)
    for factor in (2, 1):
        ignored = body.op("eq", size, body.index(source * factor))
        value = body.op("where", ignored, body.index(out // factor), value)
    return body.as_index(value, source)


def _nearest(dims: int, centre: bool) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, output_size: Any, *scales: float | None) -> TensorValue:
        if x.dtype == torch.float64 and any(scale is not None for scale in scales):
            raise Unsupported(node, "nearest interpolation of float64 with an explicit scale")
        lead = x.ndim - dims
        sources, targets = x.sizes[lead:], size_exprs(output_size)
        ignoring = not centre and (dims == 2 or (dims == 3 and _by_channels(node, x.sizes[1])))

        def place(body: Body, out: Expr, source: Expr, target: Expr, scale: float | None) -> Expr:
            same = ignoring and _factor(target, source) in (1, 2)
            whole = _whole_ratio(out, source, target, centre) if same or scale is None else None
            if whole is not None:
                return whole
            found = _nearest_float(body, out, source, target, scale, centre, dims == 1)
            open_ = ignoring and scale is not None and (target - source).as_int is None
            return _without_scale(body, out, source, target, found) if open_ else found

        def compute(body: Body, at: tuple[Expr, ...]) -> int:
            numbers = zip(at[lead:], sources, targets, _pad(scales, dims), strict=True)
            return body.load(x, (*at[:lead], *(place(body, *four) for four in numbers)))

        return ctx.pointwise(node, compute)

    return lower


def _pad(scales: Sequence[float | None], dims: int) -> tuple[float | None, ...]:
    return (*scales, *[None] * (dims - len(scales)))


for _dims in (1, 2, 3):
    rule(getattr(aten, f"upsample_nearest{_dims}d").default)(_nearest(_dims, centre=False))
    rule(getattr(aten, f"_upsample_nearest_exact{_dims}d").default)(_nearest(_dims, centre=True))


# -- linear ----------------------------------------------------------------------------------------------------------
def _two_points(
    body: Body, out: Expr, source: Expr, target: Expr, scale: float | None, align: bool, acc: torch.dtype
) -> list[tuple[Expr, int]]:
    """(input position, weight) of the two neighbours of an output position."""
    if source == target:  # eager then ignores the scale; an infinity times 0 is NaN there, too
        return [(out, body.const(1.0, acc)), (out, body.const(0.0, acc))]
    unknown = (source - target).as_int is None
    same = body.op("eq", body.index(source), body.index(target)) if unknown else None
    place = body.cast(body.index(out), acc)
    if align:
        ratio = _ratio(body, source - 1, maximum(target - 1, 1), None, acc)
        place = body.op("mul", place, ratio)
    else:
        half, ratio = body.const(0.5, acc), _ratio(body, source, target, scale, acc)
        place = body.op("sub", body.op("mul", ratio, body.op("add", place, half)), half)
        place = body.op("maximum", place, body.const(0.0, acc))
        if same is not None and scale is not None:
            place = body.op("where", same, body.cast(body.index(out), acc), place)
    last = body.index(source - 1)
    lower = body.op("minimum", body.cast(place, torch.int64), last)
    upper = body.op("minimum", body.op("add", lower, body.index(1)), last)
    if same is not None:
        upper = body.op("where", same, lower, upper)
    weight = body.op("sub", place, body.cast(lower, acc))
    weight = body.op("minimum", weight, body.const(1.0, acc))
    other = body.op("sub", body.const(1.0, acc), weight)
    if source == 1:
        return [(ZERO, other), (ZERO, weight)]
    return [(body.as_index(lower, source), other), (body.as_index(upper, source), weight)]


def _interpolate(body: Body, load: Callable[[tuple[Expr, ...]], int], points: list[list[tuple[Expr, int]]]) -> int:
    """The weighted sum over the corners, innermost dimension first."""

    def level(fixed: tuple[Expr, ...]) -> int:
        if len(fixed) == len(points):
            return load(fixed)
        terms = [body.op("mul", level((*fixed, position)), weight) for position, weight in points[len(fixed)]]
        return terms[0] if len(terms) == 1 else body.op("add", *terms)

    return level(())


def _grows(sources: Sequence[Expr], targets: Sequence[Expr]) -> bool:
    """Whether there are as many points of some dimensions after interpolation as before, or more, for all that is
    known."""
    before, after = product(sources).as_int, product(targets).as_int
    if before is None or after is None:
        return all(_factor(target, source) is not None for source, target in zip(sources, targets, strict=True))
    return after >= before


def _stages(node: fx.Node, dims: int, sources: Sequence[Expr], targets: Sequence[Expr]) -> list[tuple[int, int]]:
    """The dimensions in groups, from the inside out, each interpolated by a loop of its own. Where neighbours of the
    last dimension lie beside each other, its points are gathered: once for each row that there is before the others
    grow, not for each corner of each result. The numbers are the same. One that stays has no loop of its own."""
    if not meta_of(node).is_contiguous():
        return [(0, dims)]
    cuts = [d for d in range(dims - 1, 0, -1) if sources[d] != targets[d] and _grows(sources[:d], targets[:d])]
    return list(zip([*cuts, 0], [dims, *cuts], strict=True))


def _linear(dims: int) -> Any:
    def lower(
        ctx: Lowering, node: fx.Node, x: TensorValue, output_size: Any, align_corners: bool, *scales: float | None
    ) -> TensorValue:
        if not x.dtype.is_floating_point:
            raise Unsupported(node, f"linear interpolation of {x.dtype}")
        lead, acc = x.ndim - dims, accumulator(x.dtype)
        sources, targets = x.sizes[lead:], size_exprs(output_size)
        numbers = list(zip(sources, targets, _pad(scales, dims), strict=True))

        def stage(x: TensorValue, first: int, last: int) -> TensorValue:
            def compute(body: Body, at: tuple[Expr, ...]) -> int:
                outer, own, inner = at[: lead + first], at[lead + first : lead + last], at[lead + last :]
                places = zip(own, numbers[first:last], strict=True)
                points = [_two_points(body, out, *three, align_corners, acc) for out, three in places]
                return _interpolate(
                    body, lambda position: body.cast(body.load(x, (*outer, *position, *inner)), acc), points
                )

            if first == 0:
                return ctx.pointwise(node, compute)
            sizes = (*x.sizes[: lead + first], *targets[first:])
            return ctx.pointwise(node, compute, sizes, acc, contiguous_strides(sizes))

        for first, last in _stages(node, dims, sources, targets):
            x = stage(x, first, last)
        return x

    return lower


rule(aten.upsample_linear1d.default)(_linear(1))
rule(aten.upsample_bilinear2d.default)(_linear(2))
rule(aten.upsample_trilinear3d.default)(_linear(3))
