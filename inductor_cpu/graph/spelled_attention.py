"""Attention that is spelled out becomes one operator: matmul -> (scale) -> (+ masks) -> softmax -> (dropout) -> matmul.

What lies between the parts are views, copies and casts. Nothing but the formula may use its inner values: weights that
the program returns stay as they are. In a graph of both directions, as AOTAutograd has it before it takes them apart,
the gradients use them (`spelled_gradients.py`); these become one operator, too:

grad_q, grad_k, grad_v = icpu.attention_backward(grad_out, q, k, v, out, log_sums, mask, ...)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.attention import AttentionChoice
from inductor_cpu.graph.edit import (
    RESHAPES,
    TRANSPOSES,
    add,
    args_of,
    aten,
    carry,
    fake,
    is_call,
    is_view,
    order_of_dims,
)
from inductor_cpu.graph.spelled_forms import Spelled, factor, find_spelled, is_copy, same
from inductor_cpu.graph.spelled_gradients import Gradients, find_gradients
from inductor_cpu.ir.operators import ATTENTION, ATTENTION_BACKWARD

#: The order of the dimensions of an operand, and of the keys as they come into their product.
_AS_IS, _TRANSPOSED = [0, 1, 2, 3], [0, 1, 3, 2]

#: Of a head, in training: with fewer, products of batches are faster (1.6 times with 16 x 16 of float).
_FEWEST_SCORES = 32 * 32


def recognize_attention(gm: fx.GraphModule, choose: AttentionChoice) -> int:
    """Replace what is spelled out, where a kernel of ours computes it; returns how often."""
    found = 0
    for node in gm.graph.find_nodes(op="call_function", target=aten.bmm.default):
        spelled = find_spelled(node)
        kernel = None if spelled is None else choose(fake(node).dtype)[0]
        if spelled is None or kernel is None or not _is_of_one_dtype(spelled):
            continue
        gradients = find_gradients(spelled)
        if any(len(n.users) != 1 for n in spelled.weights) and (gradients is None or _is_small(spelled)):
            continue
        formula = _replace(gm.graph, spelled, kernel, alone=gradients is None)
        if gradients is not None:
            _replace_gradients(gm.graph, gradients, formula)
        found += 1
    if found:
        gm.graph.eliminate_dead_code()
    return found


def _is_small(spelled: Spelled) -> bool:
    """Whether the matrix of scores of each head is so small that products of batches train it faster."""
    rows, keys = spelled.shape[-2:]
    return statically_known_true(rows * keys < _FEWEST_SCORES)


def _is_of_one_dtype(spelled: Spelled) -> bool:
    nodes = (*args_of(spelled.scores.product)[:2], *args_of(spelled.last)[:2], spelled.last)
    return len({fake(node).dtype for node in nodes}) == 1


@dataclass(frozen=True)
class _Formula:
    """The operator in the place of a formula. shape: of the scores; tensors: q, k and v; dropping: which weights are
    kept, with what probability, and the scores of hidden keys."""

    shape: tuple[Any, ...]
    tensors: tuple[fx.Node, fx.Node, fx.Node]
    mask: fx.Node | None
    scale: float
    kernel: str
    dropping: tuple[fx.Node | None, float, float | None]
    out: fx.Node
    log_sums: fx.Node


# -- the formula -------------------------------------------------------------------------------------------------------
def _replace(graph: fx.Graph, spelled: Spelled, kernel: str, alone: bool) -> _Formula:
    """Put the operator in the place of a formula. alone: without gradients; factors of its operands may become part of
    its scale."""
    q, k = args_of(spelled.scores.product)
    last, shape = spelled.last, spelled.shape
    with graph.inserting_before(last):
        q4, q_scale = _operand(graph, q, shape, scalable=alone)
        k4, k_scale = _operand(graph, k, shape, scalable=alone)
        v4, _ = _operand(graph, args_of(last)[1], shape)
        mask = _mask(graph, spelled) if spelled.scores.hidden is None else _shown(graph, spelled)
        transposed = add(graph, aten.permute.default, k4, _TRANSPOSED)
        scale = spelled.scores.scale * q_scale * k_scale
        dropping = (_kept(graph, spelled), spelled.keep, _fill(spelled))
        dense = not _is_wanted_by_rows(last, _AS_IS, [*fake(q4).shape[:3], fake(v4).shape[3]])
        settings = (scale, False, spelled.nan_rows, kernel, *dropping, not alone, dense)
        both = add(graph, ATTENTION, q4, transposed, v4, mask, *settings)
        out, log_sums = _results(graph, both)
        carry(last, both, out, log_sums)
    _hand_over(graph, last, out, _AS_IS, saved=not alone)
    return _Formula(shape, (q4, transposed, v4), mask, scale, kernel, dropping, out, log_sums)


def _results(graph: fx.Graph, call: fx.Node) -> list[fx.Node]:
    """The results of a call as nodes."""
    return [add(graph, operator.getitem, call, i, value=value) for i, value in enumerate(fake(call))]


def _kept(graph: fx.Graph, spelled: Spelled) -> fx.Node | None:
    """Which weights are not dropped, drawn where and as eager draws it."""
    dropout = spelled.dropout
    if dropout is None:
        return None
    with graph.inserting_before(dropout):
        # By its sizes: to be like the weights would keep these, which nobody else reads.
        sizes = list(spelled.shape)
        value = fake(spelled.softmax).new_empty(sizes, dtype=torch.bool)
        place = add(graph, aten.empty.memory_format, sizes, dtype=torch.bool, value=value)
        kept = add(graph, aten.bernoulli.p, place, spelled.keep)
        carry(dropout, kept)
        return kept if len(spelled.shape) == 4 else add(graph, aten.unsqueeze.default, kept, 1)


def _fill(spelled: Spelled) -> float | None:
    """What hidden scores are; None for -infinity."""
    hidden = spelled.scores.hidden
    return None if hidden is None or hidden.fill == -math.inf else hidden.fill


def _operand(graph: fx.Graph, x: fx.Node, shape: Sequence[Any], scalable: bool = False) -> tuple[fx.Node, float]:
    """An operand of a product as (batch, heads, rows, columns), where it lay before it was made one for the product,
    and a number that it must be multiplied by."""
    if len(shape) == 3:
        return add(graph, aten.unsqueeze.default, x, 1), 1.0
    wanted = (*shape[:2], *fake(x).shape[1:])
    found, scale, passed, node = None, 1.0, 1.0, x
    while True:
        if same(fake(node).shape, wanted):
            found, scale = node, passed
        by = factor(node) if scalable and found is not None else None
        if by is not None and fake(args_of(node)[0]).dtype != fake(node).dtype:
            by = None  # integers
        if by is not None:
            passed *= by
        elif not is_copy(node):
            break
        node = args_of(node)[0]
    return (found if found is not None else add(graph, aten.reshape.default, x, list(wanted))), scale


def _mask(graph: fx.Graph, spelled: Spelled) -> fx.Node | None:
    """The sum of the masks, which can be expanded to four dimensions."""
    total: fx.Node | None = None
    for mask, its_shape in spelled.scores.masks:
        mask = _over_scores(graph, mask, its_shape, spelled.shape)
        total = mask if total is None else add(graph, aten.add.Tensor, total, mask)
    return total


def _shown(graph: fx.Graph, spelled: Spelled) -> fx.Node:
    """Which keys are not hidden."""
    hidden = spelled.scores.hidden
    assert hidden is not None
    shown = add(graph, aten.logical_not.default, hidden.where) if hidden.hides else hidden.where
    return _over_scores(graph, shown, hidden.shape, spelled.shape)


def _over_scores(graph: fx.Graph, mask: fx.Node, its_shape: Sequence[Any], shape: Sequence[Any]) -> fx.Node:
    """A mask of scores that have another shape there, as one that can be expanded to four dimensions."""
    if not same(its_shape, shape):
        mask = add(graph, aten.expand.default, mask, list(its_shape))
        mask = add(graph, aten.reshape.default, mask, list(shape))
    return add(graph, aten.unsqueeze.default, mask, 1) if len(shape) == 3 and fake(mask).dim() == 3 else mask


# -- its gradients -----------------------------------------------------------------------------------------------------
def _replace_gradients(graph: fx.Graph, gradients: Gradients, formula: _Formula) -> None:
    """Put the operator in the place of a formula's gradients."""
    q, k, v = formula.tensors
    by = ((gradients.by_q, q, _AS_IS), (gradients.by_k, k, _TRANSPOSED), (gradients.by_v, v, _AS_IS))
    dense = not any(_is_wanted_by_rows(product, order, [fake(of).shape[d] for d in order]) for product, of, order in by)
    with graph.inserting_before(gradients.first):
        grad_out, _ = _operand(graph, gradients.grad_out, formula.shape)
        given = (*formula.tensors, formula.out, formula.log_sums, formula.mask, formula.scale, False, formula.kernel)
        together = add(graph, ATTENTION_BACKWARD, grad_out, *given, *formula.dropping, dense)
        *grads, slopes = _results(graph, together)
        carry(gradients.first, together, *grads, slopes)
    for (product, _, order), grad in zip(by, grads, strict=True):
        if product is not None:
            _hand_over(graph, product, grad, order)
    for user, value in gradients.by_masks:
        with graph.inserting_before(user):
            user.replace_input_with(value, add(graph, aten.reshape.default, slopes, list(fake(value).shape)))


# -- results -----------------------------------------------------------------------------------------------------------
def _hand_over(graph: fx.Graph, product: fx.Node, made: fx.Node, order: list[int], saved: bool = False) -> None:
    """Let what uses a product of batches use `made` instead, which has the same values in four dimensions, of which
    `order` gives those of the product. saved: the gradients read `made`, so that no result may be a view of it, into
    which the program may write."""
    with graph.inserting_before(product):
        permuted = made if order == sorted(order) else add(graph, aten.permute.default, made, order)
        # With the strides that its users know; the lowering reads it as index arithmetic.
        flat = add(graph, aten.reshape.default, permuted, list(fake(product).shape), value=fake(product))
    for view, its_order in list(_views(product, fake(permuted).shape, order)):
        for copy in [user for user in view.users if is_call(user, (aten.clone.default,))]:
            with graph.inserting_before(copy):
                as_it_lies = add(graph, aten.permute.default, made, its_order)
            if same(fake(as_it_lies).stride(), fake(copy).stride()) and not (saved and _is_returned(copy)):
                copy.replace_all_uses_with(as_it_lies)
    product.replace_all_uses_with(flat)


def _views(product: fx.Node, shape: Sequence[Any], order: list[int]) -> Iterator[tuple[fx.Node, list[int]]]:
    """The views of four dimensions of a product of batches, with the order of their dimensions."""
    for user in product.users:
        if is_call(user, RESHAPES) and same(fake(user).shape, shape):
            yield from _transposed(user, order)


def _transposed(node: fx.Node, order: list[int]) -> Iterator[tuple[fx.Node, list[int]]]:
    """A value and its transposed views, with the order of their dimensions."""
    yield node, order
    for user in node.users:
        if is_call(user, TRANSPOSES):
            yield from _transposed(user, [order[d] for d in order_of_dims(user)])


def _is_wanted_by_rows(product: fx.Node | None, order: list[int], shape: Sequence[Any]) -> bool:
    """Whether the heads of a product of batches are brought next to each other. shape: with four dimensions."""
    return product is not None and any(order == [0, 2, 1, 3] for _, order in _views(product, shape, order))


def _is_returned(node: fx.Node) -> bool:
    """Whether a value, or a view of it, is a result."""
    return any(user.op == "output" or (is_view(user) and _is_returned(user)) for user in node.users)
