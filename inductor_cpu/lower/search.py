"""searchsorted and bucketize: a binary search for each element, written out, so that lanes search together.

Each step halves the range in which the place is, as eager's does: the answers agree for sequences with NaN, too, and
for those that are not sorted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.terms import Term, where
from inductor_cpu.lower.values import TensorValue

#: The longest sequence: each doubling is a step of twelve instructions.
LONGEST = 1024


def _search(
    ctx: Lowering, node: fx.Node, sequence: TensorValue, values: TensorValue, right: bool, rows: bool
) -> TensorValue:
    """For each value the first place in its (row of the) sequence that is not before it; right: that is after it."""
    count = sequence.sizes[-1].as_int
    if count is None or count > LONGEST:
        raise Unsupported(
            node, f"a binary search in {sequence.sizes[-1]} elements, which is written out up to {LONGEST}"
        )
    if sequence.dtype != values.dtype or sequence.dtype == torch.bool:
        raise Unsupported(node, f"a binary search for {values.dtype} among {sequence.dtype}")

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        wanted = Term(body, body.load(values, at))
        start, end = (Term(body, body.index(n)) for n in (0, count))
        for _ in range(count.bit_length()):
            searching = start < end
            middle = start + (end - start).op("rshift", 1)
            place = (*(at[:-1] if rows else ()), body.as_index(middle.value, None))
            found = Term(body, body.load(sequence, place, searching.value))
            before = ~(found > wanted if right else found >= wanted)
            start = where(searching & before, middle + 1, start)
            end = where(searching & ~before, middle, end)
        return start.value

    return ctx.pointwise(node, compute)


@rule(aten.bucketize.Tensor)
def bucketize(
    ctx: Lowering,
    node: fx.Node,
    values: TensorValue,
    boundaries: TensorValue,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> TensorValue:
    return _search(ctx, node, boundaries, values, right, rows=False)


@rule(aten.searchsorted.Tensor)
def searchsorted(
    ctx: Lowering,
    node: fx.Node,
    sequence: TensorValue,
    values: TensorValue,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> TensorValue:
    if sorter is not None:
        raise Unsupported(node, "a binary search in an order that is given by another tensor")
    return _search(ctx, node, sequence, values, right or side == "right", rows=sequence.ndim > 1)
