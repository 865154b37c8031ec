"""Numbers computed from sizes: a float is a 0-dim float64 tensor; integers need no rule: they are index expressions."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.pointwise import operand
from inductor_cpu.lower.registry import RULES, rule
from inductor_cpu.lower.values import TensorValue

#: Python operator on sizes -> scalar op on f64 ("" is the identity).
_FLOAT_OPERATORS: dict[Any, str] = {
    operator.truediv: "div",
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.pow: "pow",
    operator.neg: "neg",
    math.sqrt: "sqrt",
    getattr(torch, "_sym_sqrt"): "sqrt",  # noqa: B009  (not in torch's type stubs)
    torch.sym_float: "",
    torch.sym_max: "maximum",
    torch.sym_min: "minimum",
}


def _lower(ctx: Lowering, node: fx.Node, *args: Any) -> TensorValue:
    if not isinstance(meta_of(node), (float, torch.SymFloat)):
        raise Unsupported(node, "an integer that is no expression of sizes")
    op = _FLOAT_OPERATORS[node.target]

    def compute(body: Body, at: tuple[Expr, ...]) -> int:
        operands = [operand(ctx, body, at, value, torch.float64) for value in args]
        return body.op(op, *operands) if op else operands[0]

    return ctx.pointwise(node, compute, (), torch.float64)


@rule(torch.ops.aten._local_scalar_dense.default)
def item(ctx: Lowering, node: fx.Node, x: TensorValue) -> TensorValue:
    """The float in a tensor. An int is read by a call, since a size may need it."""
    if not isinstance(meta_of(node), torch.SymFloat):
        raise Unsupported(node, "it reads a number that Python or a size needs")
    return ctx.pointwise(
        node, lambda body, _: operand(ctx, body, (ZERO,) * x.ndim, x, torch.float64), (), torch.float64
    )


@rule(torch.ops.aten._assert_scalar.default)
def assert_scalar(ctx: Lowering, node: fx.Node, holds: Any, _: str) -> None:
    """A check of sizes. One that the ranges of the sizes prove needs no call."""
    if not (isinstance(holds, Expr) and holds == 1):
        raise Unsupported(node, "a check of sizes at run time")


for _target in _FLOAT_OPERATORS:
    RULES[_target] = _lower
