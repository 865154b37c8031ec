"""The pieces in which the windows of a convolution are multiplied.

Where windows overlap, the image is not copied for each of them: a micro kernel reads shifted images
(`templates/gemm/shifted.h`), a piece of the windows at a time. A piece is a pixel of a window or, for few channels, a
line; in a packed weight each is followed by zeros up to the micro kernel's step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inductor_cpu.ir.micro_kernels import MicroKernel, unpack

#: Lines of a window are packed once for each of its pixels in them: they must save so many steps.
_STEPS_OF_LINES, _OF_STEPS_OF_PIXELS = 3, 4


@dataclass(frozen=True)
class Pieces:
    """count: of a window; values: of one. One piece is the whole window, copied for each."""

    count: int
    values: int

    def depth(self, step: int) -> int:
        """The depth of the packed weight: a piece takes whole steps."""
        return self.count * self.values if self.count == 1 else self.count * _steps(self.values, step) * step


def pieces_of(row: MicroKernel, kernel: Sequence[int], stride: Sequence[int], channels: int) -> Pieces:
    """How a micro kernel wants the windows of a convolution. kernel, stride: (vertical, horizontal)."""
    pixels, line = kernel[0] * kernel[1], kernel[1] * channels
    if not row.shifts or all(size <= step for size, step in zip(kernel, stride, strict=True)):
        return Pieces(1, pixels * channels)
    by_line, by_pixel = kernel[0] * _steps(line, row.step), pixels * _steps(channels, row.step)
    if by_line * _OF_STEPS_OF_PIXELS <= by_pixel * _STEPS_OF_LINES:
        return Pieces(kernel[0], line)
    return Pieces(pixels, channels)


def unpack_windows(row: MicroKernel, packed: torch.Tensor, columns: int, pieces: Pieces) -> torch.Tensor:
    """The (columns, depth) matrix in a packed weight, without the zeros between pieces."""
    matrix = unpack(packed, columns, pieces.depth(row.step))
    return matrix.reshape(columns, pieces.count, -1)[..., : pieces.values].reshape(columns, -1)


def _steps(values: int, step: int) -> int:
    return -(-values // step)
