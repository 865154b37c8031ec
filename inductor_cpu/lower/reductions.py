"""Reductions: sums, products, extrema and their positions. Low precision accumulates in f32 and rounds once.

`fold` is the one way to build a reduction nest; the rules say what is folded and what happens after. A large reduction
with few results becomes two nests (`split_reduction`), so that threads have work and rounding errors stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, as_expr, product
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import may_be_empty
from inductor_cpu.lower.values import TensorValue

aten = torch.ops.aten

#: (body, input position) -> the value to fold there.
Element = Callable[[Body, tuple[Expr, ...]], int]
#: (body, folded value, result position) -> what is stored.
Finish = Callable[[Body, int, tuple[Expr, ...]], int]

# A reduction is split when it has fewer results than _FEW_RESULTS and folds at least _MANY_ELEMENTS for each.
_FEW_RESULTS = 16
_MANY_ELEMENTS = 32768
_CHUNKS = range(64, 7, -1)
_SPLITTABLE = frozenset({"sum", "prod", "max", "min", "fmax", "any", "all"})


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of `dtype` are summed: f32 for low precision, int64 for integers and bool."""
    if dtype in LOW_PRECISION:
        return torch.float32
    return dtype if dtype.is_floating_point else torch.int64


@dataclass(frozen=True)
class Axes:
    """A shape and the dimensions of it (ascending) that a reduction folds."""

    sizes: tuple[Expr, ...]
    folded: tuple[int, ...]

    @property
    def count(self) -> Expr:
        """How many elements go into one result."""
        return product(self.sizes[d] for d in self.folded)

    @property
    def loops(self) -> tuple[int, ...]:
        """The folded dimensions that need a loop: not those of size 1."""
        return tuple(d for d in self.folded if self.sizes[d] != 1)

    def result(self, keepdim: bool = True) -> tuple[Expr, ...]:
        """The shape of the result."""
        ones = [as_expr(1) if d in self.folded else size for d, size in enumerate(self.sizes)]
        return tuple(ones) if keepdim else tuple(self.sizes[d] for d in self.kept)

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions that are not folded."""
        return tuple(d for d in range(len(self.sizes)) if d not in self.folded)

    def position(self, at: Sequence[Expr], inner: Sequence[Expr], keepdim: bool = True) -> tuple[Expr, ...]:
        """The input position for a result position and a position in the loops."""
        values: list[Expr] = [ZERO] * len(self.sizes)
        for d, expr in zip(self.kept, [at[d] for d in self.kept] if keepdim else at, strict=True):
            values[d] = expr
        for d, expr in zip(self.loops, inner, strict=True):
            values[d] = expr
        return tuple(values)


def axes_of(tensor: TensorValue, dim: Any) -> Axes:
    """The axes for a `dim` argument: None, an int or a list (an empty one means all); negative ones count back."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return Axes(tensor.sizes, tuple(range(tensor.ndim)))
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    return Axes(tensor.sizes, tuple(sorted({d % tensor.ndim for d in dims})) if tensor.ndim else ())


def number(body: Body, value: Expr, dtype: torch.dtype) -> int:
    """An integer expression as a value of `dtype`."""
    constant = value.as_int
    return body.const(constant, dtype) if constant is not None else body.cast(body.index(value), dtype)


def loader(tensor: TensorValue, *dtypes: torch.dtype) -> Element:
    """Loads the tensor's element, converted to these dtypes one after the other."""

    def load(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.load(tensor, at)
        for dtype in dtypes:
            value = body.cast(value, dtype)
        return value

    return load


def difference(x: TensorValue, average: TensorValue, acc: torch.dtype) -> Element:
    """x - average, with average broadcast along the folded dimensions."""

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        return body.op("sub", body.cast(body.load(x, at), acc), body.load(average, at))

    return element


def squared_difference(x: TensorValue, average: TensorValue, acc: torch.dtype) -> Element:
    """(x - average)^2, with average broadcast along the folded dimensions."""

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        apart = difference(x, average, acc)(body, at)
        return body.op("mul", apart, apart)

    return element


# -- building nests --------------------------------------------------------------------------------------------------
def fold(
    ctx: Lowering,
    node: fx.Node,
    axes: Axes,
    kind: str,
    element: Element,
    acc: torch.dtype,
    *,
    dtype: torch.dtype | None = None,
    finish: Finish | None = None,
    keepdim: bool = True,
    strides: Sequence[Expr] | None = None,
) -> TensorValue:
    """The reduction `kind` of `element` over the axes, folded in `acc`, then finished and stored as `dtype` (acc unless
    given; contiguous unless strides are given)."""
    partial = split_reduction(ctx, node, axes, kind, element, acc, keepdim)
    if partial is not None:
        axes, element = Axes(partial.sizes, (0,)), loader(partial)
        keepdim = False

    def compute(body: Body, at: tuple[Expr, ...], inner: tuple[Expr, ...]) -> int:
        value = body.cast(element(body, axes.position(at, inner, keepdim)), acc)
        if axes.loops:
            value = body.reduce(kind, value)
        elif kind in ("argmax", "argmin"):
            value = body.const(0, torch.int64)
        return finish(body, value, at) if finish else value

    loops = [axes.sizes[d] for d in axes.loops]
    return ctx.reduction(node, compute, loops, axes.result(keepdim), dtype or acc, strides)


def split_reduction(
    ctx: Lowering, node: fx.Node, axes: Axes, kind: str, element: Element, acc: torch.dtype, keepdim: bool
) -> TensorValue | None:
    """Partial results [chunks, *result shape] of a large reduction with few results; None if it is better not split."""
    split = _chunking(axes) if kind in _SPLITTABLE else None
    if split is None:
        return None
    dim, chunks = split
    inner_size = axes.sizes[dim] // chunks
    part = Axes(tuple(inner_size if d == dim else size for d, size in enumerate(axes.sizes)), axes.folded)

    def compute(body: Body, at: tuple[Expr, ...], inner: tuple[Expr, ...]) -> int:
        chunk, *rest = at
        position = list(part.position(rest, inner, keepdim))
        position[dim] = chunk * inner_size + position[dim]
        return body.reduce(kind, body.cast(element(body, tuple(position)), acc))

    sizes = (as_expr(chunks), *axes.result(keepdim))
    return ctx.reduction(node, compute, [part.sizes[d] for d in part.loops], sizes, acc)


def _chunking(axes: Axes) -> tuple[int, int] | None:
    """(dimension, number of chunks): the outermost folded dimension that divides into 8 to 64 chunks."""
    results, count = product(axes.result()).as_int, axes.count.as_int
    if results is None or count is None or not 0 < results < _FEW_RESULTS or count < _MANY_ELEMENTS:
        return None
    for dim in axes.loops:
        size = axes.sizes[dim].as_int or 0
        for chunks in _CHUNKS:
            if size % chunks == 0:
                return dim, chunks
    return None


def node_result(
    ctx: Lowering,
    node: fx.Node,
    axes: Axes,
    kind: str,
    element: Element,
    acc: torch.dtype,
    keepdim: bool,
    finish: Finish | None = None,
    fake: Any = None,
) -> TensorValue:
    """`fold` into a result of the node: its own one, or the one that `fake` describes."""
    fake = meta_of(node) if fake is None else fake
    strides = dense_strides(fake)
    return fold(ctx, node, axes, kind, element, acc, dtype=fake.dtype, finish=finish, keepdim=keepdim, strides=strides)


# -- sums and products -----------------------------------------------------------------------------------------------
@rule(aten.sum.default, aten.sum.dim_IntList)
def sum_(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """sum; integers give int64 unless dtype says otherwise; dtype=bool is any."""
    out = meta_of(node).dtype
    kind, acc = ("any", out) if out == torch.bool else ("sum", accumulator(out))
    return node_result(ctx, node, axes_of(x, dim), kind, loader(x, out), acc, keepdim)


@rule(aten.prod.default, aten.prod.dim_int)
def prod(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """prod; dtype=bool is all."""
    out = meta_of(node).dtype
    kind, acc = ("all", out) if out == torch.bool else ("prod", accumulator(out))
    return node_result(ctx, node, axes_of(x, dim), kind, loader(x, out), acc, keepdim)


@rule(aten.nansum.default)
def nansum(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """sum with NaN taken as 0."""
    out = meta_of(node).dtype

    def element(body: Body, at: tuple[Expr, ...]) -> int:
        value = body.load(x, at)
        if x.dtype.is_floating_point:
            value = body.op("where", body.op("isnan", value), body.const(0, x.dtype), value)
        return body.cast(value, out)

    return node_result(ctx, node, axes_of(x, dim), "sum", element, accumulator(out), keepdim)


@rule(aten.mean.default, aten.mean.dim)
def mean(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """mean: the sum in the accumulator's dtype, divided by the number of elements, rounded once."""
    axes = axes_of(x, dim)
    acc = accumulator(meta_of(node).dtype)
    return node_result(ctx, node, axes, "sum", loader(x, acc), acc, keepdim, divide_by(axes.count))


def divide_by(count: Expr) -> Finish:
    """Finish of a mean."""
    return lambda body, value, at: body.op("div", value, number(body, count, body.dtype(value)))


@rule(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None) -> Any:
    """How many elements are not zero (NaN is not)."""
    return node_result(ctx, node, axes_of(x, dim), "sum", loader(x, torch.bool, torch.int64), torch.int64, False)


def _logical(kind: str) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False) -> Any:
        axes = axes_of(x, dim)
        if isinstance(dim, (tuple, list)) and not dim:  # unlike the other reductions: no dimension at all
            axes = Axes(x.sizes, ())
        return node_result(ctx, node, axes, kind, loader(x, torch.bool), torch.bool, keepdim)

    return lower


rule(aten.any.default, aten.any.dim, aten.any.dims)(_logical("any"))
rule(aten.all.default, aten.all.dim, aten.all.dims)(_logical("all"))


# -- extrema ---------------------------------------------------------------------------------------------------------
def _of_something(node: fx.Node, axes: Axes) -> Finish | None:
    """What an extremum does at its end: nothing has none, an error of the operator. Fake tensors tell that of amax and
    argmax, but not of max and min. A part of an input (s0 // 4) may be empty in some calls, which the kernel sees."""
    count = axes.count
    if not may_be_empty(count):
        return None
    if count == 0 or any(symbol.name.startswith("u") for symbol in count.symbols):
        raise Unsupported(node, "an extremum of what may be empty")
    error = RuntimeError if node.target in (aten.max.default, aten.min.default) else IndexError

    def finish(body: Body, value: int, at: tuple[Expr, ...]) -> int:
        zero = body.const(0, torch.int64)
        exists = body.op("ge", body.checked(zero, count, error=error), zero)
        return body.op("where", exists, value, value)  # the check has to stay

    return finish


def _extremum(kind: str) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False) -> Any:
        axes = axes_of(x, dim)
        return node_result(ctx, node, axes, kind, loader(x), x.dtype, keepdim, _of_something(node, axes))

    return lower


def _extremum_with_index(kind: str) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, keepdim: bool = False) -> Any:
        values, indices = meta_of(node)
        axes = axes_of(x, dim)
        finish = _of_something(node, axes)
        return (
            node_result(ctx, node, axes, kind, loader(x), x.dtype, keepdim, finish, fake=values),
            _position(ctx, node, axes, kind, x, keepdim, indices, finish),
        )

    return lower


def _position(
    ctx: Lowering,
    node: fx.Node,
    axes: Axes,
    kind: str,
    x: TensorValue,
    keepdim: bool,
    fake: Any = None,
    finish: Finish | None = None,
) -> Any:
    """The first position of the extremum, row-major over the folded dimensions; bool counts as 0 and 1."""
    acc = torch.uint8 if x.dtype == torch.bool else x.dtype
    return node_result(ctx, node, axes, f"arg{kind}", loader(x), acc, keepdim, finish, fake=fake)


def _argument(kind: str) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, dim: Any = None, keepdim: bool = False) -> Any:
        if x.dtype == torch.bool:
            raise Unsupported(node, f"{kind} of bools by position, which is an error")
        return _position(ctx, node, axes_of(x, dim), kind, x, keepdim)

    return lower


for _kind in ("max", "min"):
    rule(getattr(aten, f"a{_kind}").default, getattr(aten, _kind).default)(_extremum(_kind))
    rule(getattr(aten, _kind).dim)(_extremum_with_index(_kind))
    rule(getattr(aten, f"arg{_kind}").default)(_argument(_kind))


@rule(aten.aminmax.default)
def aminmax(ctx: Lowering, node: fx.Node, x: TensorValue, *, dim: Any = None, keepdim: bool = False) -> Any:
    """(amin, amax)."""
    axes, fakes = axes_of(x, dim), meta_of(node)
    return tuple(
        node_result(ctx, node, axes, kind, loader(x), x.dtype, keepdim, fake=fake)
        for kind, fake in zip(("min", "max"), fakes, strict=True)
    )
