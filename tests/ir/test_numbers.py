"""Rounding of Python numbers to dtypes, against torch."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inductor_cpu.ir.numbers import round_to

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, *FLOAT8)
EDGES = (0.0, -0.0, math.inf, -math.inf, 1e-5, 1 / 3, 65504.0, 65519.9, 65520.0, -65520.0, 1e39, -1e39, 1e-45, 5e-324)
TIES = (1 + 2**-9, 1 + 3 * 2**-9, 1 + 2**-11, 3.3961775292304957e38, 3.4028235e38, 6e-8, 2.98e-8)
TIES += (464.0, 465.0, 2**-9, 2**-10, 3 * 2**-10, 247.9, 248.0, 61439.0, 61440.0, 2**-17, 3 * 2**-18, 1.0625, 1.1875)


def _as_torch_does(value: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(value, dtype=torch.float64).to(dtype).item())


def _bits(value: float) -> bytes:
    return struct.pack("<d", math.nan if math.isnan(value) else value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", EDGES + TIES)
def test_edges_and_ties_are_rounded_as_torch_does(value: float, dtype: torch.dtype) -> None:
    assert _bits(round_to(value, dtype)) == _bits(_as_torch_does(value, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_stays_nan(dtype: torch.dtype) -> None:
    assert math.isnan(round_to(math.nan, dtype))


@given(st.floats(allow_nan=False), st.sampled_from(DTYPES))
def test_any_number_is_rounded_as_torch_does(value: float, dtype: torch.dtype) -> None:
    assert _bits(round_to(value, dtype)) == _bits(_as_torch_does(value, dtype))


@given(st.integers(-(2**80), 2**80), st.sampled_from((torch.float32, torch.bfloat16)))
def test_an_integer_is_a_double_first(value: int, dtype: torch.dtype) -> None:
    assert round_to(value, dtype) == _as_torch_does(float(value), dtype)


def test_a_dtype_without_loops_is_refused() -> None:
    with pytest.raises(KeyError):
        round_to(1.0, torch.float8_e8m0fnu)
