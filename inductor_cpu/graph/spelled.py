"""Activations that a program spells out become the operator that computes them.

One operator can become a post-op of the convolution or linear before it, and rounds once where the formula rounds
at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, args_of, fake, is_call, is_number, only_user
from inductor_cpu.graph.matcher import Pattern, X, call, clamp_bounds, is_floating, match

aten = torch.ops.aten

_SQRT_HALF = 0.5**0.5
_GELU_TANH = (2.0 / torch.pi) ** 0.5

#: formula -> (operator, its keyword arguments). Later rules may use what earlier ones made.
RULES: tuple[tuple[Pattern, Any, dict[str, Any]], ...] = (
    (X * call("relu6", X + 3) / 6, aten.hardswish.default, {}),
    (call("relu6", X + 3) / 6, aten.hardsigmoid.default, {}),
    (X * call("hardsigmoid", X), aten.hardswish.default, {}),
    (X * call("sigmoid", X), aten.silu.default, {}),
    (0.5 * X * (1 + call("erf", _SQRT_HALF * X)), aten.gelu.default, {}),
    (
        0.5 * X * (1 + call("tanh", _GELU_TANH * (X + 0.044715 * X**3))),
        aten.gelu.default,
        {"approximate": "tanh"},
    ),
    (
        0.5 * X * (1 + call("tanh", _GELU_TANH * X * (1 + 0.044715 * X**2))),
        aten.gelu.default,
        {"approximate": "tanh"},
    ),
)


def recognize_activations(gm: fx.GraphModule) -> int:
    """Replace every spelled-out activation; returns how many."""
    count = 0
    for node in list(gm.graph.nodes):
        count += _join_clamps(gm.graph, node) or _leaky_relu(gm.graph, node) or _over_exponential(gm.graph, node)
    gm.graph.eliminate_dead_code()
    for pattern, operator, kwargs in RULES:
        for node in list(gm.graph.nodes):
            if node.op == "call_function" and is_floating(node):
                count += _replace(gm.graph, node, pattern, operator, kwargs)
        gm.graph.eliminate_dead_code()  # a match must not see readers that are dead
    return count


def _replace(graph: fx.Graph, node: fx.Node, pattern: Pattern, operator: Any, kwargs: dict[str, Any]) -> bool:
    found = match(pattern, node)
    if found is None:
        return False
    value, x = fake(node), fake(found.x)
    if not isinstance(x, torch.Tensor) or x.dtype != value.dtype or x.shape != value.shape:
        return False
    with graph.inserting_before(node):
        new = add(graph, operator, found.x, value=value, **kwargs)
    node.replace_all_uses_with(new)
    return True


def _join_clamps(graph: fx.Graph, node: fx.Node) -> bool:
    """min(max(x, low), high) becomes one hardtanh; max(x, 0) becomes relu."""
    bounds = clamp_bounds(node)
    if bounds is None or not is_floating(node) or fake(args_of(node)[0]).dtype != fake(node).dtype:
        return False
    low, high = bounds
    x = args_of(node)[0]
    inner = clamp_bounds(x)
    if low is None and high is not None and inner is not None and inner[1] is None and only_user(x) is node:
        before = args_of(x)[0]
        low, x = (inner[0], before) if fake(before).dtype == fake(node).dtype else (low, x)
    if low is not None and high is not None and node.target is not aten.hardtanh.default and low <= high:
        target, args = aten.hardtanh.default, [low, high]
    elif low == 0 and high is None and node.target is not aten.relu.default:
        target, args = aten.relu.default, []
    else:
        return False
    with graph.inserting_before(node):
        new = add(graph, target, x, *args, value=fake(node))
    node.replace_all_uses_with(new)
    return True


def _leaky_relu(graph: fx.Graph, node: fx.Node) -> bool:
    """where(x > 0, x, x * slope), and max(x, x * slope) with a slope up to 1; 0 would make NaN of
    infinity."""
    if is_call(node, (aten.where.self,)):
        condition, x, scaled = args_of(node)
        if not is_call(condition, (aten.gt.Scalar, aten.ge.Scalar)) or args_of(condition) != (x, 0):
            return False
        slope = _slope(scaled, x)
    elif is_call(node, (aten.maximum.default,)):
        x, scaled = args_of(node)
        slope = _slope(scaled, x)
        if slope is None:
            x, scaled = scaled, x
            slope = _slope(scaled, x)
        slope = slope if slope is not None and 0 < slope <= 1 else None
    else:
        return False
    if slope is None or not is_floating(node) or fake(x).dtype != fake(node).dtype:
        return False
    with graph.inserting_before(node):
        node.replace_all_uses_with(add(graph, aten.leaky_relu.default, x, slope, value=fake(node)))
    return True


def _slope(scaled: Any, x: Any) -> float | None:
    """The number in x * number; None for anything else."""
    if not is_call(scaled, (aten.mul.Tensor,)) or len(scaled.users) != 1 or scaled.kwargs:
        return None
    first, second = args_of(scaled)
    first, second = (second, first) if second is x else (first, second)
    return float(second) if first is x and is_number(second) else None


def _over_exponential(graph: fx.Graph, node: fx.Node) -> bool:
    """x / (1 + exp(-x)) becomes silu; 1 / (1 + exp(-x)) becomes sigmoid."""
    if (
        is_call(node, (aten.mul.Tensor,))
        and args_of(node)[1] == 1
        and is_call(args_of(node)[0], (aten.reciprocal.default,))
    ):
        over, below = None, args_of(args_of(node)[0])[0]  # how 1 / y is traced
    elif is_call(node, (aten.div.Tensor,)) and not node.kwargs:
        over, below = args_of(node)
    else:
        return False
    if not is_call(below, (aten.add.Tensor,)) or below.kwargs or 1 not in args_of(below) or len(below.users) != 1:
        return False
    exponential = next((a for a in args_of(below) if is_call(a, (aten.exp.default,))), None)
    if exponential is None or len(exponential.users) != 1:
        return False
    negative = args_of(exponential)[0]
    if not is_call(negative, (aten.neg.default,)) or len(negative.users) != 1:
        return False
    x = args_of(negative)[0]
    if over not in (None, x) or not is_floating(node) or fake(x).dtype != fake(node).dtype:
        return False
    with graph.inserting_before(node):
        target = aten.sigmoid.default if over is None else aten.silu.default
        node.replace_all_uses_with(add(graph, target, x, value=fake(node)))
    return True
