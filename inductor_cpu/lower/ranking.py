"""topk and sort of short rows, by a kernel of our own."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, as_expr
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.nodes import Ranking
from inductor_cpu.lower.context import Lowering, contiguous_strides
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.values import TensorValue
from inductor_cpu.lower.views import canonical, permuted

#: Elements of the longest row. Longer ones are ATen's, whose work grows more slowly with the length.
LONGEST = 256
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
    count = as_expr(k).as_int
    if not sorted:
        raise Unsupported(node, "the order of its results is not defined: ATen's is kept")
    if count is None or not 1 <= count <= MOST_TOP:
        raise Unsupported(node, f"it wants more than {MOST_TOP} elements, or a number that is known at run time")
    return _ranked(ctx, node, x, dim, "top", as_expr(count), largest)


@rule(aten.sort.default)
def sort(ctx: Lowering, node: fx.Node, x: TensorValue, dim: int = -1, descending: bool = False) -> Results:
    return _ranked(ctx, node, x, dim, "sorted", None, descending)


@rule(aten.sort.stable)
def stable_sort(
    ctx: Lowering, node: fx.Node, x: TensorValue, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Results:
    return _ranked(ctx, node, x, dim, "sorted", None, descending)


def _ranked(
    ctx: Lowering, node: fx.Node, x: TensorValue, dim: int, kind: str, count: Expr | None, largest: bool
) -> Results:
    """The results have the ranked dimension last in memory."""
    if x.ndim == 0 or x.dtype not in _DTYPES[kind]:
        raise Unsupported(node, f"rows of {x.dtype}: ATen sorts and selects them")
    dim = canonical(dim, x.ndim)
    columns = x.sizes[dim].as_int
    if columns is None or not 2 <= columns <= LONGEST:
        raise Unsupported(
            node, f"rows that are longer than {LONGEST} elements or of a length known at run time: ATen's"
        )
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
