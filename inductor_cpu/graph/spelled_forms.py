"""What attention looks like in ATen's operators where a program spells it out, and which nodes it is made of."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.edit import RESHAPES, args_of, aten, fake, is_call, is_number

_SOFTMAXES = (aten._softmax.default, aten._safe_softmax.default)
_CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)
_MULTIPLICATIONS = (aten.mul.Tensor, aten.mul.Scalar)
_DIVISIONS = (aten.div.Tensor, aten.div.Scalar)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Hidden:
    """Scores that a number below infinity takes the place of, `where` a tensor of booleans is `hides`. shape: that of
    the scores."""

    where: fx.Node
    hides: bool
    fill: float
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class Scores:
    """What goes into a softmax: q @ k * scale + masks, each mask with the shape that it has there, or with some
    hidden."""

    product: fx.Node
    scale: float = 1.0
    masks: list[tuple[fx.Node, tuple[Any, ...]]] = field(default_factory=list)
    hidden: Hidden | None = None


@dataclass(frozen=True)
class Spelled:
    """last: the product of weights and values. weights: the nodes from its first operand up to the softmax. dropout:
    the one of them that drops weights, or None."""

    last: fx.Node
    weights: tuple[fx.Node, ...]
    dropout: fx.Node | None
    scores: Scores

    @property
    def softmax(self) -> fx.Node:
        """What the weights come from."""
        return self.weights[-1]

    @property
    def kept(self) -> tuple[fx.Node, ...]:
        """The nodes that say which weights are not dropped."""
        users = () if self.dropout is None else self.dropout.users
        return tuple(user for user in users if is_call(user, (operator.getitem,)) and args_of(user)[1] == 1)

    @property
    def keep(self) -> float:
        """The probability that a weight is not dropped."""
        return 1.0 if self.dropout is None else 1.0 - args_of(self.dropout)[1]

    @property
    def shape(self) -> tuple[Any, ...]:
        """That of the scores: (batch, rows, keys) or (batch, heads, rows, keys)."""
        return tuple(fake(self.softmax).shape)

    @property
    def nan_rows(self) -> bool:
        """Whether a row without any key is NaN."""
        return self.softmax.target is aten._softmax.default


def find_spelled(last: fx.Node) -> Spelled | None:
    """Attention whose last product this is. Its scores have no other user; its weights may have some."""
    weights, dropout = _weights(args_of(last)[0])
    softmax = weights[-1]
    if not is_call(softmax, _SOFTMAXES) or not is_last(args_of(softmax)[1], fake(softmax).dim()):
        return None
    if not all(same(fake(node).shape[-2:], fake(softmax).shape[-2:]) for node in weights if node is not dropout):
        return None  # rows of several heads may have become those of one
    scores = _scores(args_of(softmax)[0])
    if scores is None or fake(softmax).dim() not in (3, 4):
        return None
    if any(fake(mask).dtype not in _FLOATS for mask, _ in scores.masks):
        return None
    return Spelled(last, weights, dropout, scores)


def is_last(dim: Any, rank: int) -> bool:
    """Whether a dimension is the last one."""
    return bool(dim in (-1, rank - 1))


def source(node: Any) -> Any:
    """What a value is a view, copy or cast of, through nodes that have no other user."""
    while isinstance(node, fx.Node) and len(node.users) == 1 and passes_on(node):
        node = args_of(node)[0]
    return node


def passes_on(node: fx.Node) -> bool:
    """Whether a node has the elements of its input, in order and perhaps of another precision."""
    return is_copy(node) or (is_call(node, _CASTS) and fake(node).dtype in _FLOATS)


def is_copy(node: fx.Node) -> bool:
    """Whether a node has the elements of its input, in order."""
    if is_call(node, (aten.expand.default,)):
        return same(fake(node).shape, fake(args_of(node)[0]).shape)
    return is_call(node, (*RESHAPES, aten.clone.default))


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether shapes are known to be equal."""
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))


def factor(node: fx.Node) -> float | None:
    """The number that a node multiplies its first operand by; None if it does anything else."""
    args = args_of(node)
    if is_call(node, _MULTIPLICATIONS) and is_number(args[1]):
        return float(args[1])
    if is_call(node, _DIVISIONS) and is_number(args[1]) and args[1] != 0 and not node.kwargs:
        return 1 / float(args[1])
    return None


def hidden_in(node: Any) -> tuple[Any, Hidden] | None:
    """The scores of which a node hides some, and how; None if it does anything else."""
    if is_call(node, (aten.masked_fill.Scalar,)):
        scores, where, fill = args_of(node)
        return _hidden(node, scores, where, True, float(fill))
    if not is_call(node, (aten.where.self,)):
        return None
    where, *values = args_of(node)
    for hides, fill, scores in ((True, _number(values[0]), values[1]), (False, _number(values[1]), values[0])):
        if fill is not None and _number(scores) is None:
            return _hidden(node, scores, where, hides, fill)
    return None


def _hidden(node: fx.Node, scores: Any, where: fx.Node, hides: bool, fill: float) -> tuple[Any, Hidden] | None:
    """The scores, and how they are hidden, with the number as the node's dtype holds it: of a large one it makes
    -infinity. None for infinity and NaN, which are no way to hide, and where the mask makes more scores of them."""
    value = _as_held(fill, node)
    if not value < math.inf or not isinstance(scores, fx.Node) or not same(fake(scores).shape, fake(node).shape):
        return None
    return scores, Hidden(where, hides, value, tuple(fake(node).shape))


def _as_held(value: float, node: fx.Node) -> float:
    """A number as a node's dtype holds it."""
    return _rounded(value, fake(node).dtype)


def _rounded(value: float, dtype: torch.dtype) -> float:
    return torch.tensor(value, dtype=torch.float64).to(dtype).item()


def _dtypes(node: fx.Node, end: Any) -> set[torch.dtype]:
    """Those of a value and of what it is a view, copy or cast of, up to a node that is left out."""
    found = set()
    while node is not end:
        found.add(fake(node).dtype)
        node = args_of(node)[0]
    return found


def _number(node: Any) -> float | None:
    """The number that a tensor without dimensions holds; None if it is another tensor or not known."""
    if not is_call(node, (aten.scalar_tensor.default, aten.full.default)) or fake(node).dim() != 0:
        return None
    value = args_of(node)[-1]
    return _as_held(float(value), node) if is_number(value) and fake(node).dtype.is_floating_point else None


def _weights(node: Any) -> tuple[tuple[fx.Node, ...], fx.Node | None]:
    """The nodes from the operand of a product up to the first one that is no view, copy or cast, and drops nothing; the
    one that drops."""
    chain, dropout = [node], None
    while True:
        if passes_on(node):
            node = args_of(node)[0]
        elif dropout is None and _is_dropped(node):
            chain.append(args_of(node)[0])
            dropout = args_of(node)[0]
            node = args_of(dropout)[0]
        else:
            return tuple(chain), dropout
        chain.append(node)


def _is_dropped(node: Any) -> bool:
    """Whether a node is what dropout leaves of dense values, with a probability between 0 and 1."""
    if not is_call(node, (operator.getitem,)) or args_of(node)[1] != 0:
        return False
    dropout = args_of(node)[0]
    if not is_call(dropout, (aten.native_dropout.default,)):
        return False
    values, probability, train = args_of(dropout)
    return (
        train is not False and isinstance(probability, float) and 0 < probability < 1 and fake(values).is_contiguous()
    )


def _scores(node: Any) -> Scores | None:
    """The product, scale and masks that a softmax's input is made of; None if it is anything else."""
    masks: list[tuple[fx.Node, tuple[Any, ...]]] = []
    hidden: Hidden | None = None
    scale, casts = 1.0, set[torch.dtype]()
    while True:
        if not isinstance(node, fx.Node) or len(node.users) != 1:
            return None
        before, node = node, source(node)
        casts |= _dtypes(before, node)
        if not isinstance(node, fx.Node) or len(node.users) != 1:
            return None
        if not same(fake(before).shape[-2:], fake(node).shape[-2:]):
            return None
        if is_call(node, (aten.bmm.default,)):
            if not casts <= {fake(node).dtype, torch.float32}:
                return None  # a cast rounds scores, or makes infinities of them
            return Scores(node, scale, masks[::-1], hidden)
        by = factor(node)
        if by is not None:
            scale *= by
            node = args_of(node)[0]
        elif is_call(node, (aten.add.Tensor,)) and not node.kwargs and all(isinstance(a, fx.Node) for a in node.args):
            if scale != 1 or hidden is not None:
                return None  # the masks are scaled, or hidden, too
            if any(dtype.itemsize < fake(node).dtype.itemsize for dtype in casts):
                return None  # a cast makes -infinity of a mask's numbers
            node = _without_mask(node, masks)
        elif (found := hidden_in(node)) is not None:
            if scale != 1 or hidden is not None or masks:
                return None
            node, hidden = found
            if any(_rounded(hidden.fill, dtype) != hidden.fill for dtype in casts):
                return None  # a cast changes the number
        else:
            return None


def _without_mask(node: fx.Node, masks: list[tuple[fx.Node, tuple[Any, ...]]]) -> Any:
    """The operand of an addition that leads to the product; the other one is appended to the masks."""
    shape = tuple(fake(node).shape)
    first, second = args_of(node)[:2]
    for scores, mask in ((first, second), (second, first)):
        found = source(scores)
        if same(fake(scores).shape, shape) and is_call(
            found, (aten.bmm.default, aten.add.Tensor, *_MULTIPLICATIONS, *_DIVISIONS)
        ):
            masks.append((mask, shape))
            return scores
    return None
