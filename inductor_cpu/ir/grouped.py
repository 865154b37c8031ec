"""icpu's operator of convolutions over two dimensions of groups of channels by themselves, by a micro kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.operators import NAMESPACE, finished_convolution, window_counts
from inductor_cpu.ir.windows import of_groups, unpack_windows


@torch.library.custom_op(f"{NAMESPACE}::packed_grouped_convolution", mutates_args=())
def packed_grouped_convolution(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    micro_kernel: str,
) -> torch.Tensor:
    """A convolution over two dimensions of groups of channels by themselves: x (batch, channels, height, width), a
    weight that is packed for a micro kernel as a matrix (columns, ky * kx * channels of a group), scale and bias
    (columns,). The result is channels-last, summed in float32 and rounded once. ValueError for groups that the micro
    kernel does not take."""
    row, inputs = MICRO_KERNELS[micro_kernel], x.shape[1] // groups
    pieces = of_groups(row, kernel, inputs, columns // groups, groups)
    if pieces is None:
        raise ValueError(f"{micro_kernel} does not convolve {groups} groups of {inputs} channels")
    weight = unpack_windows(row, packed, columns, pieces).reshape(columns, *kernel, inputs).permute(0, 3, 1, 2)
    out = torch.nn.functional.conv2d(
        x.float(), weight.float(), None, list(stride), list(padding), list(dilation), groups
    )
    return finished_convolution(out, scale, bias, x.dtype)


@packed_grouped_convolution.register_fake
def _(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    micro_kernel: str,
) -> torch.Tensor:
    sizes = window_counts(x, kernel, stride, padding, dilation)
    return x.new_empty((x.shape[0], columns, *sizes)).contiguous(memory_format=torch.channels_last)


PACKED_GROUPED_CONVOLUTION = torch.ops.icpu.packed_grouped_convolution.default
