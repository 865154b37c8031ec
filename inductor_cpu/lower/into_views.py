"""Tensors with a view of them (a slice, a row, a diagonal) replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, minimum
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.in_place import is_overwritten
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.scatter import NOT_AS_PLACES, write
from inductor_cpu.lower.sizes import size_expr, size_exprs
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import canonical, from_front, slice_bounds


def _check_view(node: fx.Node, source: TensorValue, sizes: Sequence[Expr], view: Any) -> None:
    """Raise Unsupported where a source is not known to have the sizes of what `view` makes of the first argument."""
    if len(source.sizes) != len(sizes):
        raise Unsupported(node, NOT_AS_PLACES)
    apart = [(own - size).as_int for own, size in zip(source.sizes, sizes, strict=True)]
    open_ = [d for d, by in enumerate(apart) if by is None]
    if any(apart) or (open_ and not any(_are_equal(node, shape, open_) for shape in _shapes(node, view))):
        raise Unsupported(node, NOT_AS_PLACES)


def _are_equal(node: fx.Node, shape: Sequence[Any], dims: Sequence[int]) -> bool:
    """Whether torch knows that the source has the sizes of `shape` in these dimensions."""
    own = meta_of(node.args[1]).shape  # type: ignore[arg-type]
    return all(statically_known_true(own[d] == shape[d]) for d in dims)


def _shapes(node: fx.Node, view: Any) -> Iterator[Sequence[Any]]:
    """The shape of the view, in all the ways in which torch writes it: those of views of tensors of this shape in the
    graph, which a source is usually computed from, and the one that torch computes now, with the guards it has."""
    x, _, *args = node.args
    fake = meta_of(x)  # type: ignore[arg-type]
    for made in node.graph.find_nodes(op="call_function", target=view, sort=False):
        if made.args[1:] == tuple(args) and size_exprs(meta_of(made.args[0]).shape) == size_exprs(fake.shape):
            yield meta_of(made).shape
    mode = detect_fake_mode([fake])
    if mode is not None and mode.shape_env is not None:
        values = fx.map_arg(tuple(args), meta_of)
        with contextlib.suppress(RuntimeError, ValueError):
            with mode, mode.shape_env.suppress_guards(), mode.shape_env.ignore_fresh_unbacked_symbols():
                shape = view(fake, *values).shape
            yield shape


@rule(aten.slice_scatter.default)
def slice_scatter(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    source: TensorValue,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> TensorValue:
    dim = canonical(dim, x.ndim)
    size = x.sizes[dim]
    low, high = slice_bounds(node, size, start, end, first=3)
    stride = size_expr(step)
    length = (high - low + stride - 1) // stride
    _check_view(node, source, [*x.sizes[:dim], length, *x.sizes[dim + 1 :]], aten.slice.Tensor)
    if is_overwritten(ctx, node, x):

        def move(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, None]:
            return [*at[:dim], low + at[dim] * stride, *at[dim + 1 :]], body.load(source, at), None

        write(ctx, node, x, source.sizes, move, "set")
        return x

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        place = at[dim] - low
        conditions = []
        if low != 0:
            conditions.append(body.op("ge", body.index(at[dim]), body.index(low)))
        if high != size:
            conditions.append(body.op("lt", body.index(at[dim]), body.index(high)))
        if stride != 1:
            conditions.append(body.op("eq", body.index(place % stride), body.index(0)))
        own = [*at[:dim], place if stride == 1 else place // stride, *at[dim + 1 :]]
        if not conditions:
            return body.cast(body.load(source, own), x.dtype)
        mask = conditions[0]
        for condition in conditions[1:]:
            mask = body.op("logical_and", mask, condition)
        return body.op("where", mask, body.cast(body.load(source, own, mask), x.dtype), body.load(x, at))

    return ctx.pointwise(node, compute)


@rule(aten.select_scatter.default)
def select_scatter(
    ctx: Lowering, node: fx.Node, x: TensorValue, source: TensorValue, dim: int, index: Any
) -> TensorValue:
    dim = canonical(dim, x.ndim)
    chosen = from_front(node, index, node.args[3], x.sizes[dim])
    _check_view(node, source, [*x.sizes[:dim], *x.sizes[dim + 1 :]], aten.select.int)
    if is_overwritten(ctx, node, x):

        def move(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, None]:
            return [*at[:dim], chosen, *at[dim:]], body.load(source, at), None

        write(ctx, node, x, source.sizes, move, "set")
        return x

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        here = body.op("eq", body.index(at[dim]), body.index(chosen))
        new = body.cast(body.load(source, [*at[:dim], *at[dim + 1 :]]), x.dtype)
        return body.op("where", here, new, body.load(x, at))

    return ctx.pointwise(node, compute)


@rule(aten.diagonal_scatter.default)
def diagonal_scatter(
    ctx: Lowering, node: fx.Node, x: TensorValue, source: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorValue:
    first, second = canonical(dim1, x.ndim), canonical(dim2, x.ndim)
    others = [size for d, size in enumerate(x.sizes) if d not in (first, second)]
    length = minimum(x.sizes[first] - max(-offset, 0), x.sizes[second] - max(offset, 0))
    _check_view(node, source, [*others, length], aten.diagonal.default)
    if is_overwritten(ctx, node, x):

        def move(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, None]:
            place, rest = {first: at[-1] + max(-offset, 0), second: at[-1] + max(offset, 0)}, iter(at)
            return [place[d] if d in place else next(rest) for d in range(x.ndim)], body.load(source, at), None

        write(ctx, node, x, source.sizes, move, "set")
        return x

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        here = body.op("eq", body.index(at[first] + offset), body.index(at[second]))
        along_diagonal = at[second] if offset < 0 else at[first]
        rest = [at[d] for d in range(x.ndim) if d not in (first, second)]
        new = body.cast(body.load(source, [*rest, along_diagonal], here), x.dtype)
        return body.op("where", here, new, body.load(x, at))

    return ctx.pointwise(node, compute)
