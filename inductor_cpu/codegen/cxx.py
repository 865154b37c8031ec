"""Element types in C++: their names, the types that hold values, and literals."""

from __future__ import annotations

import math
import struct

import torch

from inductor_cpu.ir.numbers import round_to
from inductor_cpu.ir.ops import LOW_PRECISION

#: The element type of a buffer.
ELEMENT: dict[torch.dtype, str] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.bfloat16: "icpu::bf16",
    torch.float16: "icpu::f16",
    torch.float8_e4m3fn: "icpu::f8_e4m3fn",
    torch.float8_e5m2: "icpu::f8_e5m2",
    torch.float8_e4m3fnuz: "icpu::f8_e4m3fnuz",
    torch.float8_e5m2fnuz: "icpu::f8_e5m2fnuz",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.int16: "int16_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
}

#: The type of a scalar value.
SCALAR: dict[torch.dtype, str] = {**ELEMENT, **dict.fromkeys(LOW_PRECISION, "float")}

#: The type of a lane in a vector ("bool": a mask).
LANE: dict[torch.dtype, str] = {
    **SCALAR,
    torch.int16: "int32_t",
    torch.int8: "int32_t",
    torch.uint8: "int32_t",
}

#: Integers that are narrower than their lanes.
NARROW: frozenset[torch.dtype] = frozenset({torch.int16, torch.int8, torch.uint8})

#: The function that rounds a float to the values of a low-precision type.
ROUND: dict[torch.dtype, str] = {
    torch.bfloat16: "icpu::round_bf16",
    torch.float16: "icpu::round_f16",
    torch.float8_e4m3fn: "icpu::round_f8<icpu::E4M3Fn>",
    torch.float8_e5m2: "icpu::round_f8<icpu::E5M2>",
    torch.float8_e4m3fnuz: "icpu::round_f8<icpu::E4M3FnUz>",
    torch.float8_e5m2fnuz: "icpu::round_f8<icpu::E5M2FnUz>",
}


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A C++ constant of the type that holds values of `dtype`; the value is first rounded to `dtype`."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        return _integer(int(value), dtype)
    number = round_to(value, dtype)
    kind = SCALAR[dtype]
    if math.isnan(number):
        return f"icpu::kNan<{kind}>"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}icpu::kInf<{kind}>"
    return repr(number) if dtype == torch.float64 else _shortest_float(number) + "f"


def _integer(value: int, dtype: torch.dtype) -> str:
    kind = SCALAR[dtype]
    if dtype in NARROW:
        return f"{kind}({value})"
    if value == torch.iinfo(dtype).min:
        return f"std::numeric_limits<{kind}>::min()"
    return str(value) if dtype == torch.int32 else f"int64_t({value})"


def _shortest_float(number: float) -> str:
    """The shortest decimal text that reads back as this float32."""
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == number:
            break
    return text if any(c in text for c in ".e") else text + ".0"
