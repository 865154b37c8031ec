"""The gradient of a table whose rows were looked up. Low precision is summed in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, contiguous_strides, product
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.copies import copied
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.scatter import write
from inductor_cpu.lower.sizes import size_expr
from inductor_cpu.lower.values import TensorValue

#: With fewer rows than these for each lookup, sums of whole tables in pieces take less time than those of lookups.
_LEAST_ROWS_OF_LOOKUP = 2

Value = Callable[[Body, tuple[Expr, ...]], int]


@dataclass(frozen=True)
class _Lookups:
    """indices: which of so many rows; padding: that of lookups that do not count, negative for none."""

    indices: TensorValue
    rows: Expr
    padding: int

    @property
    def count(self) -> Expr:
        """How many there are."""
        return product(self.indices.sizes)

    @property
    def are_few(self) -> bool:
        """Whether the table is known to have many more rows."""
        count, rows = self.count.as_int, self.rows.as_int
        return count is not None and rows is not None and 0 < count * _LEAST_ROWS_OF_LOOKUP <= rows

    def number(self, at: Sequence[Expr]) -> Expr:
        """That of a lookup."""
        strides = contiguous_strides(self.indices.sizes)
        return sum((place * stride for place, stride in zip(at, strides, strict=False)), ZERO)

    def row(self, body: Body, at: Sequence[Expr]) -> tuple[Expr, int | None]:
        """Which one is looked up, and a mask of lookups that count."""
        raw = body.cast(body.load(self.indices, at[: self.indices.ndim]), torch.int64)
        mask = body.op("ne", raw, body.index(self.padding)) if self.padding >= 0 else None
        return body.checked_index(raw, self.rows), mask


@rule(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    ctx: Lowering,
    node: fx.Node,
    grad: TensorValue,
    indices: TensorValue,
    num_weights: Any,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> TensorValue:
    if scale_grad_by_freq:
        raise Unsupported(node, "embedding gradients scaled by frequency")
    lookups = _Lookups(indices, size_expr(num_weights), padding_idx)
    wide = torch.float32 if grad.dtype in LOW_PRECISION else grad.dtype
    if wide != grad.dtype and lookups.are_few:
        return _of_few(ctx, node, lookups, grad)

    def compute(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, int | None]:
        row, mask = lookups.row(body, at)
        return [row, at[-1]], body.cast(body.load(grad, at), wide), mask

    total = ctx.pointwise(node, lambda body, at: body.const(0, wide), dtype=wide)
    write(ctx, node, total, grad.sizes, compute, "add")
    return total if wide == grad.dtype else copied(ctx, node, total)


def _of_few(ctx: Lowering, node: fx.Node, lookups: _Lookups, grad: TensorValue) -> TensorValue:
    """The sums of rows that were looked up alone, which then replace zeros. They lie where the last lookup of their row
    has its number. Sums of all rows would be four times the bytes of the result, to write and to read."""

    def zeros(dtype: torch.dtype, sizes: Sequence[Expr] | None = None) -> TensorValue:
        return ctx.pointwise(node, lambda body, at: body.const(0, dtype), sizes, dtype)

    last = zeros(torch.int64, [lookups.rows])
    sums = zeros(torch.float32, [lookups.count, grad.sizes[-1]])

    def name(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, int | None]:
        row, mask = lookups.row(body, at)
        return [row], body.index(lookups.number(at)), mask

    def place(body: Body, at: tuple[Expr, ...], row: Expr) -> Sequence[Expr]:
        return [body.as_index(body.load(last, [row]), lookups.count), at[-1]]

    def add(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, int | None]:
        row, mask = lookups.row(body, at)
        return place(body, at, row), body.cast(body.load(grad, at), torch.float32), mask

    def finish(body: Body, at: tuple[Expr, ...]) -> tuple[Sequence[Expr], int, int | None]:
        row, mask = lookups.row(body, at)
        return [row, at[-1]], body.load(sums, place(body, at, row)), mask

    write(ctx, node, last, lookups.indices.sizes, name, "set")
    write(ctx, node, sums, grad.sizes, add, "add")
    total = zeros(grad.dtype)
    write(ctx, node, total, grad.sizes, finish, "set")
    return total
