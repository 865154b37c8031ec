"""Patterns over FX graphs that read like the formula they match: `x * relu6(x + 3) / 6`.

A pattern is built from the variable `X`, numbers, `+ * / **` and calls of named functions (`call("sigmoid", X)`).
Sums and products are matched in any order and grouping; a number may be off by one part in ten thousand, because
programs write constants such as sqrt(2 / pi) with few digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal, Union

import torch
from torch import fx

from inductor_cpu.graph.edit import args_of, fake, is_call

aten = torch.ops.aten

#: Relative, of a formula's constants, which programs write with few digits; of float64 they count.
_TOLERANCE, _TOLERANCE_OF_DOUBLES = 1e-4, 1e-12

#: Function name -> the operators that compute it from one tensor and no further arguments.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "sigmoid": (aten.sigmoid.default,),
    "tanh": (aten.tanh.default,),
    "erf": (aten.erf.default,),
    "hardsigmoid": (aten.hardsigmoid.default,),
}

Kind = Literal["x", "sum", "product", "call"]
Operand = Union["Pattern", float, int]


@dataclass(frozen=True)
class Pattern:
    """x, a call of `name`, or a sum or product of `parts` and one `number`."""

    kind: Kind
    parts: tuple[Pattern, ...] = ()
    number: float = 0.0
    name: str = ""

    def __add__(self, other: Operand) -> Pattern:
        return _combine("sum", self, other)

    def __radd__(self, other: Operand) -> Pattern:
        return _combine("sum", self, other)

    def __mul__(self, other: Operand) -> Pattern:
        return _combine("product", self, other)

    def __rmul__(self, other: Operand) -> Pattern:
        return _combine("product", self, other)

    def __truediv__(self, other: float) -> Pattern:
        return _combine("product", self, 1.0 / other)

    def __pow__(self, exponent: int) -> Pattern:
        return Pattern("product", (self,) * exponent, 1.0)


X = Pattern("x")


def call(name: str, argument: Pattern) -> Pattern:
    """A call of a function: one of `FUNCTIONS`, or relu6 in any of its forms."""
    return Pattern("call", (argument,), name=name)


def _combine(kind: Kind, left: Pattern, right: Operand) -> Pattern:
    number = 0.0 if kind == "sum" else 1.0
    parts: list[Pattern] = []
    for item in (left, right):
        if not isinstance(item, Pattern):
            number = number + item if kind == "sum" else number * item
        elif item.kind == kind:
            number = number + item.number if kind == "sum" else number * item.number
            parts.extend(item.parts)
        else:
            parts.append(item)
    return Pattern(kind, tuple(parts), number)


@dataclass(frozen=True)
class Match:
    """What x is, and the nodes of the formula."""

    x: fx.Node
    nodes: set[fx.Node] = field(default_factory=set)


def match(pattern: Pattern, node: fx.Node) -> Match | None:
    """Match a formula whose result is `node`; nothing but the formula may use its inner nodes."""
    for x, nodes in _match(pattern, node, None):
        inner = nodes - {node}
        if x is not None and x not in nodes and all(user in nodes for n in inner for user in n.users):
            return Match(x, nodes)
    return None


_Found = tuple[Union[fx.Node, None], set[fx.Node]]


def _match(pattern: Pattern, node: Any, x: fx.Node | None) -> Iterator[_Found]:
    """All ways to match: (x, nodes used)."""
    if not isinstance(node, fx.Node):
        return
    if pattern.kind == "x":
        if x is None or x is node:
            yield node, set()
    elif pattern.kind == "call":
        argument = _called(pattern.name, node)
        if argument is not None:
            for found, nodes in _match(pattern.parts[0], argument[0], x):
                yield found, nodes | argument[1]
    else:
        for deep in (True, False):
            number, parts, nodes = _flatten(pattern.kind, node, deep)
            if len(parts) == len(pattern.parts) and nodes and _close(number, pattern.number, node):
                for order in permutations(parts):
                    for found, more in _match_all(pattern.parts, order, x):
                        yield found, nodes | more


def _match_all(patterns: tuple[Pattern, ...], nodes: tuple[Any, ...], x: fx.Node | None) -> Iterator[_Found]:
    if not patterns:
        yield x, set()
        return
    for found, used in _match(patterns[0], nodes[0], x):
        for last, more in _match_all(patterns[1:], nodes[1:], found):
            yield last, used | more


def _close(a: float, b: float, node: fx.Node) -> bool:
    tolerance = _TOLERANCE_OF_DOUBLES if fake(node).dtype == torch.float64 else _TOLERANCE
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def _called(name: str, node: fx.Node) -> tuple[Any, set[fx.Node]] | None:
    """(argument, nodes) of a call."""
    if name == "relu6":
        return _relu6(node)
    if is_call(node, FUNCTIONS[name]) and len(args_of(node)) == 1 and not node.kwargs:
        return args_of(node)[0], {node}
    return None


def _relu6(node: fx.Node) -> tuple[Any, set[fx.Node]] | None:
    bounds = clamp_bounds(node)
    if bounds == (0.0, 6.0):
        return args_of(node)[0], {node}
    inner = args_of(node)[0] if args_of(node) else None
    if bounds == (None, 6.0) and isinstance(inner, fx.Node) and clamp_bounds(inner) == (0.0, None):
        return args_of(inner)[0], {node, inner}
    return None


def clamp_bounds(node: Any) -> tuple[float | None, float | None] | None:
    """(low, high) of a node that limits its input to numbers; None for any other node."""
    if not isinstance(node, fx.Node) or node.op != "call_function" or node.kwargs:
        return None
    args = [*args_of(node)[1:], None, None]
    if any(a is not None and not isinstance(a, (int, float)) for a in args):
        return None
    low, high = (None if a is None else float(a) for a in args[:2])
    if node.target is aten.hardtanh.default:
        return (-1.0 if low is None else low), (1.0 if high is None else high)
    table: dict[Any, tuple[float | None, float | None]] = {
        aten.relu.default: (0.0, None),
        aten.relu6.default: (0.0, 6.0),
        aten.clamp.default: (low, high),
        aten.clamp_min.default: (low, None),
        aten.clamp_max.default: (None, low),
    }
    return table.get(node.target)


# -- sums and products -------------------------------------------------------------------------------------------------
def _flatten(kind: str, node: fx.Node, deep: bool) -> tuple[float, list[Any], set[fx.Node]]:
    """(number, terms, nodes) of a sum or product; if `deep`, with its grouping removed, except in a term that others
    use too."""
    split = _split_sum(node) if kind == "sum" else _split_product(node)
    if split is None:
        return (0.0 if kind == "sum" else 1.0), [node], set()
    number, terms = split
    parts: list[Any] = []
    nodes = {node}
    for term in terms:
        if deep and isinstance(term, fx.Node) and len(term.users) == 1:
            inner, more, used = _flatten(kind, term, deep)
            number = number + inner if kind == "sum" else number * inner
            parts.extend(more)
            nodes |= used
        else:
            parts.append(term)
    return number, parts, nodes


def _split_sum(node: fx.Node) -> tuple[float, list[Any]] | None:
    if not is_call(node, (aten.add.Tensor,)) or node.kwargs or len(args_of(node)) != 2:
        return None
    numbers = [a for a in args_of(node) if isinstance(a, (int, float))]
    return float(sum(numbers)), [a for a in args_of(node) if not isinstance(a, (int, float))]


def _split_product(node: fx.Node) -> tuple[float, list[Any]] | None:
    if node.kwargs:
        return None
    args = args_of(node)
    if is_call(node, (aten.mul.Tensor,)):
        number = 1.0
        for a in args:
            number = number * a if isinstance(a, (int, float)) else number
        return number, [a for a in args if not isinstance(a, (int, float))]
    if is_call(node, (aten.div.Tensor,)) and isinstance(args[1], (int, float)) and args[1] != 0:
        return 1.0 / args[1], [args[0]]
    if is_call(node, (aten.pow.Tensor_Scalar,)) and args[1] in (2, 3):
        return 1.0, [args[0]] * int(args[1])
    return None


def is_floating(node: fx.Node) -> bool:
    """Whether a node's value is one floating-point tensor."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point
