"""Samples that the database lacks: special values, empty and 0-dim tensors, for elementwise ops and reductions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, ReductionOpInfo, SampleInput

#: More than a vector of the widest kind for the smallest dtype, and not a multiple: bodies and tails see every value.
_LENGTH = 150


def special_values(dtype: torch.dtype) -> torch.Tensor:
    """The values where kernels go wrong: limits, zeros of both signs, denormals, infinities, NaN. Shape (n,)."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.is_complex:
        parts = special_values(dtype.to_real())
        return torch.complex(parts.float(), parts.flip(0).float()).to(dtype)
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        values = [0.0, -0.0, info.tiny, -info.tiny, info.tiny / 2, -info.tiny / 4, info.max, info.min, 1.0, -1.0]
        values += [0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 1 - info.eps, 1 + info.eps, 100.5, -1000.0, 1e-3]
        values += [float("inf"), -float("inf"), float("nan")]
        return torch.tensor(values, dtype=torch.float64).to(dtype)
    limits = torch.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, 31, 63, limits.max, limits.max - 1, limits.max // 2, limits.min, limits.min + 1]
    if limits.min < 0:
        numbers += [-1, -2, -3, -7, limits.min // 2]
    return torch.tensor(numbers, dtype=dtype)


def special_samples(entry: OpInfo, dtype: torch.dtype) -> Iterator[tuple[str, SampleInput]]:
    """Labelled samples of special values for one operator, in the dtype; none for other operators' arguments."""
    values = special_values(dtype)
    if isinstance(entry, ReductionOpInfo):
        yield from _reductions(values)
    elif isinstance(entry, BinaryUfuncInfo):
        yield from _pairs(entry, values)
    else:
        kwargs = _kwargs(entry, dtype)
        long = values.repeat(-(-_LENGTH // len(values)))[:_LENGTH]
        yield "special values", SampleInput(long, kwargs=kwargs)
        yield "special values, strided", SampleInput(_gaps(long), kwargs=kwargs)
        yield "0-dim", SampleInput(values[-1].clone(), kwargs=kwargs)
        yield "empty", SampleInput(torch.empty(0, 3, dtype=dtype), kwargs=kwargs)


def _kwargs(entry: OpInfo, dtype: torch.dtype) -> dict[str, Any]:
    """The keywords that a unary operator cannot do without, from the first sample of its entry."""
    make = getattr(entry, "sample_kwargs", None)
    return dict(make("cpu", dtype, torch.empty(1))[0]) if make is not None else {}


def _gaps(values: torch.Tensor) -> torch.Tensor:
    return torch.stack((values, values), dim=-1)[..., 0]


def _pairs(entry: OpInfo, values: torch.Tensor) -> Iterator[tuple[str, SampleInput]]:
    """Every special value with every other."""
    left = values.repeat_interleave(len(values))
    right = values.repeat(len(values))
    yield "pairs", SampleInput(left, args=(right,))
    yield "pairs, broadcast", SampleInput(values[:, None].clone(), args=(values[None, :].clone(),))
    yield "0-dim", SampleInput(values[-1].clone(), args=(values[0].clone(),))
    yield "0-dim and vector", SampleInput(values.clone(), args=(values[1].clone(),))
    yield "empty", SampleInput(values[:0].reshape(0, 1), args=(values.clone(),))


def _reductions(values: torch.Tensor) -> Iterator[tuple[str, SampleInput]]:
    """Rows of ones with a special value at different places; sizes around a vector's; no elements; no dimensions."""
    for length in (5, 37):
        rows = torch.ones(len(values), length, dtype=values.dtype)
        for row, value in enumerate(values):
            rows[row, (row * 7) % length] = value
        yield f"rows of {length}", SampleInput(rows, kwargs={"dim": 1})
        yield f"columns of {length}", SampleInput(rows.t().contiguous(), kwargs={"dim": 0})
    yield "all", SampleInput(values.clone())
    yield "0-dim", SampleInput(values[-1].clone())
    yield "empty rows", SampleInput(values[:0].reshape(3, 0), kwargs={"dim": 1})
    yield "no rows", SampleInput(values[:0].reshape(0, 3), kwargs={"dim": 1})
    yield "empty", SampleInput(values[:0].clone())
