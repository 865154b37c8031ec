"""Attention by a kernel of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.ir.nodes import Attention, View
from inductor_cpu.ir.operators import ATTENTION
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point


@rule(ATTENTION)
def attention(
    ctx: Lowering,
    node: fx.Node,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    mask: TensorValue | None,
    scale: float,
    causal: bool,
    nan_rows: bool,
    kernel: str,
) -> tuple[TensorValue, TensorValue | None]:
    """The operands are read where they lie if their rows are contiguous. The second result exists if somebody reads
    it."""
    q_view, k_view, v_view = (ctx.with_rows(node, x) for x in (q, k, v))
    scores = (*q_view.sizes[:3], k_view.sizes[2])
    mask_view = None if mask is None else _expanded(ctx, node, mask, scores)
    out, log_sums = meta_of(node)
    made = ctx.new_buffer(out.dtype, size_exprs(out.shape), dense_strides(out))
    sums = None
    if any(user.args[1] == 1 for user in node.users):
        sums = ctx.new_buffer(torch.float32, size_exprs(log_sums.shape), dense_strides(log_sums))
    ctx.nodes.append(
        Attention(
            ctx.fresh("attention"), kernel, q_view, k_view, v_view, mask_view, float(scale), causal, nan_rows,
            made.name, None if sums is None else sums.name, (node.name,),
        )
    )  # fmt: skip
    return ctx.whole(made), None if sums is None else ctx.whole(sums)


def _expanded(ctx: Lowering, node: fx.Node, mask: TensorValue, sizes: Sequence[Expr]) -> View:
    """A mask as a view of the shape of the scores; what is copied is not expanded."""
    own = mask.sizes
    if own and own[-1] == 1 and sizes[-1] != 1:
        dims = (*own[:-1], sizes[-1])
        mask = mask.view(dims, (*point(loop_dims(dims))[:-1], ZERO))
    view = ctx.with_rows(node, mask)
    missing = len(sizes) - len(own)
    strides = [
        ZERO if d < missing or own[d - missing] == 1 else view.strides[d - missing] for d in range(len(sizes) - 1)
    ]
    return replace(view, sizes=tuple(sizes), strides=(*strides, view.strides[-1]))
