"""Attention that is spelled out becomes one operator: matmul -> (scale) -> (+ masks) -> softmax -> matmul.

What lies between the parts are views, copies and casts. Nothing but the formula may use its inner values: weights that
the program returns stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.attention import AttentionChoice
from inductor_cpu.graph.edit import RESHAPES, add, args_of, aten, fake, is_call, is_number
from inductor_cpu.ir.operators import ATTENTION

_SOFTMAXES = (aten._softmax.default, aten._safe_softmax.default)
_CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)
_MULTIPLICATIONS = (aten.mul.Tensor, aten.mul.Scalar)
_DIVISIONS = (aten.div.Tensor, aten.div.Scalar)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass
class _Scores:
    """What goes into a softmax: q @ k * scale + masks, each mask with the shape that it has there."""

    product: fx.Node
    scale: float = 1.0
    masks: list[tuple[fx.Node, tuple[Any, ...]]] = field(default_factory=list)


def recognize_attention(gm: fx.GraphModule, choose: AttentionChoice) -> int:
    """Replace what is spelled out, where a kernel of ours computes it; returns how often."""
    found = 0
    for node in gm.graph.find_nodes(op="call_function", target=aten.bmm.default):
        found += _replace(gm.graph, node, choose)
    if found:
        gm.graph.eliminate_dead_code()
    return found


def _replace(graph: fx.Graph, last: fx.Node, choose: AttentionChoice) -> bool:
    weights, v = args_of(last)[:2]
    softmax = _source(weights)
    if not is_call(softmax, _SOFTMAXES) or not _is_last(args_of(softmax)[1], fake(softmax).dim()):
        return False
    scores = _scores(args_of(softmax)[0])
    shape = tuple(fake(softmax).shape)
    if scores is None or len(shape) not in (3, 4) or len(softmax.users) != 1:
        return False
    q, k = args_of(scores.product)[:2]
    kernel = choose(fake(q).dtype)[0]
    dtypes = {fake(x).dtype for x in (q, k, v, last)}
    if kernel is None or len(dtypes) != 1 or any(fake(mask).dtype not in _FLOATS for mask, _ in scores.masks):
        return False
    with graph.inserting_before(last):
        q4, q_scale = _operand(graph, q, shape)
        k4, k_scale = _operand(graph, k, shape)
        v4, _ = _operand(graph, v, shape, scalable=False)
        mask = _mask(graph, scores, shape)
        transposed = add(graph, aten.permute.default, k4, [0, 1, 3, 2])
        scale = scores.scale * q_scale * k_scale
        nan_rows = softmax.target is aten._softmax.default
        both = add(graph, ATTENTION, q4, transposed, v4, mask, scale, False, nan_rows, kernel)
        out = graph.call_function(operator.getitem, (both, 0))
        out.meta["val"] = fake(both)[0]
        flat = add(graph, aten.reshape.default, out, list(fake(last).shape))
    last.replace_all_uses_with(flat)
    return True


def _is_last(dim: Any, rank: int) -> bool:
    return bool(dim in (-1, rank - 1))


def _source(node: Any) -> Any:
    """What a value is a view, copy or cast of, through nodes that have no other user."""
    while isinstance(node, fx.Node) and len(node.users) == 1 and _passes_on(node):
        node = args_of(node)[0]
    return node


def _passes_on(node: fx.Node) -> bool:
    """Whether a node has the elements of its input, in order and perhaps of another precision."""
    return _is_copy(node) or (is_call(node, _CASTS) and fake(node).dtype in _FLOATS)


def _scores(node: Any) -> _Scores | None:
    """The product, scale and masks that a softmax's input is made of; None if it is anything else."""
    masks: list[tuple[fx.Node, tuple[Any, ...]]] = []
    scale = 1.0
    while True:
        if not isinstance(node, fx.Node) or len(node.users) != 1:
            return None
        before, node = node, _source(node)
        if (
            not isinstance(node, fx.Node)
            or len(node.users) != 1
            or not _same(fake(before).shape[-2:], fake(node).shape[-2:])
        ):
            return None
        if is_call(node, (aten.bmm.default,)):
            return _Scores(node, scale, masks[::-1])
        args = args_of(node)
        if is_call(node, _MULTIPLICATIONS) and is_number(args[1]):
            factor = float(args[1])
        elif (
            is_call(node, (aten.div.Tensor, aten.div.Scalar))
            and is_number(args[1])
            and args[1] != 0
            and not node.kwargs
        ):
            factor = 1 / float(args[1])
        elif is_call(node, (aten.add.Tensor,)) and not node.kwargs and all(isinstance(a, fx.Node) for a in args[:2]):
            if scale != 1:
                return None  # the masks are scaled too
            node = _without_mask(node, masks)
            continue
        else:
            return None
        scale *= factor
        node = args[0]


def _without_mask(node: fx.Node, masks: list[tuple[fx.Node, tuple[Any, ...]]]) -> Any:
    """The operand of an addition that leads to the product; the other one is appended to the masks."""
    shape = tuple(fake(node).shape)
    first, second = args_of(node)[:2]
    for scores, mask in ((first, second), (second, first)):
        source = _source(scores)
        if _same(fake(scores).shape, shape) and is_call(
            source, (aten.bmm.default, aten.add.Tensor, *_MULTIPLICATIONS, *_DIVISIONS)
        ):
            masks.append((mask, shape))
            return scores
    return None


# -- operands of the new operator --------------------------------------------------------------------------------------
def _operand(graph: fx.Graph, x: fx.Node, shape: Sequence[Any], scalable: bool = True) -> tuple[fx.Node, float]:
    """An operand of a product as (batch, heads, rows, columns), where it lay before it was made one for the product,
    and a number that it must be multiplied by."""
    if len(shape) == 3:
        return add(graph, aten.unsqueeze.default, x, 1), 1.0
    wanted = (*shape[:2], *fake(x).shape[1:])
    found, scale, node = None, 1.0, x
    while True:
        if _same(fake(node).shape, wanted):
            found = node
        if is_call(node, _MULTIPLICATIONS) and is_number(args_of(node)[1]) and scalable and found is not None:
            scale *= float(args_of(node)[1])
        elif not _is_copy(node):
            break
        node = args_of(node)[0]
    return (found if found is not None else add(graph, aten.reshape.default, x, list(wanted))), scale


def _is_copy(node: fx.Node) -> bool:
    """Whether a node has the elements of its input, in order."""
    if is_call(node, (aten.expand.default,)):
        return _same(fake(node).shape, fake(args_of(node)[0]).shape)
    return is_call(node, (*RESHAPES, aten.clone.default))


def _mask(graph: fx.Graph, scores: _Scores, shape: Sequence[Any]) -> fx.Node | None:
    """The sum of the masks, which can be expanded to four dimensions."""
    total: fx.Node | None = None
    for mask, its_shape in scores.masks:
        if not _same(its_shape, shape):
            mask = add(graph, aten.expand.default, mask, list(its_shape))
            mask = add(graph, aten.reshape.default, mask, list(shape))
        if len(shape) == 3 and fake(mask).dim() == 3:
            mask = add(graph, aten.unsqueeze.default, mask, 1)
        total = mask if total is None else add(graph, aten.add.Tensor, total, mask)
    return total


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))
