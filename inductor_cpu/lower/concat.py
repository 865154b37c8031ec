"""cat and stack, in one of two forms.

Region writes: one nest per part, each storing to its region of the result. A part that one nest computes is computed
in place, nothing is tested, and every byte moves once. That is the best a result in memory can get.

Selection: one pointwise nest that loads each part under a mask and selects. It fuses: with pointwise readers the result
never goes to memory (rotary embeddings, the halves of a gated activation put together again). Each element pays a test
and a masked load per part, so this is for few parts, and only when all readers are elementwise; or when the parts lie
side by side in every row of memory, as channels of pixels do: the code generator then cuts the row at the borders and
tests nothing, and rows are written from end to end. Writing a part of every row at a time takes twice as long, as the
processor fetches what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import fx

from inductor_cpu.ir.index import ONE, ZERO, Expr
from inductor_cpu.ir.loop_nest import Load, LoopNest, Store
from inductor_cpu.ir.nodes import Gemm, Node
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.pointwise import aten
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point
from inductor_cpu.lower.views import canonical

#: The most parts that are worth a test and a masked load each.
MAX_SELECTED = 4

#: Elements of a part of a row: enough for a vector, too few to be written like a tensor of its own.
ROW_PARTS = range(16, 2049)

#: Elementwise or view operators that torch does not tag as such.
_ELEMENTWISE = frozenset({aten._to_copy.default})
_VIEWS = frozenset({aten._unsafe_view.default, aten.reshape.default})


@rule(aten.cat.default)
def cat(ctx: Lowering, node: fx.Node, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    """An input of shape (0,) goes with any shape."""
    sizes = size_exprs(meta_of(node).shape)
    dim = canonical(dim, len(sizes))
    fitting = [tensor for tensor in tensors if tensor.ndim == len(sizes)]
    parts = [part for part in fitting if all(size != 0 for size in part.sizes)] or fitting[:1]
    if 1 < len(parts) <= MAX_SELECTED and (read_elementwise(node) or _are_parts_of_rows(ctx, node, parts, dim)):
        return _selected(ctx, node, parts, dim)
    result = ctx.whole(ctx.new_buffer(meta_of(node).dtype, sizes, dense_strides(meta_of(node))))
    start = ZERO
    for part in parts:
        _place(ctx, node, part, result, dim, start)
        start = start + part.sizes[dim]
    return result


@rule(aten.stack.default)
def stack(ctx: Lowering, node: fx.Node, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    dim = canonical(dim, tensors[0].ndim + 1)
    return cat(ctx, node, [_unsqueezed(tensor, dim) for tensor in tensors], dim)


def _unsqueezed(x: TensorValue, dim: int) -> TensorValue:
    sizes = [*x.sizes[:dim], ONE, *x.sizes[dim:]]
    at = point(loop_dims(sizes))
    return x.view(sizes, [*at[:dim], *at[dim + 1 :]])


def read_elementwise(node: fx.Node) -> bool:
    """Whether everything that reads a node, also through views, is an elementwise operator."""
    return all(_is_elementwise(user) or (_is_view(user) and read_elementwise(user)) for user in node.users)


def _are_parts_of_rows(ctx: Lowering, node: fx.Node, parts: Sequence[TensorValue], dim: int) -> bool:
    """Whether the parts lie side by side in rows of memory, and none is computed by what could store it in place."""
    in_rows = len(meta_of(node).shape) > 1 and dense_strides(meta_of(node))[dim] == ONE
    if not in_rows or not all(part.sizes[dim].as_int in ROW_PARTS for part in parts):
        return False
    makers: dict[str, Node] = {}
    for maker in ctx.nodes:
        stored = [store.buffer for store in maker.stores] if isinstance(maker, LoopNest) else []
        makers.update(dict.fromkeys([maker.accumulator] if isinstance(maker, Gemm) else stored, maker))
    once = all(len(part.users) == 1 for part in node.all_input_nodes if part.op == "call_function")
    return all(maker is None or (once and _is_pointwise(maker)) for maker in _makers_behind(parts, makers))


def _makers_behind(parts: Sequence[TensorValue], makers: Mapping[str, Node]) -> Iterator[Node | None]:
    """What makes each buffer that the parts are computed from, themselves included, point by point; each once."""
    pending, seen = [part.buffer for part in parts], set[str]()
    while pending:
        buffer = pending.pop()
        if buffer in seen:
            continue
        seen.add(buffer)
        maker = makers.get(buffer)
        yield maker
        if isinstance(maker, LoopNest):
            pending.extend(i.buffer for i in maker.body if isinstance(i, Load))


def _is_pointwise(maker: Node) -> bool:
    return isinstance(maker, LoopNest) and not maker.reduce_dims


def _is_elementwise(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (torch.Tag.pointwise in target.tags or target in _ELEMENTWISE)


def _is_view(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (target.is_view or target in _VIEWS)


def _place(ctx: Lowering, node: fx.Node, part: TensorValue, whole: TensorValue, dim: int, start: Expr) -> None:
    dims, body = loop_dims(part.sizes), Body()
    at = point(dims)
    value = body.cast(body.load(part, at), whole.dtype)
    place = [p + start if d == dim else p for d, p in enumerate(at)]
    ctx.add_nest(node, dims, (), body, (Store(whole.buffer, whole.at(place), value),))


def _selected(ctx: Lowering, node: fx.Node, parts: Sequence[TensorValue], dim: int) -> TensorValue:
    dtype = meta_of(node).dtype

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        chosen: list[tuple[int, int]] = []  # (whether the element is of this part or an earlier one, its value)
        start, after = ZERO, None
        for number, part in enumerate(parts):
            end = start + part.sizes[dim]
            before = None if number == len(parts) - 1 else body.op("lt", body.index(at[dim]), body.index(end))
            tests = [test for test in (after, before) if test is not None]
            mask = tests[0] if len(tests) == 1 else body.op("logical_and", *tests)
            own = [p - start if d == dim else p for d, p in enumerate(at)]
            chosen.append((mask if before is None else before, body.cast(body.load(part, own, mask), dtype)))
            start, after = end, body.op("ge", body.index(at[dim]), body.index(end))
        value = chosen[-1][1]
        for test, other in reversed(chosen[:-1]):
            value = body.op("where", test, other, value)
        return value

    return ctx.pointwise(node, compute)
