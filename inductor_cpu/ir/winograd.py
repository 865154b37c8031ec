"""Operators of convolutions of 3 x 3 neighbours by tiles of windows (`ir/windows.py`), in the FX graph, between the
passes and the lowering."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, pack
from inductor_cpu.ir.operators import NAMESPACE
from inductor_cpu.ir.windows import TILE_PLACES

#: G of `templates/gemm/winograd.h`.
_TO_TILES = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
#: There the weights of a window have a NaN if they are packed as they are, as `templates/gemm/winograd.h` says.
_MARK_PLACE = 9


def tiles_of(weight: torch.Tensor, turned: bool, micro_kernel: str) -> torch.Tensor:
    """A weight (columns, channels, 3, 3) packed for a micro kernel, to be multiplied by tiles. turned: of the
    convolution that gives the gradients of the image; channels are its columns then, and windows are turned around."""
    weight = weight.transpose(0, 1).flip(2, 3) if turned else weight
    g = torch.tensor(_TO_TILES, dtype=weight.dtype)
    places = _keep_what_is_infinite(weight, torch.einsum("yi,ncij,xj->nyxc", g, weight, g))
    return pack(MICRO_KERNELS[micro_kernel], places.reshape(len(places), -1))


def _keep_what_is_infinite(weight: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Places (columns, y, x, channels), with the weights themselves and a mark where these are not finite."""
    finite = places.isfinite().all(2).all(1)
    if finite.all():
        return places
    kept = torch.zeros_like(places).flatten(1, 2)
    kept[:, :9] = weight.flatten(2).transpose(1, 2)
    kept[:, _MARK_PLACE] = torch.nan
    return torch.where(finite[:, None, None], places, kept.view_as(places))


@torch.library.custom_op(f"{NAMESPACE}::packed_tiles", mutates_args=())
def packed_tiles(weight: torch.Tensor, turned: bool, micro_kernel: str) -> torch.Tensor:
    """`tiles_of` a float32 weight."""
    return tiles_of(weight, turned, micro_kernel)


@packed_tiles.register_fake
def _(weight: torch.Tensor, turned: bool, micro_kernel: str) -> torch.Tensor:
    columns, channels = (weight.shape[1], weight.shape[0]) if turned else weight.shape[:2]
    return weight.new_empty(MICRO_KERNELS[micro_kernel].packed_shape(columns, TILE_PLACES * channels))


def differentiate_weights(x: torch.Tensor, gradients: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient (columns, channels, 3, 3) of the weights of a convolution of x (batch, channels, height, width), by
    those of its results (batch, columns, down, across)."""
    weight = x.new_empty((gradients.shape[1], x.shape[1], 3, 3))
    wanted = [False, True, False]
    return torch.ops.aten.convolution_backward(
        gradients, x, weight, None, [1, 1], list(padding), [1, 1], False, [0, 0], 1, wanted
    )[1]


@torch.library.custom_op(f"{NAMESPACE}::weight_gradient", mutates_args=())
def weight_gradient(
    x: torch.Tensor, gradients: torch.Tensor, padding: Sequence[int], micro_kernel: str
) -> torch.Tensor:
    """`differentiate_weights` of float32, channels-last. `micro_kernel` names the row of `ir/micro_kernels.py` that
    multiplies."""
    return differentiate_weights(x, gradients, padding).contiguous(memory_format=torch.channels_last)


@weight_gradient.register_fake
def _(x: torch.Tensor, gradients: torch.Tensor, padding: Sequence[int], micro_kernel: str) -> torch.Tensor:
    shape = (gradients.shape[1], x.shape[1], 3, 3)
    return x.new_empty(shape).contiguous(memory_format=torch.channels_last)


PACKED_TILES = torch.ops.icpu.packed_tiles.default
WEIGHT_GRADIENT = torch.ops.icpu.weight_gradient.default
