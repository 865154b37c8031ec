"""The scalar op table: one row per op, with its arity and type rule.

Every op has one row in each of four tables: here, in `ir/meaning.py` (its meaning), in `codegen/scalar.py` (scalar
C++) and in `codegen/vector.py` (vector C++; a missing row there means lane by lane). A test compares the tables.

Types are torch dtypes. An op's arguments have one common dtype (the lowering inserts casts), except where the rule
says otherwise. bf16 and f16 are computed in f32 and rounded after every op that can be inexact, so that a fused chain
gives the numbers that eager gives op by op.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: Floats of 8 bits, which are only moved, chosen among and converted, as in eager mode.
FLOAT8: frozenset[torch.dtype] = frozenset(
    {torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
)

#: Dtypes that loop nests can compute with; tensors of other dtypes go to ATen.
LOOP_DTYPES: frozenset[torch.dtype] = frozenset(
    {
        *FLOAT8,
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)


@dataclass(frozen=True)
class OpRow:
    """name; arity; result: "same" (dtype of the last argument) or "bool"; domain: which argument dtypes it takes:
    "any", "float", "float32", "int" (no bool), "int32", "number" (no bool), "bool", "bits" (int or bool), "low" (bf16,
    f16); exact: the result needs no rounding when the arguments are low-precision values; cost: rough, in adds."""

    name: str
    arity: int
    result: str
    domain: str
    exact: bool
    cost: int


def _rows(names: str, arity: int, result: str, domain: str, exact: bool = False, cost: int = 1) -> list[OpRow]:
    return [OpRow(name, arity, result, domain, exact, cost) for name in names.split()]


_TABLE: list[OpRow] = [
    # unary
    *_rows("neg abs sign", 1, "same", "number", exact=True),
    *_rows("relu", 1, "same", "number", exact=True),  # NaN stays NaN; max(x, 0)
    *_rows("floor ceil round trunc", 1, "same", "float", exact=True),  # round: half to even
    *_rows("sqrt rsqrt reciprocal", 1, "same", "float", cost=6),
    *_rows("exp exp2 expm1 log log2 log10 log1p", 1, "same", "float", cost=20),
    *_rows("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh", 1, "same", "float", cost=25),
    *_rows("erf erfc erfinv lgamma sigmoid", 1, "same", "float", cost=25),
    *_rows("i0 i0e i1 i1e digamma trigamma erfcx log_ndtr ndtri", 1, "same", "float", cost=40),
    *_rows("gelu gelu_tanh", 1, "same", "low", cost=20),
    *_rows("silu", 1, "same", "low", cost=16),
    # exp of float32 for sums and quotients that are rounded to bf16 or f16 in the end: 17 bits are right, all of exp(0)
    *_rows("low_exp", 1, "same", "float32", cost=12),
    # the gradient of gelu; the low one for products that are rounded to bf16 or f16: 13 bits are right
    *_rows("gelu_slope", 1, "same", "float32", cost=32),
    *_rows("low_gelu_slope", 1, "same", "float32", cost=24),
    # exp of numbers that are 0 at most, or NaN. Of others it is some number from 1 up, or infinity
    *_rows("exp_of_nonpositive", 1, "same", "float32", cost=20),
    *_rows("isnan isinf signbit", 1, "bool", "float"),
    *_rows("logical_not", 1, "bool", "bool"),
    *_rows("bitwise_not", 1, "same", "bits"),
    # binary
    *_rows("add sub mul", 2, "same", "number"),
    *_rows("div", 2, "same", "float", cost=6),
    *_rows("fmod remainder", 2, "same", "number", cost=8),  # remainder: sign of the divisor, as Python's %
    *_rows("floordiv truncdiv", 2, "same", "int", cost=8),  # integer division; by zero is undefined, as in eager
    *_rows("pow atan2 hypot nextafter", 2, "same", "float", cost=40),
    *_rows("ipow", 2, "same", "int", cost=20),  # integer power, wraps; a negative exponent follows eager
    *_rows("copysign", 2, "same", "float", exact=True),
    *_rows("maximum minimum", 2, "same", "any", exact=True),  # NaN if either is NaN
    *_rows("fmax fmin", 2, "same", "float", exact=True),  # the other one if one is NaN
    *_rows("eq ne lt le gt ge", 2, "bool", "any"),
    *_rows("logical_and logical_or logical_xor", 2, "bool", "bool"),
    *_rows("bitwise_and bitwise_or bitwise_xor", 2, "same", "bits"),
    *_rows("lshift rshift", 2, "same", "int"),
    # ternary: where(condition: bool, a, b), a and b of one dtype
    *_rows("where", 3, "same", "any", exact=True),
    # fma(a, b, c): a b + c, rounded once
    *_rows("fma", 3, "same", "float"),
    # quotient(a, b, 1 / b): a / b of numbers a >= 0 and b >= 1, or NaN; last bits of tiny results may be others
    *_rows("quotient", 3, "same", "float", cost=3),
    # philox(counter, high, key): random bits, a function of the three; philox_second: other ones (see philox.h)
    *_rows("philox philox_second", 3, "same", "int32", cost=25),
    # check_index(value: int64, size: int64): value + size if negative; out of range: 0, and the kernel reports an error
    # check_element: the same without the wrapping, and the error is another one
    *_rows("check_index check_element", 2, "same", "int", cost=3),
    # check_true(condition): the condition; where it is false, the kernel reports an error
    *_rows("check_true", 1, "bool", "bool"),
]

OPS: dict[str, OpRow] = {row.name: row for row in _TABLE}

#: Reductions: kind -> identity is a property of kind and dtype (see `identity`). argmax and argmin give int64, the
#: position in the flattened reduction range, the first one on ties; NaN wins, but in fmax, the largest number. any and
#: all are over bool.
REDUCTIONS: frozenset[str] = frozenset({"sum", "prod", "max", "min", "fmax", "any", "all", "argmax", "argmin"})

#: Folds that a scan has.
SCANS: frozenset[str] = frozenset({"sum", "prod", "max", "min", "argmax", "argmin", "logaddexp"})

#: Ops that check an index: the kernel goes on with 0 and reports what eager raises, IndexError or RuntimeError.
INDEX_CHECKS: frozenset[str] = frozenset({"check_index", "check_element"})

#: Ops that may report an error, whatever their arguments are.
CHECKS: frozenset[str] = INDEX_CHECKS | {"check_true"}

#: Ops that fail for an integer divisor of 0.
DIVISIONS: frozenset[str] = frozenset({"fmod", "remainder", "floordiv", "truncdiv"})

#: Dtypes that are held as f32 and rounded.
LOW_PRECISION: frozenset[torch.dtype] = frozenset({torch.bfloat16, torch.float16, *FLOAT8})


def result_dtype(op: str, args: tuple[torch.dtype, ...]) -> torch.dtype:
    """The dtype of a scalar op's result. Raises KeyError for an unknown op."""
    return torch.bool if OPS[op].result == "bool" else args[-1]


def accepts(op: str, dtype: torch.dtype) -> bool:
    """Whether the op's domain includes the dtype."""
    domain = OPS[op].domain
    if dtype in FLOAT8:
        return op == "where"
    if domain == "any":
        return dtype in LOOP_DTYPES
    if domain in ("float32", "int32"):
        return dtype == getattr(torch, domain)
    if dtype == torch.bool:
        return domain in ("bool", "bits")
    if dtype in LOW_PRECISION and domain == "low":
        return True
    if dtype.is_floating_point:
        return domain in ("float", "number")
    return domain in ("int", "number", "bits")


def identity(kind: str, dtype: torch.dtype) -> int | float | bool:
    """The value that does not change a reduction. max and min of floats use the infinities."""
    if kind in ("sum", "any"):
        return False if dtype == torch.bool else 0
    if kind in ("prod", "all"):
        return True if dtype == torch.bool else 1
    lowest = kind in ("max", "fmax", "argmax")
    if dtype == torch.bool:
        return not lowest
    if dtype.is_floating_point:
        return float("-inf") if lowest else float("inf")
    info = torch.iinfo(dtype)
    return info.min if lowest else info.max
