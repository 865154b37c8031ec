"""Views: they substitute indices and never copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, contiguous_strides, is_nonnegative, maximum, minimum, product
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.pointwise import aten, prims
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_expr, size_exprs, stride_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point


def canonical(dim: int, ndim: int) -> int:
    """A dimension counted from the front."""
    return dim + max(ndim, 1) if dim < 0 else dim


# -- reshape ---------------------------------------------------------------------------------------------------------
def unflatten(linear: Expr, sizes: Sequence[Expr]) -> list[Expr]:
    """The coordinates of a row-major linear index."""
    coordinates: list[Expr] = []
    for k, size in enumerate(reversed(sizes)):
        last = k == len(sizes) - 1
        coordinates.append(linear if last else linear % size)
        linear = linear if last else linear // size
    return coordinates[::-1]


def flatten(position: Sequence[Expr], sizes: Sequence[Expr]) -> Expr:
    """The row-major linear index of coordinates."""
    return sum((p * s for p, s in zip(position, contiguous_strides(sizes), strict=True)), ZERO)


def _groups(old: Sequence[Expr], new: Sequence[Expr]) -> list[tuple[slice, slice]]:
    """Consecutive runs of dims with equal products, as short as possible, so that few indices are divided."""
    fronts = [{product(sizes[:k]): k for k in range(len(sizes) + 1)} for sizes in (old, new)]
    cuts = [(fronts[0][p], fronts[1][p]) for p in fronts[0] if p in fronts[1] and p != 0]
    cuts = [cut for cut in cuts if cut != (len(old), len(new))] + [(len(old), len(new))]
    low_old, low_new = cuts[-2] if len(cuts) > 1 else (0, 0)
    tail_old, tail_new = len(old), len(new)
    while tail_old > low_old + 1 and tail_new > low_new + 1 and old[tail_old - 1] == new[tail_new - 1]:
        tail_old, tail_new = tail_old - 1, tail_new - 1
        cuts.insert(len(cuts) - 1 if (tail_old, tail_new) > (low_old, low_new) else 0, (tail_old, tail_new))
    cuts = sorted(set(cuts))
    return [
        (slice(a_old, b_old), slice(a_new, b_new))
        for (a_old, a_new), (b_old, b_new) in zip([(0, 0), *cuts], cuts, strict=False)
        if (a_old, a_new) != (b_old, b_new)
    ]


def reshaped(tensor: TensorValue, sizes: Sequence[Expr]) -> TensorValue:
    """The tensor with another shape of as many elements, in row-major order."""
    at = point(loop_dims(sizes))
    if any(size == 0 for size in sizes):
        nowhere = next(place for place, size in zip(at, sizes, strict=True) if size == 0)
        return tensor.view(sizes, (nowhere,) * tensor.ndim)
    old = [k for k, size in enumerate(tensor.sizes) if size != 1]
    new = [k for k, size in enumerate(sizes) if size != 1]
    position = [ZERO] * tensor.ndim
    for old_part, new_part in _groups([tensor.sizes[k] for k in old], [sizes[k] for k in new]):
        linear = flatten([at[k] for k in new[new_part]], [sizes[k] for k in new[new_part]])
        targets = old[old_part]
        for k, value in zip(targets, unflatten(linear, [tensor.sizes[k] for k in targets]), strict=True):
            position[k] = value
    return tensor.view(sizes, position)


@rule(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    prims.squeeze.default,
    prims.reshape.default,
    prims.collapse_view.default,
    prims.split_dim.default,
)
def reshape(ctx: Lowering, node: fx.Node, x: TensorValue, *_: Any, **__: Any) -> TensorValue:
    return reshaped(x, size_exprs(meta_of(node).shape))


# -- permutations ----------------------------------------------------------------------------------------------------
def permuted(x: TensorValue, order: Sequence[int]) -> TensorValue:
    """The tensor whose dimension k is x's dimension order[k]."""
    sizes = [x.sizes[d] for d in order]
    at = point(loop_dims(sizes))
    return x.view(sizes, [at[order.index(d)] for d in range(x.ndim)])


@rule(aten.permute.default, prims.transpose.default)
def permute(ctx: Lowering, node: fx.Node, x: TensorValue, order: Sequence[int]) -> TensorValue:
    return permuted(x, [canonical(d, x.ndim) for d in order])


@rule(aten.transpose.int)
def transpose(ctx: Lowering, node: fx.Node, x: TensorValue, first: int, second: int) -> TensorValue:
    order = list(range(x.ndim))
    if x.ndim:
        a, b = canonical(first, x.ndim), canonical(second, x.ndim)
        order[a], order[b] = order[b], order[a]
    return permuted(x, order)


@rule(aten.t.default)
def t(ctx: Lowering, node: fx.Node, x: TensorValue) -> TensorValue:
    return permuted(x, list(range(x.ndim))[::-1])


@rule(aten.movedim.int, aten.movedim.intlist)
def movedim(ctx: Lowering, node: fx.Node, x: TensorValue, source: Any, destination: Any) -> TensorValue:
    sources = [canonical(d, x.ndim) for d in ([source] if isinstance(source, int) else source)]
    targets = [canonical(d, x.ndim) for d in ([destination] if isinstance(destination, int) else destination)]
    rest = iter(d for d in range(x.ndim) if d not in sources)
    return permuted(x, [sources[targets.index(k)] if k in targets else next(rest) for k in range(x.ndim)])


# -- broadcasts ------------------------------------------------------------------------------------------------------
@rule(aten.expand.default)
def expand(ctx: Lowering, node: fx.Node, x: TensorValue, *_: Any, **__: Any) -> TensorValue:
    return expanded(x, size_exprs(meta_of(node).shape))


def expanded(x: TensorValue, sizes: Sequence[Expr]) -> TensorValue:
    """The tensor broadcast to a shape."""
    at = point(loop_dims(sizes))
    return x.view(sizes, at[len(at) - x.ndim :])


@rule(prims.broadcast_in_dim.default)
def broadcast_in_dim(ctx: Lowering, node: fx.Node, x: TensorValue, shape: Any, dims: Sequence[int]) -> TensorValue:
    sizes = size_exprs(meta_of(node).shape)
    at = point(loop_dims(sizes))
    return x.view(sizes, [at[d] for d in dims])


# -- parts -----------------------------------------------------------------------------------------------------------
def from_front(node: fx.Node, value: Any, fake: Any, size: Expr) -> Expr:
    """An index that counts from the end if it is negative, as an index from the front (not clamped)."""
    if isinstance(value, int):
        return size + value if value < 0 else size_expr(value)
    if not isinstance(value, Expr):
        raise Unsupported(node, "an index that is no integer expression")
    constant = value.as_int
    if constant is not None:
        return size + constant if constant < 0 else value
    if is_nonnegative(value):
        return value
    fake = fake.meta["val"] if isinstance(fake, fx.Node) else fake
    hint = fake.node.hint if isinstance(fake, torch.SymInt) else None
    if hint is None:
        raise Unsupported(node, "an index whose sign is known at run time only")
    return size + value if hint < 0 else value


def slice_bounds(node: fx.Node, size: Expr, start: Any, end: Any, first: int = 2) -> tuple[Expr, Expr]:
    """The bounds of slice(start, end), clamped to [0, size]. They are node's arguments `first` and `first` + 1."""
    fakes = (*node.args, None, None)
    low = ZERO if start is None else _clamped(from_front(node, start, fakes[first], size), size)
    high = size if end is None else _clamped(from_front(node, end, fakes[first + 1], size), size)
    return low, high


def _clamped(value: Expr, size: Expr) -> Expr:
    return minimum(maximum(value, ZERO), size)


def sliced(x: TensorValue, dim: int, start: Expr, length: Expr, step: int | Expr = 1) -> TensorValue:
    """x[..., start : : step, ...] with `length` elements along dim."""
    sizes = [length if d == dim else size for d, size in enumerate(x.sizes)]
    at = point(loop_dims(sizes))
    return x.view(sizes, [at[d] * step + start if d == dim else at[d] for d in range(x.ndim)])


@rule(aten.slice.Tensor)
def slice_(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> TensorValue:
    dim = canonical(dim, x.ndim)
    low, _ = slice_bounds(node, x.sizes[dim], start, end)
    return sliced(x, dim, low, size_expr(meta_of(node).shape[dim]), step)


@rule(aten.narrow.default)
def narrow(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, start: Any, length: Any) -> TensorValue:
    dim = canonical(dim, x.ndim)
    return sliced(x, dim, from_front(node, start, node.args[2], x.sizes[dim]), size_expr(length))


def selected(x: TensorValue, dim: int, index: Expr) -> TensorValue:
    """x without dimension dim, at an index of it."""
    sizes = [size for d, size in enumerate(x.sizes) if d != dim]
    at = list(point(loop_dims(sizes)))
    return x.view(sizes, [*at[:dim], index, *at[dim:]])


@rule(aten.select.int)
def select(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: Any) -> TensorValue:
    dim = canonical(dim, x.ndim)
    return selected(x, dim, from_front(node, index, node.args[2], x.sizes[dim]))


@rule(aten.unbind.int)
def unbind(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int = 0) -> tuple[TensorValue, ...]:
    dim = canonical(dim, x.ndim)
    return tuple(selected(x, dim, size_expr(k)) for k in range(len(meta_of(node))))


@rule(
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.chunk.default,
)
def split(ctx: Lowering, node: fx.Node, x: TensorValue, _: Any, dim: int = 0) -> tuple[TensorValue, ...]:
    dim, start, parts = canonical(dim, x.ndim), ZERO, []
    for fake in meta_of(node):
        length = size_expr(fake.shape[dim])
        parts.append(sliced(x, dim, start, length))
        start = start + length
    return tuple(parts)


@rule(aten.diagonal.default)
def diagonal(
    ctx: Lowering, node: fx.Node, x: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorValue:
    first, second = canonical(dim1, x.ndim), canonical(dim2, x.ndim)
    sizes = size_exprs(meta_of(node).shape)
    at = list(point(loop_dims(sizes)))
    along, rest = at[-1], iter(at[:-1])
    places = {first: along + max(-offset, 0), second: along + max(offset, 0)}
    return x.view(sizes, [places[d] if d in places else next(rest) for d in range(x.ndim)])


@rule(aten.unfold.default)
def unfold(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, size: int, step: int) -> TensorValue:
    sizes = size_exprs(meta_of(node).shape)
    at = point(loop_dims(sizes))
    if x.ndim == 0:
        return x.view(sizes, ())
    dim = canonical(dim, x.ndim)
    return x.view(sizes, [at[d] * step + at[-1] if d == dim else at[d] for d in range(x.ndim)])


# -- as_strided ------------------------------------------------------------------------------------------------------
@rule(aten.as_strided.default)
def as_strided(
    ctx: Lowering, node: fx.Node, x: TensorValue, size: Any, stride: Any, storage_offset: Any = None
) -> TensorValue:
    """Addresses of the new view, turned into coordinates of the buffer that x is a view of."""
    source: Any = node.args[0]
    fake, view = meta_of(source), ctx.strided(x)
    buffer = ctx.buffers[x.buffer]
    order = sorted(range(len(buffer.sizes)), key=lambda d: _known(node, buffer.strides[d]), reverse=True)
    dense = contiguous_strides([buffer.sizes[d] for d in order])
    if view is None or any(
        n != 1 and a != b for n, a, b in zip(view.sizes, view.strides, stride_exprs(fake.stride()), strict=True)
    ):
        raise Unsupported(node, "as_strided of a tensor that has other strides than in eager")
    if any(buffer.sizes[d] != 1 and buffer.strides[d] != dense[k] for k, d in enumerate(order)):
        raise Unsupported(node, "as_strided of a tensor that is not dense")
    offset = view.offset
    if storage_offset is not None:
        offset = offset + size_expr(storage_offset) - size_expr(fake.storage_offset())
    sizes, strides = size_exprs(size), size_exprs(stride)
    last = sum(((n - 1) * s for n, s in zip(sizes, strides, strict=True)), offset)
    total = product(buffer.sizes)
    if not any(n == 0 for n in sizes) and not (is_nonnegative(offset) and is_nonnegative(total - 1 - last)):
        raise Unsupported(node, "as_strided may leave the buffer")
    at = point(loop_dims(sizes))
    address = sum((p * s for p, s in zip(at, strides, strict=True)), offset)
    coordinates = unflatten(address, [buffer.sizes[d] for d in order])
    index = tuple(coordinates[order.index(d)] for d in range(len(order)))
    return TensorValue(x.buffer, x.dtype, loop_dims(sizes), index)


def _known(node: fx.Node, stride: Expr) -> int:
    value = stride.as_int
    if value is None:
        raise Unsupported(node, "as_strided with a stride that is known at run time only")
    return value
