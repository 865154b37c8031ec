"""What a row of the corpus is, and how its inputs are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Pick = Callable[[int, int], int]
"""Chooses between the size that is timed and a tiny one."""

Inputs = tuple[torch.Tensor, ...]

F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class KernelRow:
    """One function of tensors that becomes one kernel, or a few.

    inputs: builds the tensors in float32 (or integers), from torch's random stream.
    dtypes: what the floating inputs are converted to, one benchmark each.
    streaming: one pass over operands larger than the L2 cache, so that the memory's bandwidth is the bound.
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

    def build(self, dtype: torch.dtype, *, tiny: bool) -> Inputs:
        """The inputs, from a fixed seed."""
        torch.manual_seed(0)
        built = self.inputs((lambda full, small: small) if tiny else (lambda full, small: full))
        return tuple(t.to(dtype) if t.dtype == F32 else t for t in built)


def size_of(tensors: Inputs) -> int:
    """Bytes of the elements of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)
