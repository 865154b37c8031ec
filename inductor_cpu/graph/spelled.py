"""Activations that a program spells out become the operator that computes them.

One operator can become a post-op of the convolution or linear before it, and rounds once where the formula rounds
at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, args_of, fake, only_user
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
        count += _join_clamps(gm.graph, node)
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
        low, x = inner[0], args_of(x)[0]
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
