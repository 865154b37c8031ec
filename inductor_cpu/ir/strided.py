"""Tensors in a layout that was promised."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with these strides. One element stands for all of a dimension whose stride is 0."""
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    target = copy
    for dim, stride in enumerate(strides):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor, target = tensor.narrow(dim, 0, 1), target.narrow(dim, 0, 1)
    target.copy_(tensor)
    return copy
