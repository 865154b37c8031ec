"""Writes at data-dependent positions. A copy of the tensor, then a nest that stores into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, minimum
from inductor_cpu.ir.loop_nest import Scalar, Store
from inductor_cpu.ir.ops import INDEX_CHECKS, LOW_PRECISION
from inductor_cpu.lower.body import Body, check_held
from inductor_cpu.lower.checks import held
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.copies import copied
from inductor_cpu.lower.in_place import is_overwritten
from inductor_cpu.lower.indexing import EMPTY, advanced, along, broadcast_sizes, check_not_empty, index_at, refusal
from inductor_cpu.lower.pointwise import aten, check_constants, operand
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import may_be_empty, size_expr
from inductor_cpu.lower.terms import Term
from inductor_cpu.lower.values import TensorValue, loop_dims, point
from inductor_cpu.lower.views import canonical

#: (body, loop position) -> (coordinates to write, SSA value, mask or None)
Write = Callable[[Body, tuple[Expr, ...]], tuple[Sequence[Expr], int, int | None]]


def write(ctx: Lowering, node: fx.Node, target: TensorValue, sizes: Sequence[Expr], compute: Write, mode: str) -> None:
    """Store to a fresh buffer at computed coordinates, once per point of a loop over `sizes`."""
    if target.ndim == 0:
        raise Unsupported(node, "a write to computed coordinates of a 0-dim tensor")
    dims, body = loop_dims(sizes), Body()
    position, value, mask = compute(body, point(dims))
    if node in ctx.overwrites:
        mask = _without_errors(body, mask)
    store = Store(target.buffer, tuple(position), body.cast(value, target.dtype), mode, mask)
    ctx.add_nest(node, dims, (), body, (store,))


def _without_errors(body: Body, mask: int | None) -> int | None:
    """The mask, false where an index is out of range: the kernel goes on with 0 and reports it at its end."""
    for instruction in [i for i in body.instructions if isinstance(i, Scalar) and i.op in INDEX_CHECKS]:
        index, size = (Term(body, k) for k in instruction.args)
        low = -size if instruction.op == "check_index" else size.const(0)
        inside = (index < size) & (index >= low)
        mask = inside.value if mask is None else (inside & Term(body, mask)).value
    return mask


def target_of(ctx: Lowering, node: fx.Node, x: TensorValue) -> TensorValue:
    """Where the node writes: a copy of x, or x itself."""
    return x if is_overwritten(ctx, node, x) else copied(ctx, node, x)


def added(ctx: Lowering, node: fx.Node, x: TensorValue, sizes: Sequence[Expr], compute: Write) -> TensorValue:
    """x plus values at computed coordinates. Low precision is summed in f32 and rounded once."""
    if x.dtype == torch.bool:
        raise Unsupported(node, "adding to bools")
    if x.dtype not in LOW_PRECISION and is_overwritten(ctx, node, x):
        write(ctx, node, x, sizes, compute, "add")
        return x
    wide = torch.float32 if x.dtype in LOW_PRECISION else x.dtype
    total = ctx.pointwise(node, lambda body, at: body.load(x, at), dtype=wide)
    write(ctx, node, total, sizes, compute, "add")
    return total if wide == x.dtype else copied(ctx, node, total)


#: Fake operators do not compare the sizes: eager mode does when it runs, and raises.
NOT_AS_PLACES = "values that are not known to have the sizes of the places"


# -- index_put -------------------------------------------------------------------------------------------------------
def _index_put(
    ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any], values: Any, accumulate: bool, checked: bool
) -> TensorValue:
    given = [index for index in indices if index is not None]
    if len(given) == 1 and given[0].dtype == torch.bool and not accumulate and values.ndim == 0:
        return _masked(ctx, node, x, indices, values)
    how = advanced(node, x, indices, checked)
    sizes = how.result_sizes(x.sizes)
    if broadcast_sizes(node, [sizes, values.sizes]) != sizes:
        raise Unsupported(node, NOT_AS_PLACES)

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, None]:
        return how.position(body, at, x.sizes), operand(ctx, body, at, values, x.dtype), None

    if accumulate and x.dtype == torch.bool:
        raise Unsupported(node, "adding to bools")
    result = target_of(ctx, node, x)
    write(ctx, node, result, sizes, compute, "add" if accumulate else "set")
    return result


def _masked(ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any], value: Any) -> TensorValue:
    """x[mask] = one value."""
    front = next(k for k, index in enumerate(indices) if index is not None)
    mask = indices[front]

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        chosen = body.load(mask, at[front : front + mask.ndim])
        return body.op("where", chosen, operand(ctx, body, at, value, x.dtype), body.load(x, at))

    return ctx.pointwise(node, compute)


@rule(aten.index_put.default)
def index_put(
    ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> TensorValue:
    return _index_put(ctx, node, x, indices, values, accumulate, checked=True)


@rule(aten._unsafe_index_put.default)
def unsafe_index_put(
    ctx: Lowering, node: fx.Node, x: TensorValue, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> TensorValue:
    return _index_put(ctx, node, x, indices, values, accumulate, checked=False)


@rule(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put(
    ctx: Lowering, node: fx.Node, x: TensorValue, mask: TensorValue, indices: Sequence[Any], values: TensorValue
) -> TensorValue:
    how = advanced(node, x, indices, checked=False)

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, int]:
        inside = at[how.front : how.front + len(how.shape)]
        shown = operand(ctx, body, inside, mask, torch.bool)
        return how.position(body, at, x.sizes), operand(ctx, body, at, values, x.dtype), shown

    return added(ctx, node, x, how.result_sizes(x.sizes), compute)


# -- scatter ---------------------------------------------------------------------------------------------------------
def _scattered(
    node: fx.Node, x: TensorValue, dim: int, index: TensorValue, value: Callable[[Body, tuple[Expr, ...]], int]
) -> Write:
    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, None]:
        return along(body, x, dim, index, at, refusal(node)), value(body, at), None

    return compute


def _source(source: Any, x: TensorValue) -> Callable[[Body, tuple[Expr, ...]], int]:
    """The source element at a position of the index tensor; a number stands for itself."""

    def load(body: Body, at: tuple[Expr, ...]) -> int:
        if isinstance(source, TensorValue):
            return body.load(source, at[: source.ndim])
        return _number(body, source, x.dtype)

    return load


def _number(body: Body, value: Any, dtype: torch.dtype) -> int:
    """A number or a size as a value."""
    check_held(value, dtype)
    return body.cast(body.index(value), dtype) if isinstance(value, Expr) else body.const(value, dtype)


def _is_one_hot(x: TensorValue, dim: int, index: TensorValue) -> bool:
    """Whether the index names one position along dim for each of the other coordinates of x (as the gradient of a
    gather of one element does): then no two writes meet, and each element can tell alone whether it is written."""
    return x.ndim > 0 and index.sizes == tuple(size_expr(1) if d == dim else size for d, size in enumerate(x.sizes))


def _one_hot(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: Any, add: bool
) -> TensorValue:
    """where(position == index, source, x) as a pointwise nest, which fuses with what makes x and reads the result."""
    value = _source(source, x)

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        place = tuple(size_expr(0) if d == dim else p for d, p in enumerate(at))
        chosen = body.checked(body.load(index, place), x.sizes[dim], wrap=False, error=refusal(node))
        old, new = body.load(x, at), body.cast(value(body, place), x.dtype)
        here = body.op("eq", chosen, body.index(at[dim]))
        return body.op("where", here, body.op("add", old, new) if add else new, old)

    return ctx.pointwise(node, compute)


@rule(aten.scatter.src, aten.scatter.value)
def scatter(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: Any) -> TensorValue:
    dim = canonical(dim, x.ndim)
    if _is_one_hot(x, dim, index) and not is_overwritten(ctx, node, x):
        return _one_hot(ctx, node, x, dim, index, source, add=False)
    result = target_of(ctx, node, x)
    write(ctx, node, result, index.sizes, _scattered(node, x, dim, index, _source(source, x)), "set")
    return result


@rule(aten.scatter_add.default)
def scatter_add(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: TensorValue
) -> TensorValue:
    return _scatter_add(ctx, node, x, canonical(dim, x.ndim), index, source)


def _scatter_add(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: Any
) -> TensorValue:
    if x.dtype != torch.bool and _is_one_hot(x, dim, index) and not is_overwritten(ctx, node, x):
        return _one_hot(ctx, node, x, dim, index, source, add=True)
    return added(ctx, node, x, index.sizes, _scattered(node, x, dim, index, _source(source, x)))


@rule(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: Any, *, reduce: str
) -> TensorValue:
    if reduce != "add":
        raise Unsupported(node, f"scatter with reduce={reduce!r}: a store can set or add only")
    return _scatter_add(ctx, node, x, canonical(dim, x.ndim), index, source)


@rule(aten.scatter_reduce.two)
def scatter_reduce(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorValue:
    if reduce != "sum":
        raise Unsupported(node, f"scatter with reduce={reduce!r}: a store can set or add only")
    dim = canonical(dim, x.ndim)
    if not include_self:
        cleared = target_of(ctx, node, x)
        clear = _scattered(node, x, dim, index, lambda body, at: body.const(0, x.dtype))
        write(ctx, node, cleared, index.sizes, clear, "set")
        x = cleared
    return _scatter_add(ctx, node, x, dim, index, source)


# -- along one dimension ---------------------------------------------------------------------------------------------
def _rows(
    node: fx.Node,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    value: Callable[[Body, tuple[Expr, ...]], int],
    wrap: bool = False,
    error: type[Exception] = IndexError,
) -> tuple[tuple[Expr, ...], Write]:
    """The loop and the writes of x[..., index, ...] = value, index having at most one dimension. wrap: whether negative
    indices count from the end, or are errors, as others out of range."""
    length = index.sizes[0] if index.ndim else size_expr(1)
    sizes = tuple(length if d == dim else size for d, size in enumerate(x.sizes)) if x.ndim else (length,)

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, None]:
        size = x.sizes[dim] if x.ndim else size_expr(1)
        chosen = index_at(body, index, (at[dim],)[: index.ndim], size, wrap=wrap, error=error)
        position = [*at[:dim], chosen, *at[dim + 1 :]] if x.ndim else []
        return position, value(body, at), None

    return sizes, compute


def _check_rows(node: fx.Node, x: TensorValue, source: TensorValue, sizes: Sequence[Expr]) -> None:
    """Raise Unsupported where a source is not known to have a value for each place."""
    number = x.ndim == source.ndim == 0 and all(size == 1 for size in sizes)
    if source.sizes != tuple(sizes) and not number:
        raise Unsupported(node, NOT_AS_PLACES)


def _checked_dim(node: fx.Node, x: TensorValue, dim: int, index: TensorValue) -> int:
    """The dimension of a copy or fill of rows. Raises Unsupported for what eager refuses in ways of its own."""
    dim = canonical(dim, x.ndim)
    check_not_empty(node, x.sizes[dim] if x.ndim else size_expr(1))
    if index.dtype != torch.int64:
        raise Unsupported(node, f"positions of {index.dtype}, which is an error")
    return dim


@rule(aten.index_add.default)
def index_add(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: TensorValue, *, alpha: Any = 1
) -> TensorValue:
    check_constants(node, (alpha,))
    dim = canonical(dim, x.ndim)
    if x.ndim and x.sizes[dim] == 0:
        raise Unsupported(node, EMPTY)
    as_scatter = alpha == 1 and index.dtype == torch.int64 and x.ndim > 1 and dim in (0, x.ndim - 1)  # as in eager mode

    def value(body: Body, at: tuple[Expr, ...]) -> int:
        loaded = Term(body, body.load(source, at[: source.ndim]))
        return (loaded if alpha == 1 else loaded * alpha).value

    sizes, compute = _rows(node, x, dim, index, value, error=RuntimeError if as_scatter else IndexError)
    _check_rows(node, x, source, sizes)
    if x.ndim > 1 and may_be_empty(x.sizes[dim]):  # rows added to none at all are no error, but nothing
        sizes = tuple(n * minimum(x.sizes[dim], 1) if d == dim else n for d, n in enumerate(sizes))
    if x.dtype == torch.bool:
        raise Unsupported(node, "adding to bools")
    if as_scatter:
        return added(ctx, node, x, sizes, compute)  # any other addition rounds after each row
    result = target_of(ctx, node, x)
    write(ctx, node, result, sizes, compute, "add")
    return result


@rule(aten.index_copy.default)
def index_copy(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, source: TensorValue
) -> TensorValue:
    dim = _checked_dim(node, x, dim, index)
    sizes, compute = _rows(node, x, dim, index, lambda body, at: body.load(source, at[: source.ndim]))
    _check_rows(node, x, source, sizes)
    result = target_of(ctx, node, x)
    write(ctx, node, result, sizes, compute, "set")
    return result


@rule(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, index: TensorValue, value: Any) -> TensorValue:
    check_held(value, x.dtype)
    dim = _checked_dim(node, x, dim, index)
    value = held(ctx, node, value, x.dtype)

    def number(body: Body, at: tuple[Expr, ...]) -> int:
        return operand(ctx, body, at, value, x.dtype)

    sizes, compute = _rows(node, x, dim, index, number, wrap=True)
    result = target_of(ctx, node, x)
    write(ctx, node, result, sizes, compute, "set")
    return result
