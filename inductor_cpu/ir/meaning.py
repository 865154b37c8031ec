"""What scalar ops, casts and reductions mean, in torch: the reference for every code generator.

Values of a low-precision dtype are held as f32 tensors ("physical" dtype) that were rounded to the logical dtype, so
that each op is computed in f32 and rounded once, as eager does. Only a `Const` may hold a value that is not rounded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from inductor_cpu.ir.ops import LOW_PRECISION, OPS, identity

Tensor = torch.Tensor


def physical(dtype: torch.dtype) -> torch.dtype:
    """The dtype that values of `dtype` are held in."""
    return torch.float32 if dtype in LOW_PRECISION else dtype


def held(value: Tensor, dtype: torch.dtype) -> Tensor:
    """`value.to(dtype)` in the physical dtype: rounds to a low-precision dtype, converts to any other."""
    return value.to(dtype).to(physical(dtype))


def _check_index(value: Tensor, size: Tensor) -> Tensor:
    wrapped = torch.where(value < 0, value + size, value)
    if bool(((wrapped < 0) | (wrapped >= size)).any()):
        raise IndexError("index out of range")
    return wrapped


def _check_element(value: Tensor, size: Tensor) -> Tensor:
    if bool(((value < 0) | (value >= size)).any()):
        raise RuntimeError("index or value out of range")
    return value


def _check_true(condition: Tensor) -> Tensor:
    if not bool(condition.all()):
        raise RuntimeError("index or value out of range")
    return condition


def _gelu(value: Tensor) -> Tensor:
    """ATen's formula; oneDNN, which eager mode may use, has NaN for infinity."""
    return 0.5 * value * (1 + torch.erf(value * 0.5**0.5))


def _gelu_slope(value: Tensor) -> Tensor:
    density = torch.exp(value * value * -0.5) * (2 * math.pi) ** -0.5
    return 0.5 * (1 + torch.erf(value * 0.5**0.5)) + value * density


def _floordiv(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _truncdiv(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _philox(word: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Philox2x32-10 in int64: products wrap at 64 bits, as they should."""

    def bits(counter: Tensor, high: Tensor, key: Tensor) -> Tensor:
        low = 0xFFFFFFFF
        a, b, k = (x.long() & low for x in (counter, high, key))
        for _ in range(10):
            whole = a * 0xD256D193
            a, b = ((whole >> 32) & low) ^ k ^ b, whole & low
            k = (k + 0x9E3779B9) & low
        return (a, b)[word].to(torch.int32)

    return bits


#: op -> its function on physical tensors of one dtype.
MEANING: dict[str, Callable[..., Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "relu": torch.relu,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "i0": torch.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "digamma": torch.digamma,
    "trigamma": functools.partial(torch.polygamma, 1),
    "erfcx": torch.special.erfcx,
    "log_ndtr": torch.special.log_ndtr,
    "ndtri": torch.special.ndtri,
    "sigmoid": torch.sigmoid,
    "gelu": _gelu,
    "silu": torch.nn.functional.silu,
    "low_exp": torch.exp,
    "gelu_slope": _gelu_slope,
    "low_gelu_slope": _gelu_slope,
    "exp_of_nonpositive": torch.exp,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
    "bitwise_not": torch.bitwise_not,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "nextafter": torch.nextafter,
    "ipow": torch.pow,
    "copysign": torch.copysign,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "where": torch.where,
    "fma": lambda a, b, c: torch.addcmul(c, a, b),  # of ATen's kernels, which round once
    "quotient": lambda a, b, inverse: torch.div(a, b),
    "philox": _philox(0),
    "philox_second": _philox(1),
    "check_index": _check_index,
    "check_element": _check_element,
    "check_true": _check_true,
}

#: Ops whose result is defined by the dtype's own representable values: they run in the logical dtype.
_IN_OWN_DTYPE = frozenset({"nextafter"})


def scalar(op: str, args: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    """A scalar op on physical tensors (broadcastable); dtype: the logical dtype of the result."""
    if op in _IN_OWN_DTYPE:
        args = tuple(arg.to(dtype) for arg in args)
    result = MEANING[op](*args)
    return result if OPS[op].result == "bool" else held(result, dtype)


def _flat_arg(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    def run(value: Tensor) -> Tensor:
        return function(value.to(torch.uint8) if value.dtype == torch.bool else value, dim=-1)

    return run


#: Reduction -> its function over the last axis of a tensor.
REDUCTION_MEANING: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda value: torch.sum(value, dim=-1, dtype=value.dtype),
    "prod": lambda value: torch.prod(value, dim=-1, dtype=value.dtype),
    "max": lambda value: torch.amax(value, dim=-1),
    "min": lambda value: torch.amin(value, dim=-1),
    "fmax": lambda value: torch.amax(torch.where(torch.isnan(value), -math.inf, value), dim=-1),
    "any": lambda value: torch.any(value, dim=-1),
    "all": lambda value: torch.all(value, dim=-1),
    "argmax": _flat_arg(torch.argmax),
    "argmin": _flat_arg(torch.argmin),
}


def reduction(kind: str, value: Tensor, axes: int, dtype: torch.dtype) -> Tensor:
    """Fold the last `axes` axes, which stay with extent 1. An empty range gives the identity (argmax, argmin: 0)."""
    kept = value.shape[: value.ndim - axes]
    extent = 1
    for size in value.shape[value.ndim - axes :]:
        extent *= size
    flat = value.reshape(*kept, extent)
    if extent == 0:
        empty: Any = 0 if kind in ("argmax", "argmin") else identity(kind, dtype)
        result = torch.full(kept, empty, dtype=physical(dtype))
    else:
        result = held(REDUCTION_MEANING[kind](flat), dtype)
    return result.reshape(*kept, *(1,) * axes)


#: Scan -> its function over the last axis of a tensor.
SCAN_MEANING: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda value: torch.cumsum(value, dim=-1, dtype=value.dtype),
    "prod": lambda value: torch.cumprod(value, dim=-1, dtype=value.dtype),
    "max": lambda value: torch.cummax(value, dim=-1).values,
    "min": lambda value: torch.cummin(value, dim=-1).values,
    "argmax": lambda value: torch.cummax(value, dim=-1).indices,
    "argmin": lambda value: torch.cummin(value, dim=-1).indices,
    "logaddexp": lambda value: torch.logcumsumexp(value, dim=-1),
}


def scan(kind: str, value: Tensor, axes: int, dtype: torch.dtype) -> Tensor:
    """The running fold over the last `axes` axes, flattened."""
    flat = value.reshape(*value.shape[: value.ndim - axes], -1) if value.numel() else value
    result = SCAN_MEANING[kind](flat) if value.numel() else value
    return held(result, dtype).reshape(value.shape)
