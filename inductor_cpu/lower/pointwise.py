"""Elementwise ops: the machinery, and the table of operators that are one scalar op.

Families that need formulas build on it: arithmetic.py, activations.py, special.py, copies.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.numbers import wrapped
from inductor_cpu.ir.ops import LOOP_DTYPES, LOW_PRECISION, accepts
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.terms import Term
from inductor_cpu.lower.values import TensorValue

aten = torch.ops.aten
prims = torch.ops.prims

#: A function from operands (SSA values of the compute dtype) to the result.
Compute = Callable[..., int]

#: Eager uses a second operand of one element (a number, or a tensor of any dtype) unrounded with these; the other ops,
#: also add and sub, round it to the common low-precision dtype first, as all do with a first one.
_UNROUNDED_SECOND = {"mul", "div"}

#: What these scalar ops are for integers; "" is the identity.
_INTEGER_FORM = {"floor": "", "ceil": "", "round": "", "trunc": "", "fmax": "maximum", "fmin": "minimum"}

#: What these scalar ops are for bool.
_BOOL_FORM = {"add": "logical_or", "mul": "logical_and", "fmax": "maximum", "fmin": "minimum", "sign": ""}


_INTEGERS = frozenset(d for d in LOOP_DTYPES if not d.is_floating_point and d != torch.bool)


@dataclass(frozen=True)
class Elementwise:
    """operators; compute: a scalar op's name or a function (body, *operands); kind: type promotion; wide: compute
    low-precision values in f32 and round once, as eager's fused kernels do."""

    operators: tuple[Any, ...]
    compute: str | Compute
    kind: KIND = KIND.DEFAULT
    wide: bool = False


def has_one_element(value: Any) -> bool:
    """Whether an operand is a number, a size or a tensor of one element."""
    return all(size == 1 for size in value.sizes) if isinstance(value, TensorValue) else True


def operand(ctx: Lowering, body: Body, at: Sequence[Expr], value: Any, dtype: torch.dtype) -> int:
    """An argument of an elementwise op at a position of the (broadcast) result, in the compute dtype."""
    if isinstance(value, TensorValue):
        own = at[len(at) - value.ndim :]
        return body.cast(body.load(value, own), dtype)
    if isinstance(value, Expr):
        return body.cast(body.index(value), dtype)
    if isinstance(value, (bool, int, float)):
        return body.const(value, dtype)
    raise Unsupported(None, f"an argument of type {type(value).__name__}")


def compute_dtype(node: fx.Node, args: Sequence[Any], kind: KIND) -> torch.dtype:
    """The dtype that eager computes in, from the fake arguments."""
    fakes = [meta_of(a) if isinstance(a, fx.Node) else a for a in args]
    if kind == KIND.ALWAYS_BOOL:
        kind = KIND.DEFAULT
    dtype = elementwise_dtypes(*fakes, type_promotion_kind=kind)[1]
    if dtype not in LOOP_DTYPES:
        raise Unsupported(node, f"dtype {dtype} has no loops")
    return dtype


def elementwise(
    ctx: Lowering,
    node: fx.Node,
    compute: str | Compute,
    args: Sequence[Any],
    dtype: torch.dtype,
    wide: bool = False,
    unrounded: Container[int] = (),
) -> TensorValue:
    """One loop nest that applies `compute` to operands of `dtype`. With `wide`, low-precision operands are widened to
    f32 and the result is rounded once; so it is beside an operand of one element whose number is in `unrounded`, which
    is not rounded to `dtype` before. Integers wrap: eager makes a tensor of a number beside a tensor."""
    args = [_wrapped(a, dtype) for a in args]
    if isinstance(compute, str):
        compute = _scalar_form(node, compute, dtype)
        unrounded = (1,) if compute in _UNROUNDED_SECOND else unrounded
    exact = [k in unrounded and has_one_element(a) for k, a in enumerate(args)]
    inner = torch.float32 if (wide or any(exact)) and dtype in LOW_PRECISION else dtype

    def at_point(body: Body, at: tuple[Expr, ...]) -> int:
        operands = [
            body.cast(operand(ctx, body, at, a, inner if as_it_is else dtype), inner)
            for a, as_it_is in zip(args, exact, strict=True)
        ]
        if compute == "":
            return operands[0]
        value = body.op(compute, *operands) if isinstance(compute, str) else compute(body, *operands)
        return body.cast(value, dtype) if inner != dtype and body.dtype(value) == inner else value

    return ctx.pointwise(node, at_point)


def _wrapped(value: Any, dtype: torch.dtype) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return wrapped(value, dtype) if whole and dtype in _INTEGERS else value


def _scalar_form(node: fx.Node, op: str, dtype: torch.dtype) -> str:
    """The scalar op that computes `op` on a dtype; "" for the identity."""
    if dtype == torch.bool:
        op = _BOOL_FORM.get(op, op)
    elif not dtype.is_floating_point:
        op = _INTEGER_FORM.get(op, op)
    if op and not accepts(op, dtype):
        raise Unsupported(node, f"{op} has no {dtype} kernel")
    return op


def formula(
    *targets: Any, tensors: int = 1, kind: KIND = KIND.DEFAULT, wide: bool = True, floating: bool = True
) -> Callable[[Callable[..., Term]], Callable[..., Term]]:
    """Register a formula over terms as the rule of operators. The first `tensors` arguments become terms, the other
    ones must be Python constants and are passed on. `floating`: the formula holds for floating point only."""

    def register(function: Callable[..., Term]) -> Callable[..., Term]:
        @rule(*targets)
        def lower(ctx: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> TensorValue:
            params = args[tensors:]
            check_constants(node, (*params, *kwargs.values()))
            dtype = compute_dtype(node, node.args[:tensors], kind)
            if floating and not dtype.is_floating_point:
                raise Unsupported(node, f"{node.target} has no {dtype} formula")

            def compute(body: Body, *operands: int) -> int:
                return function(*(Term(body, value) for value in operands), *params, **kwargs).value

            return elementwise(ctx, node, compute, args[:tensors], dtype, wide)

        return function

    return register


def check_constants(node: fx.Node, values: Sequence[Any]) -> None:
    """Raise Unsupported for a parameter that is only known at run time."""
    for value in values:
        if isinstance(value, (TensorValue, Expr)):
            raise Unsupported(node, "a parameter is known at run time only")


def _register(row: Elementwise) -> None:
    @rule(*row.operators)
    def lower(ctx: Lowering, node: fx.Node, *args: Any) -> TensorValue:
        dtype = compute_dtype(node, node.args, row.kind)
        return elementwise(ctx, node, row.compute, args, dtype, row.wide)


def overloads(name: str) -> tuple[Any, ...]:
    """The functional overloads of an aten op that take tensors or scalars, and the prim of the same name."""
    packet = getattr(aten, name)
    wanted = ("default", "Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor", "ScalarSelf", "self")
    found = tuple(
        getattr(packet, overload)
        for overload in packet.overloads()
        if overload in wanted and _takes_tensor(getattr(packet, overload))
    )
    prim = getattr(prims, name, None)
    return (*found, prim.default) if prim is not None else found


def _takes_tensor(overload: torch._ops.OpOverload) -> bool:
    return any(isinstance(argument.type, torch.TensorType) for argument in overload._schema.arguments)


def logical(op: str) -> Compute:
    """A scalar op over bool, on operands that are converted to bool first."""
    return lambda body, *operands: body.op(op, *(body.cast(value, torch.bool) for value in operands))


def _float_test(op: str) -> Compute:
    """A test that integers never pass."""
    return lambda body, value: (
        body.op(op, value) if body.dtype(value).is_floating_point else body.const(False, torch.bool)
    )


def _signbit(body: Body, value: int) -> int:
    dtype = body.dtype(value)
    if dtype.is_floating_point:
        return body.op("signbit", value)
    return body.const(False, torch.bool) if dtype == torch.bool else body.op("lt", value, body.const(0, dtype))


_SAME = "neg abs sign floor ceil round trunc relu maximum minimum fmax fmin remainder fmod nextafter hypot"
_FLOAT = (
    "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma i0 sigmoid atan2 copysign"
)
_SPECIAL = "i0e i1 i1e"
_COMPARE = "eq ne lt le gt ge"
_LOGICAL = "logical_not logical_and logical_or logical_xor"
_BITWISE = "bitwise_not bitwise_and bitwise_or bitwise_xor"

TABLE: list[Elementwise] = [
    *(Elementwise(overloads(name), name) for name in _SAME.split()),
    *(Elementwise(overloads(name), name, KIND.INT_TO_FLOAT) for name in _FLOAT.split()),
    *(Elementwise(overloads(f"special_{name}"), name, KIND.INT_TO_FLOAT) for name in _SPECIAL.split()),
    *(Elementwise(overloads(name), name, KIND.ALWAYS_BOOL) for name in _COMPARE.split()),
    *(Elementwise(overloads(name), logical(name), KIND.ALWAYS_BOOL) for name in _LOGICAL.split()),
    *(Elementwise(overloads(name), name) for name in _BITWISE.split()),
    *(Elementwise(overloads(f"bitwise_{side}_shift"), f"{side[0]}shift") for side in ("left", "right")),
    Elementwise((aten.__lshift__.Scalar, aten.__lshift__.Tensor), "lshift"),
    Elementwise((aten.__rshift__.Scalar, aten.__rshift__.Tensor), "rshift"),
    Elementwise(overloads("sgn"), "sign"),
    Elementwise(overloads("isnan"), _float_test("isnan"), KIND.ALWAYS_BOOL),
    Elementwise(overloads("isinf"), _float_test("isinf"), KIND.ALWAYS_BOOL),
    Elementwise(overloads("signbit"), _signbit, KIND.ALWAYS_BOOL),
]

for _row in TABLE:
    _register(_row)
