"""Reads at data-dependent positions: index, gather, embedding, index_select, take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, product
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.pointwise import aten, operand
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import may_be_empty, size_expr
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import canonical, unflatten

_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_UNPOOLINGS = frozenset({aten.max_unpool2d, aten.max_unpool3d})

EMPTY = "an index into a dimension that may have no elements"


@dataclass(frozen=True)
class Advanced:
    """Advanced indexing of a tensor: which dims are indexed by which tensors, and where their broadcast shape stands.

    indices: per dim of the indexed tensor an index tensor or None; shape: the broadcast shape of the index tensors;
    front: the result's dimension at which that shape starts; checked: whether indices may be negative or wrong."""

    indices: tuple[TensorValue | None, ...]
    shape: tuple[Expr, ...]
    front: int
    checked: bool = True

    def position(self, body: Body, at: Sequence[Expr], sizes: Sequence[Expr]) -> list[Expr]:
        """The indexed tensor's coordinates of the result element `at`."""
        width = len(self.shape)
        inside = at[self.front : self.front + width]
        rest = iter([*at[: self.front], *at[self.front + width :]])
        return [
            next(rest) if index is None else index_at(body, index, inside[width - index.ndim :], size, self.checked)
            for index, size in zip(self.indices, sizes, strict=True)
        ]

    def result_sizes(self, sizes: Sequence[Expr]) -> tuple[Expr, ...]:
        """The shape of the indexed result."""
        kept = [size for index, size in zip(self.indices, sizes, strict=True) if index is None]
        return (*kept[: self.front], *self.shape, *kept[self.front :])


def index_at(
    body: Body,
    index: TensorValue,
    at: Sequence[Expr],
    size: Expr,
    checked: bool = True,
    wrap: bool = True,
    error: type[Exception] = IndexError,
) -> Expr:
    """The value of an index tensor as an index expression in [0, size). Without `wrap` negative ones are errors."""
    value = body.cast(body.load(index, at), torch.int64)
    return body.checked_index(value, size, wrap, error) if checked else body.as_index(value, size)


def check_not_empty(node: fx.Node, size: Expr) -> None:
    """Raise Unsupported for an index into a dimension that may have no elements: each operator has its own answer."""
    if may_be_empty(size):
        raise Unsupported(node, EMPTY)


def refusal(node: fx.Node) -> type[Exception]:
    """What gather and scatter raise, and unpooling, which is made of them: RuntimeError; the other operators that are
    made of them (nll_loss) IndexError."""
    whole = node.meta.get("original_aten", node.target).overloadpacket
    return RuntimeError if whole is node.target.overloadpacket or whole in _UNPOOLINGS else IndexError  # type: ignore[union-attr]


def broadcast_sizes(node: fx.Node, shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """The broadcast of shapes."""
    width = max((len(shape) for shape in shapes), default=0)
    result: list[Expr] = [size_expr(1)] * width
    for shape in shapes:
        for k, size in enumerate(shape, width - len(shape)):
            if size == 1 or size == result[k]:
                continue
            if result[k] != 1:
                raise Unsupported(node, f"sizes {result[k]} and {size} are not known to be equal")
            result[k] = size
    return tuple(result)


def advanced(node: fx.Node, x: TensorValue, indices: Sequence[Any], checked: bool = True) -> Advanced:
    """Understand the indices of index and index_put. Raises Unsupported for masks."""
    given = [index for index in indices if index is not None]
    for index in given:
        if not isinstance(index, TensorValue) or index.dtype not in _INDEX_DTYPES:
            raise Unsupported(node, "an index that is a mask: the result's size depends on data")
    padded = (*indices, *(None,) * (x.ndim - len(indices)))
    places = [k for k, index in enumerate(padded) if index is not None]
    adjacent = bool(places) and places[-1] - places[0] + 1 == len(places)
    shape = broadcast_sizes(node, [index.sizes for index in given])
    return Advanced(padded, shape, places[0] if adjacent else 0, checked)


def _index(
    ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any], checked: bool, mask: Any = None, fill: Any = 0
) -> TensorValue:
    how = advanced(node, x, indices, checked)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        inside = at[how.front : how.front + len(how.shape)]
        position = how.position(body, at, x.sizes)
        if mask is None:
            return body.load(x, position)
        shown = operand(ctx, body, inside, mask, torch.bool)
        if not isinstance(fill, Expr):
            return body.load(x, position, shown, fill)
        return body.op("where", shown, body.load(x, position, shown), operand(ctx, body, (), fill, x.dtype))

    return ctx.pointwise(node, compute)


@rule(aten.index.Tensor)
def index(ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any]) -> TensorValue:
    return _index(ctx, node, x, indices, checked=True)


@rule(aten._unsafe_index.Tensor)
def unsafe_index(ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any]) -> TensorValue:
    return _index(ctx, node, x, indices, checked=False)


@rule(aten._unsafe_masked_index.default)
def unsafe_masked_index(
    ctx: Lowering, node: fx.Node, x: TensorValue, mask: TensorValue, indices: Sequence[Any], fill: Any
) -> TensorValue:
    return _index(ctx, node, x, indices, False, mask, fill)


@rule(aten.index_select.default)
def index_select(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    dim = canonical(dim, x.ndim)
    error = RuntimeError if dim == 1 else IndexError  # eager has another kernel for dimension 1

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        if x.ndim == 0:
            index_at(body, index, (ZERO,) * index.ndim, size_expr(1), wrap=False)
            return body.load(x, ())
        chosen = index_at(body, index, (at[dim],)[: index.ndim], x.sizes[dim], wrap=False, error=error)
        return body.load(x, [*at[:dim], chosen, *at[dim + 1 :]])

    return ctx.pointwise(node, compute)


@rule(aten.embedding.default)
def embedding(ctx: Lowering, node: fx.Node, weight: TensorValue, indices: TensorValue, *_: Any) -> TensorValue:
    check_not_empty(node, weight.sizes[0])

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        row = index_at(body, indices, at[: indices.ndim], weight.sizes[0], wrap=False)
        return body.load(weight, [row, *at[indices.ndim :]])

    return ctx.pointwise(node, compute)


@rule(aten.gather.default)
def gather(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, *, sparse_grad: bool = False
) -> TensorValue:
    dim = canonical(dim, x.ndim)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        return body.load(x, along(body, x, dim, index, at, refusal(node)))

    return ctx.pointwise(node, compute)


def along(
    body: Body, x: TensorValue, dim: int, index: TensorValue, at: Sequence[Expr], error: type[Exception]
) -> list[Expr]:
    """The coordinates of x with dimension dim replaced by the index tensor's value at `at` (gather, scatter)."""
    # A 0-dim index stands for one of a single element; one without elements may have any number of dimensions.
    position = [*(at or (ZERO,)), *(ZERO,) * x.ndim][: x.ndim]
    size = x.sizes[dim] if x.ndim else size_expr(1)
    chosen = index_at(body, index, at[: index.ndim], size, wrap=False, error=error)
    if position:
        position[dim] = chosen
    return position


@rule(aten.take.default)
def take(ctx: Lowering, node: fx.Node, x: TensorValue, index: TensorValue) -> TensorValue:
    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        linear = index_at(body, index, at, product(x.sizes))
        return body.load(x, unflatten(linear, x.sizes) if x.ndim else [])

    return ctx.pointwise(node, compute)
