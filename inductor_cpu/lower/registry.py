"""The registry of lowering rules: operator overload -> rule.

A rule is `rule(ctx: Lowering, node: fx.Node, *args, **kwargs) -> value`, with the node's arguments already lowered. It
returns a value (see `lower/values.py`) or raises `Unsupported(node, reason)`: then the node becomes an Extern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these operator overloads. A target has one rule only."""

    def register(function: Rule) -> Rule:
        for target in targets:
            if target in RULES:
                raise ValueError(f"{target} has two lowering rules")
            RULES[target] = function
        return function

    return register
