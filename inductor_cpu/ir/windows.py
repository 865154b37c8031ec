"""The pieces in which the windows of a convolution are multiplied.

Where windows overlap, the image is not copied for each of them: a micro kernel reads shifted images
(`templates/gemm/shifted.h`), a piece of the windows at a time. A piece is a pixel of a window or, for few channels, a
line; in a packed weight each is followed by zeros up to the micro kernel's step.

Windows of 3 x 3 neighbours, one at every pixel, are multiplied in tiles of 2 x 2 of them, by 16 products in place of 36
(`templates/gemm/winograd.h`). The packed weight is G g G^T then, of each 3 x 3 weights g: its pieces are 16 places.

Where each channel is convolved by itself, its window is the depth of its column (`templates/gemm/depthwise.h`).
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
    """count: of a window; values: of one; tiles: they are the places of tiles of windows; depthwise: each channel meets
    its own column only. One piece is the whole window, copied for each unless depthwise."""

    count: int
    values: int
    tiles: bool = False
    depthwise: bool = False

    def depth(self, step: int) -> int:
        """The depth of the packed weight: a piece takes whole steps."""
        return self.count * self.values if self.count == 1 else self.count * _steps(self.values, step) * step


def of_each_channel(kernel: Sequence[int]) -> Pieces:
    """Those of windows where each channel is convolved by itself."""
    return Pieces(1, kernel[0] * kernel[1], depthwise=True)


#: Places of a tile of 2 x 2 windows: as many as there are pixels under it.
TILE_PLACES = 16


def are_neighbours(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether windows are of 3 x 3 neighbours, one at every pixel."""
    return (*kernel, *stride, *dilation) == (3, 3, 1, 1, 1, 1)


def pieces_of(
    row: MicroKernel, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], channels: int
) -> Pieces:
    """How a micro kernel wants the windows of a convolution. kernel, stride, dilation: (vertical, horizontal)."""
    if row.tiles and are_neighbours(kernel, stride, dilation) and channels % row.step == 0:
        return Pieces(TILE_PLACES, channels, tiles=True)
    pixels, line = kernel[0] * kernel[1], kernel[1] * channels
    if not row.shifts or all(size <= step for size, step in zip(kernel, stride, strict=True)):
        return Pieces(1, pixels * channels)
    by_line, by_pixel = kernel[0] * _steps(line, row.step), pixels * _steps(channels, row.step)
    if by_line * _OF_STEPS_OF_PIXELS <= by_pixel * _STEPS_OF_LINES:
        return Pieces(kernel[0], line)
    return Pieces(pixels, channels)


def unpack_windows(row: MicroKernel, packed: torch.Tensor, columns: int, pieces: Pieces) -> torch.Tensor:
    """The (columns, depth) matrix in a packed weight, without the zeros between pieces, of windows and not of tiles."""
    matrix = unpack(packed, columns, pieces.depth(row.step))
    if pieces.tiles:
        return _from_tiles(matrix.reshape(columns, 4, 4, pieces.values)).reshape(columns, -1)
    return matrix.reshape(columns, pieces.count, -1)[..., : pieces.values].reshape(columns, -1)


def _from_tiles(places: torch.Tensor) -> torch.Tensor:
    """g (columns, 3, 3, channels) from G g G^T (columns, 4, 4, channels)."""
    for dim in (1, 2):
        first, half, other, last = places.unbind(dim)
        places = torch.stack([first, half - other, last], dim)
    return places


def _steps(values: int, step: int) -> int:
    return -(-values // step)
