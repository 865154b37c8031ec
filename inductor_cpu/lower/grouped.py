"""Convolutions of groups of channels by themselves, by a micro kernel."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from inductor_cpu.ir.grouped import PACKED_GROUPED_CONVOLUTION
from inductor_cpu.ir.index import as_expr
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.windows import of_groups
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.products import convolution_result, patches_of
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.values import TensorValue


@rule(PACKED_GROUPED_CONVOLUTION)
def packed_grouped_convolution(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    packed: TensorValue,
    scale: TensorValue | None,
    bias: TensorValue | None,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    micro_kernel: str,
) -> TensorValue:
    """Sums in float32, scaled and shifted for each channel, rounded once."""
    image = node.args[0]
    assert isinstance(image, fx.Node)
    inputs = int(meta_of(image).shape[1]) // groups
    pieces = of_groups(MICRO_KERNELS[micro_kernel], kernel, inputs, columns // groups, groups)
    assert pieces is not None
    windows = [(int(v[0]), int(v[1])) for v in (kernel, stride, padding, dilation)]
    operand = patches_of(ctx, node, x, windows, pieces)
    return convolution_result(ctx, node, operand, packed, scale, bias, as_expr(columns), micro_kernel)
