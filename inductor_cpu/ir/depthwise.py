"""icpu's operators of convolutions over two dimensions of each channel by itself: by loops, and by a micro kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inductor_cpu.ir.micro_kernels import unpack
from inductor_cpu.ir.operators import NAMESPACE, finished_convolution, window_counts


@torch.library.custom_op(f"{NAMESPACE}::depthwise_convolution", mutates_args=())
def depthwise_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """A convolution over two dimensions of each channel by itself: x (batch, channels, height, width), weight (ky, kx,
    channels) in float32, scale and bias (channels,). The result is channels-last, in float32 and rounded once."""
    channels = x.shape[1]
    kernel = weight.permute(2, 0, 1).unsqueeze(1)
    out = torch.nn.functional.conv2d(
        x.float(), kernel, None, list(stride), list(padding), list(dilation), groups=channels
    )
    return finished_convolution(out, scale, bias, x.dtype)


@depthwise_convolution.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    sizes = window_counts(x, weight.shape[:2], stride, padding, dilation)
    return x.new_empty((x.shape[0], x.shape[1], *sizes)).contiguous(memory_format=torch.channels_last)


@torch.library.custom_op(f"{NAMESPACE}::packed_depthwise_convolution", mutates_args=())
def packed_depthwise_convolution(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> torch.Tensor:
    """The same with a weight that is packed for a micro kernel as a matrix (channels, ky * kx)."""
    weight = unpack(packed, x.shape[1], kernel[0] * kernel[1]).mT.reshape(*kernel, x.shape[1])
    return depthwise_convolution(x, weight.float(), scale, bias, stride, padding, dilation)


@packed_depthwise_convolution.register_fake
def _(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> torch.Tensor:
    sizes = window_counts(x, kernel, stride, padding, dilation)
    return x.new_empty((x.shape[0], x.shape[1], *sizes)).contiguous(memory_format=torch.channels_last)


DEPTHWISE_CONVOLUTION = torch.ops.icpu.depthwise_convolution.default
PACKED_DEPTHWISE_CONVOLUTION = torch.ops.icpu.packed_depthwise_convolution.default
