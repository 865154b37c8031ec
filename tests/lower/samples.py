"""Tensors of every loop dtype with edge values, and calls of one function on several in one graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, islice

import torch

from tests.lower.harness import check

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
ALL = [*FLOATS, *INTS, torch.bool]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, 1e-3, 60.0, -60.0, math.inf, -math.inf, math.nan]


def sample(dtype: torch.dtype, seed: int = 0, low: float = -4, high: float = 4) -> torch.Tensor:
    """A [5, 14] tensor; floats carry the edge values in the first row, integers their limits."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(5, 14, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype == torch.bool:
        return values > 0
    if dtype.is_floating_point:
        values[0] = torch.tensor(EDGES).roll(seed)
        return values.to(dtype)
    info = torch.iinfo(dtype)
    values = values.round().clamp(info.min, info.max).to(dtype)
    values[0, 0], values[0, 1] = info.max, info.min
    return values


def check_each(function: Callable[..., torch.Tensor], *inputs: Sequence[torch.Tensor], exact: bool = True) -> None:
    """`check` of several calls in one graph, which takes half the time. inputs: those of each call."""
    counts = [len(given) for given in inputs]

    def calls(*flat: torch.Tensor) -> list[torch.Tensor]:
        left = iter(flat)
        return [function(*islice(left, count)) for count in counts]

    check(calls, *chain(*inputs), exact=exact)
