"""Python numbers as a dtype holds them, without tensors: lowering runs under a fake tensor mode, where one
tensor of one number costs a millisecond."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Float8:
    """mantissa: bits; least: exponent of the least normal number; largest: finite magnitude; beyond: what larger
    magnitudes become."""

    mantissa: int
    least: int
    largest: float
    beyond: float
    minus_zero: bool = True

    def round(self, value: float) -> float:
        value = _float32(value)
        if math.isnan(value):
            return value
        if math.isinf(value):
            return math.copysign(self.beyond, value)
        _, exponent = math.frexp(value)
        unit = math.ldexp(1.0, max(exponent - 1, self.least) - self.mantissa)
        rounded = round(value / unit) * unit  # ties to even
        if abs(rounded) > self.largest:
            return math.copysign(self.beyond, value)
        return math.copysign(rounded, value) if rounded or self.minus_zero else 0.0


_ROUND: dict[torch.dtype, Callable[[float], float]] = {
    torch.float64: float,
    torch.float32: _float32,
    torch.float16: _float16,
    torch.bfloat16: _bfloat16,
    torch.float8_e4m3fn: _Float8(3, -6, 448.0, 448.0).round,
    torch.float8_e5m2: _Float8(2, -14, 57344.0, math.inf).round,
    torch.float8_e4m3fnuz: _Float8(3, -7, 240.0, math.nan, minus_zero=False).round,
    torch.float8_e5m2fnuz: _Float8(2, -15, 57344.0, math.nan, minus_zero=False).round,
}


def round_to(value: float, dtype: torch.dtype) -> float:
    """`value` rounded to a floating dtype of the loops, as torch converts a double. Raises KeyError for others."""
    return _ROUND[dtype](float(value))


def wrapped(value: int, dtype: torch.dtype) -> int:
    """`value` modulo the range of an integer dtype, as torch converts an int64."""
    limits = torch.iinfo(dtype)
    return (value - limits.min) % (1 << limits.bits) + limits.min
