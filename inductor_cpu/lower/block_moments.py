"""Mean and squared differences of long columns, as of a channels-last image, while they are read from memory once.

The natural order reads all rows for the mean, and again for the differences from it. Here both are computed for blocks
of rows that stay in the first-level cache, and then combined: the mean is that of the blocks' means, and each block
adds its own squares and those of its mean's difference (T. Chan, G. Golub, R. LeVeque, "Updating formulae and a
pairwise algorithm for computing sample variances", 1979). A block's mean is rounded, so that the differences from it do
not add up to zero; their sum enters, too, or columns far from zero would lose digits. Blocks are also work for threads
where there are few columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from inductor_cpu.ir.index import ONE, ZERO, Expr, as_expr, product
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.reductions import Axes, difference, divide_by, fold, loader, number, squared_difference
from inductor_cpu.lower.values import TensorValue, loop_dims, point

#: Rows of a block. What a kernel reads of so many rows at a time, a few lines of each, stays in the first-level cache.
LEAST_ROWS, MOST_ROWS = 16, 128

#: Smaller operands come from the second-level cache the second time anyway.
LEAST_BYTES = 2 << 20


@dataclass(frozen=True)
class Blocks:
    """A tensor with one dimension more: `cut` is in two, blocks and rows of a block.

    tensor: the view; rows: the dimensions of a block, blocks: the other folded ones; strides: of a tensor of results of
    blocks, in the order of the tensor's memory."""

    tensor: TensorValue
    cut: int
    rows: Axes
    blocks: Axes
    strides: tuple[Expr, ...]

    def without_cut(self, tensor: TensorValue) -> TensorValue:
        """A tensor with ones in all folded dimensions, with the two dimensions as one again."""
        sizes = (*tensor.sizes[: self.cut], ONE, *tensor.sizes[self.cut + 2 :])
        at = point(loop_dims(sizes))
        return tensor.view(sizes, (*at[: self.cut], ZERO, ZERO, *at[self.cut + 1 :]))


def blocked_squares(
    ctx: Lowering, node: fx.Node, x: TensorValue, axes: Axes, acc: torch.dtype
) -> tuple[TensorValue, TensorValue] | None:
    """(mean, sum of squared differences from it) in `acc`, with the folded dimensions as ones; None where the tensor is
    small, of a size known at run time, or has its columns elsewhere than last in memory."""
    found = _blocks(ctx, x, axes)
    if found is None:
        return None
    rows, blocks, strides = found.rows, found.blocks, found.strides
    means = fold(ctx, node, rows, "sum", loader(found.tensor, acc), acc, finish=divide_by(rows.count), strides=strides)
    rest = fold(ctx, node, rows, "sum", difference(found.tensor, means, acc), acc, strides=strides)
    own = fold(ctx, node, rows, "sum", squared_difference(found.tensor, means, acc), acc, strides=strides)
    mean = fold(ctx, node, blocks, "sum", loader(means), acc, finish=divide_by(blocks.count))

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        """Of all x in a block: (x - mean)^2 = (x - m)^2 + (m - mean) * (2 * (x - m) + (m - mean))."""
        apart = difference(means, mean, acc)(body, at)
        drift = body.op("mul", body.load(rest, at), number(body, as_expr(2), acc))
        drift = body.op("add", drift, body.op("mul", apart, number(body, rows.count, acc)))
        return body.op("add", body.load(own, at), body.op("mul", apart, drift))

    squares = fold(ctx, node, blocks, "sum", element, acc)
    return found.without_cut(mean), found.without_cut(squares)


def _blocks(ctx: Lowering, x: TensorValue, axes: Axes) -> Blocks | None:
    """How to cut the rows of a tensor; None if they are not worth it."""
    view, sizes = ctx.strided(x), [size.as_int for size in x.sizes]
    strides = [] if view is None else [stride.as_int for stride in view.strides]
    if not strides or None in sizes or None in strides:
        return None
    extent = {d: size for d, size in enumerate(sizes) if size is not None and size > 1}
    stride = {d: strides[d] or 0 for d in extent}
    if product(x.sizes).as_int * x.dtype.itemsize < LEAST_BYTES:  # type: ignore[operator]
        return None
    folded = sorted((d for d in axes.folded if d in extent), key=stride.__getitem__, reverse=True)
    kept = [d for d in axes.kept if d in extent]
    if not kept or not folded or min(stride[d] for d in kept) != 1:
        return None
    if max(stride[d] * extent[d] for d in kept) > stride[folded[-1]]:
        return None  # columns do not lie within a row
    cut = _cut(folded, extent)
    return None if cut is None else _cut_at(x, axes, folded, stride, *cut)


def _cut(folded: list[int], extent: dict[int, int]) -> tuple[int, int] | None:
    """(the folded dimension that is cut, how much of it belongs to a block): all dimensions inside of it, too."""
    inside = 1
    for dim in reversed(folded):
        if inside * extent[dim] <= MOST_ROWS:
            inside *= extent[dim]
            continue
        taken = max(n for n in range(1, MOST_ROWS // inside + 1) if extent[dim] % n == 0)
        return (dim, taken) if inside * taken >= LEAST_ROWS else None
    return None


def _cut_at(x: TensorValue, axes: Axes, folded: list[int], stride: dict[int, int], dim: int, taken: int) -> Blocks:
    sizes = (*x.sizes[:dim], x.sizes[dim] // taken, as_expr(taken), *x.sizes[dim + 1 :])
    at = point(loop_dims(sizes))
    tensor = x.view(sizes, (*at[:dim], at[dim] * taken + at[dim + 1], *at[dim + 2 :]))
    inside = {_moved(d, dim) for d in folded[folded.index(dim) + 1 :]} | {dim + 1}
    rows = Axes(sizes, tuple(sorted(inside)))
    results = rows.result()
    blocks = Axes(results, tuple(sorted({_moved(d, dim) for d in axes.folded} - inside)))
    place = {_moved(d, dim): step for d, step in stride.items()}
    place[dim] = stride[dim] * taken
    order = sorted((d for d in place if d not in inside), key=place.__getitem__)
    strides, step = [ONE] * len(sizes), ONE
    for d in order:
        strides[d], step = step, step * results[d]
    return Blocks(tensor, dim, rows, blocks, tuple(strides))


def _moved(dim: int, cut: int) -> int:
    """The number of a dimension after one before it became two."""
    return dim if dim <= cut else dim + 1
