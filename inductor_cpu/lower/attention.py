"""Attention and its gradients by kernels of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.nodes import Attention, AttentionBackward
from inductor_cpu.ir.operators import ATTENTION, ATTENTION_BACKWARD
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
    kept: TensorValue | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    in_parts: bool = False,
    dense: bool = False,
) -> tuple[TensorValue, TensorValue | None]:
    """The operands are read where they lie if their rows are contiguous. The second result exists if somebody reads
    it."""
    q_view, k_view, v_view = (ctx.with_rows(node, x) for x in (q, k, v))
    mask_view, kept_view = (_mask(ctx, node, x, q_view, k_view) for x in (mask, kept))
    out, log_sums = meta_of(node)
    made = ctx.new_buffer(out.dtype, size_exprs(out.shape), dense_strides(out))
    sums = None
    if any(user.args[1] == 1 for user in node.users):
        sums = ctx.new_buffer(torch.float32, size_exprs(log_sums.shape), dense_strides(log_sums))
    ctx.nodes.append(
        Attention(
            ctx.fresh("attention"), kernel, q_view, k_view, v_view, mask_view, float(scale), causal, nan_rows,
            made.name, None if sums is None else sums.name, (node.name,), kept=kept_view, keep=keep, fill=fill,
            in_parts=in_parts,
        )
    )  # fmt: skip
    return ctx.whole(made), None if sums is None else ctx.whole(sums)


@rule(ATTENTION_BACKWARD)
def attention_backward(
    ctx: Lowering,
    node: fx.Node,
    grad_out: TensorValue,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    out: TensorValue,
    log_sums: TensorValue,
    mask: TensorValue | None,
    scale: float,
    causal: bool,
    kernel: str,
    kept: TensorValue | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    dense: bool = False,
) -> tuple[TensorValue | None, ...]:
    """The operands are read where they lie if their rows are contiguous. The fourth result exists if somebody reads
    it."""
    grad_view, q_view, k_view, v_view, out_view = (ctx.with_rows(node, x) for x in (grad_out, q, k, v, out))
    sums = ctx.strided(log_sums) or ctx.strided(ctx.copy(node, log_sums))
    assert sums is not None
    mask_view, kept_view = (_mask(ctx, node, x, q_view, k_view) for x in (mask, kept))
    read = 4 if any(user.args[1] == 3 for user in node.users) else 3
    made = [ctx.new_buffer(x.dtype, size_exprs(x.shape), dense_strides(x)) for x in meta_of(node)[:read]]
    grad_q, grad_k, grad_v = (buffer.name for buffer in made[:3])
    slopes = made[3].name if read == 4 else None
    ctx.nodes.append(
        AttentionBackward(
            ctx.fresh("attention_backward"), kernel, grad_view, q_view, k_view, v_view, out_view, sums, mask_view,
            float(scale), causal, grad_q, grad_k, grad_v, (node.name,), kept=kept_view, keep=keep, fill=fill,
            in_parts=len(sums.sizes) == 4, slopes=slopes,
        )
    )  # fmt: skip
    return *(ctx.whole(buffer) for buffer in made), *[None] * (4 - read)


def _mask(ctx: Lowering, node: fx.Node, mask: TensorValue | None, q: View, k: View) -> View | None:
    """A mask as a view of the shape of the scores."""
    return None if mask is None else _expanded(ctx, node, mask, (*q.sizes[:3], k.sizes[2]))


def _expanded(ctx: Lowering, node: fx.Node, mask: TensorValue, sizes: Sequence[Expr]) -> View:
    """A mask as a view of the shape of the scores; what is copied is not expanded."""
    own = mask.sizes
    if not own or (own[-1] == 1 and sizes[-1] != 1):
        dims = (*own[:-1], sizes[-1])
        mask = mask.view(dims, (*point(loop_dims(dims))[:-1], ZERO) if own else ())
    view = ctx.with_rows(node, mask)
    missing = len(sizes) - len(own)
    strides = [
        ZERO if d < missing or own[d - missing] == 1 else view.strides[d - missing] for d in range(len(sizes) - 1)
    ]
    return replace(view, sizes=tuple(sizes), strides=(*strides, view.strides[-1]))
