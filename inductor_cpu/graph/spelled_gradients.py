"""The gradients of attention that is spelled out, as autograd writes them: which nodes they are.

grad_weights = grad_out @ v^T (of kept weights, cast),  slopes = softmax_backward(grad_weights, softmax) * scale
grad_q = slopes @ k,  grad_k^T = q^T @ slopes,  grad_v = weights^T @ grad_out
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import fx

from inductor_cpu.graph.edit import TRANSPOSES, args_of, aten, fake, is_call, order_of_dims
from inductor_cpu.graph.spelled_forms import Spelled, factor, hidden_in, is_last, passes_on

_ALIASES = (aten.detach.default, aten.alias.default)


@dataclass(frozen=True)
class Gradients:
    """grad_out: the gradient of the result. by_q, by_k, by_v: the products that are the gradients of the operands, that
    of keys transposed; None for one that nobody asks for. by_masks: uses of the gradient of what is added to scores, as
    (user, value). first: the first node of all of these."""

    grad_out: fx.Node
    by_q: fx.Node | None
    by_k: fx.Node | None
    by_v: fx.Node | None
    by_masks: tuple[tuple[fx.Node, fx.Node], ...]
    first: fx.Node


def find_gradients(spelled: Spelled) -> Gradients | None:
    """The gradients of a formula, if these, and the formula itself, are all that uses its inner values."""
    aliases = _aliases(spelled.softmax)
    backward = _softmax_backward(aliases)
    if backward is None:
        return None
    above, below = _grad_weights(spelled, backward), _slopes(spelled, backward, 1.0, spelled.scores.hidden is None)
    if above is None or below is None:
        return None
    grad_weights, slopes = above[-1], below[-1].node
    grad_out, v_across = args_of(grad_weights)
    if not _is_transpose(v_across, args_of(spelled.last)[1]):
        return None
    weights = spelled.weights[0]
    across = [user for user in weights.users if _is_transpose(user, weights)]
    found = {spelled.last: "out", **_by_slopes(spelled, slopes)}
    for node in (user for value in across for user in value.users if is_call(user, (aten.bmm.default,))):
        if args_of(node)[1] is grad_out:
            found[node] = "v"
    inner = {*spelled.weights, *spelled.kept, *aliases, *across, *above, *(step.node for step in below)}
    others = [(user, node) for node in inner for user in node.users if user not in inner and user not in found]
    added = {step.node for step in below if step.is_of_masks and fake(step.node).dtype == fake(slopes).dtype}
    by = {name: node for node, name in found.items()}
    if len(by) != len(found) or any(node not in added for _, node in others):
        return None
    first = min(grad_weights, *(node for node in found if node is not spelled.last))
    return Gradients(grad_out, by.get("q"), by.get("k"), by.get("v"), tuple(others), first)


def _aliases(node: fx.Node) -> list[fx.Node]:
    """A node and all that are the same value by another name."""
    found = [node]
    for alias in found:
        found += [user for user in alias.users if is_call(user, _ALIASES)]
    return found


def _softmax_backward(aliases: list[fx.Node]) -> fx.Node | None:
    """The only gradient of a softmax over the last dimension."""
    target = aten._softmax_backward_data.default
    found = {user for node in aliases for user in node.users if is_call(user, (target,)) and args_of(user)[1] is node}
    if len(found) != 1:
        return None
    (backward,) = found
    return backward if is_last(args_of(backward)[2], fake(backward).dim()) else None


def _grad_weights(spelled: Spelled, backward: fx.Node) -> list[fx.Node] | None:
    """The nodes from the softmax's gradient up to the product with values that it is made of."""
    chain, dropped = [backward], False
    while True:
        node = args_of(chain[-1])[0]
        if is_call(node, (aten.bmm.default,)):
            return [*chain, node] if dropped == (spelled.dropout is not None) else None
        if not dropped and _is_gradient_of_dropout(spelled, node):
            dropped = True
        elif not isinstance(node, fx.Node) or not passes_on(node):
            return None
        chain.append(node)


def _is_gradient_of_dropout(spelled: Spelled, node: object) -> bool:
    """Whether a node is the gradient of what drops the weights."""
    if spelled.dropout is None or not is_call(node, (aten.native_dropout_backward.default,)):
        return False
    assert isinstance(node, fx.Node)
    _, kept, scale = args_of(node)
    return kept in spelled.kept and math.isclose(scale, 1 / spelled.keep)


@dataclass(frozen=True)
class _Step:
    """A value on the way from the softmax's gradient to the products. is_of_masks: whether it is the gradient of what
    is added to scores, too."""

    node: fx.Node
    is_of_masks: bool


def _slopes(spelled: Spelled, node: fx.Node, scale: float, shown: bool) -> tuple[_Step, ...] | None:
    """The values from the softmax's gradient, or a later one, down to that of the product with keys. scale: what it has
    been multiplied by; shown: whether that of hidden scores has become 0, if there are some."""
    step = _Step(node, shown and scale == 1 and bool(spelled.scores.masks))
    if shown and math.isclose(scale, spelled.scores.scale) and _by_slopes(spelled, node):
        return (step,)
    for user in node.users:
        by = 1.0 if passes_on(user) else factor(user)
        hides = None if shown else _hides_slopes(spelled, user, node)
        if by is None and not hides:
            continue
        rest = _slopes(spelled, user, scale * (by or 1.0), shown or bool(hides))
        if rest is not None:
            return (step, *rest)
    return None


def _hides_slopes(spelled: Spelled, node: fx.Node, slopes: fx.Node) -> bool:
    """Whether a node makes the gradient of hidden scores 0."""
    found, hidden = hidden_in(node), spelled.scores.hidden
    if found is None or hidden is None or found[0] is not slopes:
        return False
    return found[1] == replace(hidden, fill=0.0, shape=found[1].shape)


def _by_slopes(spelled: Spelled, slopes: fx.Node) -> dict[fx.Node, str]:
    """The gradients of queries and keys among the users of slopes."""
    (q, k), found = args_of(spelled.scores.product), {}
    for node in slopes.users:
        if is_call(node, (aten.bmm.default,)):
            first, second = args_of(node)
            if first is slopes and _is_transpose(second, k):
                found[node] = "q"
            elif second is slopes and _is_transpose(first, q):
                found[node] = "k"
    return found


def _is_transpose(node: object, of: fx.Node) -> bool:
    """Whether a node is a matrix, or matrices, transposed."""
    if not isinstance(node, fx.Node) or not is_call(node, TRANSPOSES) or args_of(node)[0] is not of:
        return False
    return order_of_dims(node) == [0, 2, 1]
