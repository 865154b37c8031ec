"""flex_attention by a kernel of our own: the program's functions of a score become loops over a block of scores.

The functions are graphs over single numbers (a score, the batch, head, query and key that it is of) and whatever
tensors they read. The rules of all operators lower them, into one loop body instead of nests: a value is computed where
it is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, as_expr, contiguous_strides
from inductor_cpu.ir.loop_nest import LoopNest, Store
from inductor_cpu.ir.nodes import Attention, Blocks
from inductor_cpu.ir.operators import FLEX_ATTENTION, FLEX_KERNEL
from inductor_cpu.lower.body import Body, Number
from inductor_cpu.lower.context import Lowering, PointFunction, dense_strides, meta_of
from inductor_cpu.lower.registry import RULES, rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point
from inductor_cpu.lower.views import expanded

#: The size of the block in the mask of a call without a mask.
_NO_BLOCK = 1 << 30


@rule(FLEX_ATTENTION)
def flex_attention(
    ctx: Lowering,
    node: fx.Node,
    q: TensorValue,
    k: TensorValue,
    v: TensorValue,
    score: fx.GraphModule,
    block_mask: Sequence[Any],
    scale: Any,
    options: Any,
    of_score: Sequence[Any],
    of_mask: Sequence[Any],
) -> tuple[TensorValue, TensorValue | None, None]:
    """The lists of blocks of a mask say where to look for keys; there, its function says which count. The second
    result, logarithms to the base of 2, exists if somebody reads it."""
    if FLEX_KERNEL not in node.meta:
        raise Unsupported(node, "no kernel of ours computes it")
    if not isinstance(scale, (int, float)):
        raise Unsupported(node, "its scale is known at run time only")
    batch = q.sizes[0]
    k, v = (expanded(x, (batch, *x.sizes[1:])) for x in (k, v))
    sizes = (*q.sizes[:3], k.sizes[2])
    scores = ctx.new_buffer(torch.float32, sizes, kind="accumulator")
    nest = _scores(ctx, node, scores.name, sizes, scale, (score, of_score), (block_mask[-1], of_mask))
    q_view, k_view, v_view = (ctx.with_rows(node, x) for x in (q, k, v))
    blocks = _blocks(ctx, node, sizes, block_mask)
    out = meta_of(node)[0]
    strides = dense_strides(out)
    shape = size_exprs(out.shape)
    made = ctx.new_buffer(out.dtype, shape, strides if strides[-1] == 1 else contiguous_strides(shape))
    read = any(user.args[1] == 1 for user in node.users)
    sums = ctx.new_buffer(torch.float32, sizes[:3]) if read else None
    ctx.nodes.append(
        Attention(
            ctx.fresh("attention"), node.meta[FLEX_KERNEL], q_view, k_view, v_view, None, 1.0, False, False,
            made.name, None if sums is None else sums.name, (node.name,), nest, blocks,
        )
    )  # fmt: skip
    return ctx.whole(made), None if sums is None else _binary(ctx, node, ctx.whole(sums)), None


def _binary(ctx: Lowering, node: fx.Node, sums: TensorValue) -> TensorValue:
    """Natural logarithms to the base of 2, as the operator gives them."""
    return ctx.pointwise(
        node,
        lambda body, at: body.op("div", body.load(sums, at), body.const(math.log(2), torch.float32)),
        sums.sizes,
        torch.float32,
    )


def _blocks(ctx: Lowering, node: fx.Node, sizes: Sequence[Expr], block_mask: Sequence[Any]) -> Blocks | None:
    """The lists of a mask; None for one that is a single block, as a call without a mask has it."""
    _, _, counts, numbers, full_counts, full_numbers = block_mask[:6]
    rows, keys = (as_expr(size) for size in block_mask[-3:-1])
    if all((block.as_int or 0) >= _NO_BLOCK for block in (rows, keys)):
        return None
    pairs = [(counts, numbers)] if full_counts is None else [(counts, numbers), (full_counts, full_numbers)]
    lists = [tuple(ctx.with_rows(node, expanded(x, (*sizes[:2], *x.sizes[2:]))) for x in pair) for pair in pairs]
    return Blocks(tuple((first, second) for first, second in lists), rows, keys)


Function = tuple[fx.GraphModule, Sequence[Any]]


def _scores(
    ctx: Lowering, node: fx.Node, name: str, sizes: Sequence[Expr], scale: float, score: Function, mask: Function
) -> LoopNest:
    """where(mask(b, h, q, k), score(s * scale, b, h, q, k), -inf) for all scores s, in place."""
    dims, inlined = loop_dims(sizes), _Inlined(ctx)
    whole = TensorValue(name, torch.float32, dims, point(dims))
    body = _Body(inlined)
    places = [inlined.value(torch.int64, _index(at)) for at in point(dims)]
    scaled = inlined.value(
        torch.float32, lambda body, _: body.op("mul", body.load(whole, point(dims)), body.const(scale, torch.float32))
    )
    results = []
    for (function, others), own in ((score, [scaled, *places]), (mask, places)):
        value = _call(inlined, function, [*own, *others])
        if not isinstance(value, TensorValue) or value.ndim:
            raise Unsupported(node, "a function of its scores gives no number")
        results.append(body.load(value, ()))
    changed, seen = body.cast(results[0], torch.float32), body.cast(results[1], torch.bool)
    final = body.op("where", seen, changed, body.const(-math.inf, torch.float32))
    store = Store(name, point(dims), final)
    return LoopNest(ctx.fresh("nest"), dims, (), tuple(body.instructions), (store,), (node.name,))


def _index(at: Expr) -> PointFunction:
    return lambda body, _: body.index(at)


def _call(ctx: _Inlined, function: fx.GraphModule, args: Sequence[Any]) -> Any:
    """The result of a graph of lowered operators. Raises Unsupported for one without a rule."""
    env: dict[fx.Node, Any] = dict(zip(function.graph.find_nodes(op="placeholder"), args, strict=True))
    for node in function.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "call_function" or node.target not in RULES:
            raise Unsupported(node, f"a function of its scores calls {node.target}, which is no loop")
        named = fx.map_arg(node.kwargs, env.__getitem__)
        env[node] = RULES[node.target](ctx, node, *fx.map_arg(node.args, env.__getitem__), **named)
    result = function.graph.output_node().args[0]
    return env[result] if isinstance(result, fx.Node) else result


class _Inlined(Lowering):
    """A lowering without nests: an elementwise value is computed by `_Body` at each point that reads it."""

    def __init__(self, ctx: Lowering) -> None:
        super().__init__(ctx.graph_name)
        self.buffers = dict(ctx.buffers)
        self.functions: dict[str, tuple[PointFunction, torch.dtype]] = {}

    def value(self, dtype: torch.dtype, compute: PointFunction, sizes: Sequence[Expr] = ()) -> TensorValue:
        """A value that a function computes for each position."""
        name, dims = self.fresh("value"), loop_dims(sizes)
        self.functions[name] = (compute, dtype)
        return TensorValue(name, dtype, dims, point(dims))

    def pointwise(
        self,
        node: fx.Node,
        compute: PointFunction,
        sizes: Sequence[Expr] | None = None,
        dtype: torch.dtype | None = None,
        strides: Sequence[Expr] | None = None,
    ) -> TensorValue:
        """A value instead of a nest."""
        sizes, dtype, _ = self._layout(node, sizes, dtype, strides)
        return self.value(dtype, compute, sizes)

    def add_nest(self, node: fx.Node, *_: Any) -> None:
        """Raises Unsupported: a nest is more than a value."""
        raise Unsupported(node, f"a function of its scores calls {node.target}, which is more than one element's value")


class _Body(Body):
    """A body that computes the values of an `_Inlined` lowering, each once for each position."""

    def __init__(self, ctx: _Inlined) -> None:
        super().__init__()
        self._ctx = ctx
        self._computed: dict[tuple[str, tuple[Expr, ...]], int] = {}

    def load(self, tensor: TensorValue, position: Sequence[Expr], mask: int | None = None, fill: Number = 0) -> int:
        """The tensor's element at a logical position."""
        if tensor.buffer not in self._ctx.functions:
            return super().load(tensor, position, mask, fill)
        if mask is not None:
            raise Unsupported(None, "a function of its scores pads what it computes")
        at = tensor.at(position)
        if (tensor.buffer, at) not in self._computed:
            compute, dtype = self._ctx.functions[tensor.buffer]
            self._computed[tensor.buffer, at] = self.cast(compute(self, at), dtype)
        return self._computed[tensor.buffer, at]
