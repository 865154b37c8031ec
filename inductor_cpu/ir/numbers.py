"""Python numbers as a dtype holds them, without tensors: lowering runs under a fake tensor mode, where one
tensor of one number costs a millisecond."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import torch


def _float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _float16(value: float) -> float:
    # By way of float32, as torch converts.
    try:
        rounded: float = struct.unpack("<e", struct.pack("<e", _float32(value)))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _bfloat16(value: float) -> float:
    value = _float32(value)
    if not math.isfinite(value):
        return value
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    # To nearest, ties to even. A carry out of the largest finite number gives the bits of infinity.
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    rounded: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return rounded


_ROUND: dict[torch.dtype, Callable[[float], float]] = {
    torch.float64: float,
    torch.float32: _float32,
    torch.float16: _float16,
    torch.bfloat16: _bfloat16,
}


def round_to(value: float, dtype: torch.dtype) -> float:
    """`value` rounded to a floating dtype of the loops, as torch converts a double. Raises KeyError for others."""
    return _ROUND[dtype](float(value))


def wrapped(value: int, dtype: torch.dtype) -> int:
    """`value` modulo the range of an integer dtype, as torch converts an int64."""
    limits = torch.iinfo(dtype)
    return (value - limits.min) % (1 << limits.bits) + limits.min
