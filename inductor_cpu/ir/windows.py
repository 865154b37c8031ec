"""The pieces in which the windows of a convolution are multiplied.

Where windows overlap, the image is not copied for each of them: micro kernels of AMX read shifted images
(`templates/gemm/shifted.h`), a piece of the windows at a time. A piece is a pixel of a window or, for few channels, a
line; in a packed weight each is followed by zeros up to the micro kernel's step. Others read windows of few values, or
for few columns, where they lie (`templates/gemm/windows.h`): a piece is a line, followed by zeros up to a whole group
of values. They copy the others (`templates/gemm/patches.h`).

Windows of 3 x 3 neighbours, one at every pixel, are multiplied in tiles of 2 x 2 of them, by 16 products in place of 36
(`templates/gemm/winograd.h`). The packed weight is G g G^T then, of each 3 x 3 weights g: its pieces are 16 places.

Where each channel is convolved by itself, its window is the depth of its column (`templates/gemm/depthwise.h`). Where
groups of channels are, the depth of a column is the window of its group, and a piece is a pixel
(`templates/gemm/grouped.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

import torch

from inductor_cpu.ir.micro_kernels import MicroKernel, unpack

#: Lines of a window are packed once for each of its pixels in them: they must save so many steps.
_STEPS_OF_LINES, _OF_STEPS_OF_PIXELS = 3, 4

#: Bytes of a value -> up to how many of a window are read where they lie, which takes up to half of the time of copied
#: ones. Larger ones take as long, or a tenth longer: their rows are far apart.
_MOST_IN_PLACE = {4: 256, 2: 640}

#: The same -> up to how many columns windows of any size are: a copy that meets few panels takes up to a third longer.
_MOST_COLUMNS_IN_PLACE = {4: 0, 2: 96}

#: Of groups of channels: vectors of whole groups that are summed together, at most; lanes -> the columns of a part of a
#: group that are, at most: their weights follow each other; columns of a panel where groups are small; and the least
#: share of lanes with work.
_MOST_VECTORS, _TYPICAL_COLUMNS, _LEAST_SHARE_OF_LANES = 8, 64, 0.6
_LARGEST_PART = {16: 64, 8: 16}


@dataclass(frozen=True)
class Windows:
    """A convolution as a product: how many windows there are (None: unknown), the pixels of one, the channels of a
    pixel, the columns of the weight, how much of all windows lies inside of the image, whether they are of 3 x 3
    neighbours, one at every pixel, whether other pixels lie between those of a line, and whether no pixel is in two."""

    rows: int | None
    pixels: int
    channels: int
    columns: int
    inside: float = 1.0
    neighbours: bool = False
    dilated: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Groups:
    """Groups of channels, each convolved by itself. inputs, outputs: channels and results of one; together:
    neighbouring results whose lanes are summed together, those of whole groups or a part of one's; times: how many
    times as many a panel has."""

    inputs: int
    outputs: int
    together: int
    times: int

    @property
    def columns(self) -> int:
        """Of a panel."""
        return self.together * self.times


@dataclass(frozen=True)
class Pieces:
    """count: of a window; values: of one; tiles: they are the places of tiles of windows; depthwise: each channel meets
    its own column only; in_place: they are lines, read where they lie; groups: each column meets the channels of its
    group only. Else one piece is the whole window, copied for each."""

    count: int
    values: int
    tiles: bool = False
    depthwise: bool = False
    in_place: bool = False
    groups: Groups | None = None

    def depth(self, row: MicroKernel) -> int:
        """The depth of the packed weight of a micro kernel: a piece takes whole steps, or groups where it lies."""
        whole = row.pair if self.in_place or self.groups else 1 if self.count == 1 else row.step
        return self.count * _steps(self.values, whole) * whole


def of_each_channel(kernel: Sequence[int]) -> Pieces:
    """Those of windows where each channel is convolved by itself."""
    return Pieces(1, kernel[0] * kernel[1], depthwise=True)


def of_groups(row: MicroKernel, kernel: Sequence[int], inputs: int, outputs: int, groups: int) -> Pieces | None:
    """Those of windows where so many groups of channels are convolved by themselves. inputs, outputs: channels and
    results of one. None where a micro kernel does not take them, or leaves most lanes without work."""
    if inputs % row.pair:
        return None
    lanes, whole = row.columns, lcm(outputs, row.columns)
    choices = [part for part in range(1, _LARGEST_PART[lanes] + 1) if outputs % part == 0]
    if outputs < whole <= _MOST_VECTORS * lanes and _are_near(inputs // row.pair, outputs, lanes):
        choices.append(whole)

    def share_of_lanes(columns: int) -> float:
        """How many have work."""
        return groups * outputs / (_steps(groups * outputs, columns) * _steps(columns, lanes) * lanes)

    together = max(choices, key=lambda columns: (share_of_lanes(columns), columns))
    if share_of_lanes(together) < _LEAST_SHARE_OF_LANES:
        return None
    times = max(1, _TYPICAL_COLUMNS // together) if together >= outputs else 1
    return Pieces(kernel[0] * kernel[1], inputs, groups=Groups(inputs, outputs, together, times))


def _are_near(values: int, outputs: int, lanes: int) -> bool:
    """Whether the groups of each vector of results are two at most, or have their values in a vector, too."""
    spans = {(first + lanes - 1) // outputs - first // outputs + 1 for first in range(0, lcm(outputs, lanes), lanes)}
    return all(span <= 2 or span * values <= lanes for span in spans)


def with_panels(row: MicroKernel, pieces: Pieces) -> MicroKernel:
    """A row with the columns that panels have for these pieces."""
    if pieces.groups is None:
        return row
    return replace(row, columns=pieces.groups.columns, tile=pieces.groups.columns)


#: Places of a tile of 2 x 2 windows: as many as there are pixels under it.
TILE_PLACES = 16


def are_neighbours(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether windows are of 3 x 3 neighbours, one at every pixel."""
    return (*kernel, *stride, *dilation) == (3, 3, 1, 1, 1, 1)


def are_apart(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether no pixel is in two windows, as in patches of images."""
    return max(dilation) == 1 and all(size <= step for size, step in zip(kernel, stride, strict=True))


def pieces_of(
    row: MicroKernel,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    channels: int,
    columns: int,
) -> Pieces:
    """How a micro kernel wants the windows of a convolution. kernel, stride, dilation: (vertical, horizontal); columns:
    of the weight."""
    pixels, line = kernel[0] * kernel[1], kernel[1] * channels
    if is_read_in_place(row, Windows(None, pixels, channels, columns, dilated=dilation[1] > 1)):
        return Pieces(kernel[0], line, in_place=True)
    if row.tiles and are_neighbours(kernel, stride, dilation) and channels % row.step == 0:
        return Pieces(TILE_PLACES, channels, tiles=True)
    if not row.shifts or all(size <= step for size, step in zip(kernel, stride, strict=True)):
        return Pieces(1, pixels * channels)
    by_line, by_pixel = kernel[0] * _steps(line, row.step), pixels * _steps(channels, row.step)
    if by_line * _OF_STEPS_OF_PIXELS <= by_pixel * _STEPS_OF_LINES:
        return Pieces(kernel[0], line)
    return Pieces(pixels, channels)


def is_read_in_place(row: MicroKernel, windows: Windows) -> bool:
    """Whether a micro kernel reads windows where they lie."""
    if not row.in_place or windows.pixels == 1 or windows.dilated:
        return False
    size = row.dtype.itemsize
    few_values = windows.pixels * windows.channels <= _MOST_IN_PLACE[size]
    return few_values or windows.columns <= _MOST_COLUMNS_IN_PLACE[size]


def unpack_windows(row: MicroKernel, packed: torch.Tensor, columns: int, pieces: Pieces) -> torch.Tensor:
    """The (columns, depth) matrix in a packed weight, without the zeros between pieces, of windows and not of tiles."""
    matrix = unpack(packed, columns, pieces.depth(row))
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
