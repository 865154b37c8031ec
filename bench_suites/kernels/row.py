"""What a row of the corpus is, and how its inputs are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch


class Size(Enum):
    """How large the inputs are: as they are timed, tiny, or so small that all data stays in the L2 cache."""

    FULL = "full"
    TINY = "tiny"
    CACHED = "cached"


class Pick(Protocol):
    """Chooses a dimension's size: the one that is timed, a tiny one, one for the cache (that which is timed unless
    given)."""

    def __call__(self, full: int, tiny: int, cached: int | None = None, /) -> int:
        """The size."""


Inputs = tuple[torch.Tensor, ...]

F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class KernelRow:
    """One function of tensors that becomes one kernel, or a few.

    inputs: builds the tensors in float32 (or integers), from torch's random stream.
    dtypes: what the floating inputs are converted to, one benchmark each.
    streaming: one pass over operands larger than the L2 cache, so that the memory's bandwidth is the bound, unless the
        kernel computes for longer: that is measured with inputs of size CACHED.
    unread, updated: numbers of the inputs that are not read from end to end, and of those that are written in place;
        the others are read once.
    gathered: bytes that are read of the unread inputs, given the inputs.
    written: bytes that are written besides the results, given the inputs.
    random: the results depend on the backend's random stream; icpu's are compared with eager's in that of eager mode.
    """

    name: str
    function: Callable[..., Any]
    inputs: Callable[[Pick], Inputs]
    dtypes: tuple[torch.dtype, ...] = (F32,)
    streaming: bool = False
    unread: tuple[int, ...] = ()
    updated: tuple[int, ...] = ()
    gathered: Callable[[Inputs], int] = lambda inputs: 0
    written: Callable[[Inputs], int] = lambda inputs: 0
    random: bool = False

    def build(self, dtype: torch.dtype, size: Size) -> Inputs:
        """The inputs, from a fixed seed."""

        def pick(full: int, tiny: int, cached: int | None = None, /) -> int:
            return {Size.FULL: full, Size.TINY: tiny, Size.CACHED: full if cached is None else cached}[size]

        torch.manual_seed(0)
        built = self.inputs(pick)
        return tuple(t.to(dtype) if t.dtype == F32 else t for t in built)


def size_of(tensors: Inputs) -> int:
    """Bytes of the elements of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)
