"""sort, and topk of short rows and of few elements of long ones, by kernels of our own."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, as_expr, contiguous_strides
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.nodes import LONGEST_SHORT_ROW, PART_OF_LONG_ROW, Ranking
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import canonical, permuted

#: Elements of short rows, at most, that topk gives.
MOST_TOP = 32

_FLOATS = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})
_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})

#: The element types of each kind. Eager mode has no topk of bools: its error comes from ATen.
_DTYPES = {"top": _FLOATS | _INTEGERS, "sorted": _FLOATS | _INTEGERS | {torch.bool}}

Results = tuple[TensorValue | None, TensorValue | None]


@rule(aten.topk.default)
def topk(
    ctx: Lowering, node: fx.Node, x: TensorValue, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Results:
    count, columns = as_expr(k).as_int, _columns(x, dim)
    if count is None or columns is None or count < 1:
        raise Unsupported(node, "it wants no elements, or only run time knows how many, or of how many")
    if columns > LONGEST_SHORT_ROW:
        if count * PART_OF_LONG_ROW > columns:
            raise Unsupported(node, f"it wants more than a {PART_OF_LONG_ROW}th of a row: ATen's")
    elif not sorted:
        raise Unsupported(node, "the order of its results is not defined: ATen's is kept")
    elif count > MOST_TOP:
        raise Unsupported(node, f"it wants more than {MOST_TOP} elements of a short row")
    return _ranked(ctx, node, x, dim, "top", as_expr(count), largest)


@rule(aten.sort.default)
def sort(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int = -1, descending: bool = False) -> Results:
    return _ranked(ctx, node, x, dim, "sorted", None, descending)


@rule(aten.sort.stable)
def stable_sort(
    ctx: Lowering, node: fx.Node, x: TensorValue, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Results:
    return _ranked(ctx, node, x, dim, "sorted", None, descending)


def _columns(x: TensorValue, dim: int) -> int | None:
    """Elements of a row; None if that is known at run time."""
    return x.sizes[canonical(dim, x.ndim)].as_int if x.ndim else 1


def _ranked(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, kind: str, count: Expr | None, largest: bool
) -> Results:
    """The results have the ranked dimension last in memory."""
    if x.ndim == 0 or x.dtype not in _DTYPES[kind]:
        raise Unsupported(node, f"rows of {x.dtype}: ATen sorts and selects them")
    dim = canonical(dim, x.ndim)
    if _columns(x, dim) in (0, 1):
        raise Unsupported(node, "rows of one element: nothing is ranked")
    order = [*(d for d in range(x.ndim) if d != dim), dim]
    view = _rows(ctx, node, permuted(x, order))
    count = view.sizes[-1] if count is None else count
    sizes = (*view.sizes[:-1], count)
    wanted = {user.args[1] for user in node.users}
    made = [ctx.new_buffer(d, sizes) if n in wanted else None for n, d in enumerate((x.dtype, torch.int64))]
    names = [None if buffer is None else buffer.name for buffer in made]
    ctx.nodes.append(Ranking(ctx.fresh("ranking"), kind, view, count, largest, names[0], names[1], (node.name,)))
    back = [order.index(d) for d in range(x.ndim)]
    values, indices = (None if buffer is None else permuted(ctx.whole(buffer), back) for buffer in made)
    return values, indices


def _rows(ctx: Lowering, node: fx.Node, x: TensorValue) -> View:
    """The tensor as rows without gaps, copied if it is none."""
    view = ctx.strided(x)
    dense = contiguous_strides(x.sizes)
    if view is None or any(
        size != 1 and ours != wanted for size, ours, wanted in zip(x.sizes, view.strides, dense, strict=True)
    ):
        view = ctx.strided(ctx.copy(node, x))
    assert view is not None
    return view
