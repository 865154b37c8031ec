"""Linear layers and convolutions with static weights that a kernel of our own computes: the weight is packed for it.

addmm(b, x, permute(w))  ->  packed_linear(x, packed(w), None, b)
convolution(x, w, b)     ->  packed_convolution(x, packed(permute(w)), b), channels-last, with a scale_shift after it
convolution of integers  ->  packed_int_convolution(x, packed(permute(w))), channels-last, exactly
depthwise convolution    ->  packed_depthwise_convolution(x, packed(w), b), or depthwise_convolution(x, permute(w), b)
convolution of groups    ->  packed_grouped_convolution(x, packed(permute(w)), b)

What follows the layer stays as it is: the scheduler makes pointwise operations the epilogue of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import (
    StrideSpreader,
    add,
    args_of,
    aten,
    channels_last,
    compute_fake,
    fake,
    is_call,
    only_user,
    size_of,
    to_channels_last,
)
from inductor_cpu.graph.layers import widest
from inductor_cpu.ir.depthwise import DEPTHWISE_CONVOLUTION, PACKED_DEPTHWISE_CONVOLUTION
from inductor_cpu.ir.grouped import PACKED_GROUPED_CONVOLUTION
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, ORDER, MicroKernel
from inductor_cpu.ir.operators import (
    PACKED_CONVOLUTION,
    PACKED_INT_CONVOLUTION,
    PACKED_LINEAR,
    PACKED_OPERAND,
    SCALE_SHIFT,
)
from inductor_cpu.ir.windows import Pieces, Windows, of_groups, pieces_of, with_panels
from inductor_cpu.ir.winograd import PACKED_TILES

#: (rows, inner size, columns, each None when unknown, dtype, that of the weight) -> the micro kernel that should
#: compute a product, `BY_LOOPS`, or None.
MicroKernelChoice = Callable[[int | None, int | None, int | None, torch.dtype, torch.dtype], str | None]

#: The same of the windows of a convolution, and its dtype.
ConvolutionKernelChoice = Callable[[Windows, torch.dtype], str | None]

#: The same of (dtype, how many windows a pixel is in) where each channel is convolved by itself; `BY_LOOPS` for loops.
DepthwiseChoice = Callable[[torch.dtype, float], str | None]

#: The same of (dtype, channels and results of a group, how many groups) where groups of channels are; never loops.
GroupedChoice = Callable[[torch.dtype, int, int, int], str | None]


def use_micro_kernel(
    graph: fx.Graph, product: fx.Node, x: Any, weight: fx.Node, scale: Any, bias: Any, name: str
) -> fx.Node:
    """Put the operator in the place of a matrix product. weight: (columns, depth)."""
    columns, packed = size_of(graph, weight, 0), pack(graph, weight, name)
    new = add(graph, PACKED_LINEAR, x, packed, scale, bias, columns, name, value=fake(product))
    product.replace_all_uses_with(new)
    return new


def use_micro_kernel_for_convolution(graph: fx.Graph, conv: fx.Node, name: str, spreader: StrideSpreader) -> None:
    """Put the operator in the place of a convolution over two dimensions with one group."""
    weight, stride, padding, dilation = (args_of(conv)[k] for k in (1, 3, 4, 5))
    columns, _, *kernel = (int(s) for s in fake(weight).shape)
    pairs = [pair(values) for values in (stride, padding, dilation)]

    def build(x: fx.Node, scale: fx.Node | None, bias: Any) -> fx.Node:
        packed = pack_windows(graph, weight, pairs[0], pairs[2], name)
        value = channels_last(fake(conv))
        return add(graph, PACKED_CONVOLUTION, x, packed, scale, bias, columns, kernel, *pairs, name, value=value)

    replace_convolution(graph, conv, build, spreader)


def int_convolution(graph: fx.Graph, conv: fx.Node, x: fx.Node, weight: fx.Node, outside: int, name: str) -> fx.Node:
    """A convolution like `conv`, of integers instead, in int32. It has the strides of `conv` until
    `make_channels_last` gives it its own."""
    columns, _, *kernel = (int(s) for s in fake(weight).shape)
    pairs = [pair(args_of(conv)[k]) for k in (3, 4, 5)]
    packed = pack_windows(graph, weight, pairs[0], pairs[2], name)
    value = compute_fake(aten._to_copy.default, (conv,), {"dtype": torch.int32})
    return add(graph, PACKED_INT_CONVOLUTION, x, packed, columns, kernel, *pairs, outside, name, value=value)


def make_channels_last(graph: fx.Graph, conv: fx.Node, spreader: StrideSpreader) -> None:
    """Give a convolution of integers an input and a result that are channels-last."""
    before = fake(conv)
    with graph.inserting_before(conv):
        conv.update_arg(0, to_channels_last(graph, args_of(conv)[0]))
    conv.meta["val"] = channels_last(before)
    spreader.changed(conv, before)


def pack_windows(
    graph: fx.Graph, weight: fx.Node, stride: Sequence[int], dilation: Sequence[int], name: str
) -> fx.Node:
    """The weight (columns, channels, *kernel) of a convolution in the layout of a micro kernel."""
    columns, channels, *kernel = (int(s) for s in fake(weight).shape)
    micro = MICRO_KERNELS[name]
    pieces = pieces_of(micro, kernel, stride, dilation, channels, columns)
    if pieces.tiles:
        return add(graph, PACKED_TILES, weight, False, name)
    by_pixel = add(graph, aten.permute.default, weight, [0, 2, 3, 1])
    return pack(graph, _in_pieces(graph, by_pixel, pieces, micro), name)


def use_loops_for_depthwise(graph: fx.Graph, conv: fx.Node, spreader: StrideSpreader) -> None:
    """Put the operator in the place of a convolution over two dimensions of each channel by itself."""
    weight, stride, padding, dilation = (args_of(conv)[k] for k in (1, 3, 4, 5))
    pairs = [pair(values) for values in (stride, padding, dilation)]

    def build(x: fx.Node, scale: fx.Node | None, bias: Any) -> fx.Node:
        wide = add(graph, aten._to_copy.default, add(graph, aten.squeeze.dim, weight, 1), dtype=torch.float32)
        taps = add(
            graph, aten.clone.default, add(graph, aten.permute.default, wide, [1, 2, 0]),
            memory_format=torch.contiguous_format,
        )  # fmt: skip
        return add(graph, DEPTHWISE_CONVOLUTION, x, taps, scale, bias, *pairs, value=channels_last(fake(conv)))

    replace_convolution(graph, conv, build, spreader)


def use_micro_kernel_for_depthwise(graph: fx.Graph, conv: fx.Node, name: str, spreader: StrideSpreader) -> None:
    """The same by a micro kernel."""
    weight, stride, padding, dilation = (args_of(conv)[k] for k in (1, 3, 4, 5))
    channels, _, *kernel = (int(s) for s in fake(weight).shape)
    pairs = [pair(values) for values in (stride, padding, dilation)]

    def build(x: fx.Node, scale: fx.Node | None, bias: Any) -> fx.Node:
        taps = add(graph, aten.reshape.default, weight, [channels, kernel[0] * kernel[1]])
        operands = x, pack(graph, taps, name), scale, bias, kernel, *pairs, name
        return add(graph, PACKED_DEPTHWISE_CONVOLUTION, *operands, value=channels_last(fake(conv)))

    replace_convolution(graph, conv, build, spreader)


def use_micro_kernel_for_groups(graph: fx.Graph, conv: fx.Node, name: str, spreader: StrideSpreader) -> None:
    """The same of groups of channels by themselves, which the micro kernel takes."""
    weight, stride, padding, dilation, groups = (args_of(conv)[k] for k in (1, 3, 4, 5, 8))
    columns, inputs, *kernel = (int(s) for s in fake(weight).shape)
    pairs = [pair(values) for values in (stride, padding, dilation)]
    micro = MICRO_KERNELS[name]
    pieces = of_groups(micro, kernel, inputs, columns // groups, groups)
    assert pieces is not None

    def build(x: fx.Node, scale: fx.Node | None, bias: Any) -> fx.Node:
        by_pixel = add(graph, aten.permute.default, weight, [0, 2, 3, 1])
        packed = _pack(graph, _in_pieces(graph, by_pixel, pieces, micro), with_panels(micro, pieces))
        operands = x, packed, scale, bias, columns, kernel, *pairs, groups, name
        return add(graph, PACKED_GROUPED_CONVOLUTION, *operands, value=channels_last(fake(conv)))

    replace_convolution(graph, conv, build, spreader)


def _in_pieces(graph: fx.Graph, weight: fx.Node, pieces: Pieces, micro: MicroKernel) -> fx.Node:
    """A weight (columns, ky, kx, channels) as a matrix (columns, depth), each piece padded for a micro kernel."""
    columns = int(fake(weight).shape[0])
    split = add(graph, aten.reshape.default, weight, [columns, pieces.count, pieces.values])
    depth = pieces.depth(micro)
    more = depth // pieces.count - pieces.values
    padded = add(graph, aten.constant_pad_nd.default, split, [0, more]) if more else split
    return add(graph, aten.reshape.default, padded, [columns, depth])


def pair(values: Any) -> list[int]:
    """One number for both dimensions, or one for each."""
    return [int(v) for v in (list(values) * 2)[:2]]


def replace_convolution(
    graph: fx.Graph,
    conv: fx.Node,
    build: Callable[[fx.Node, fx.Node | None, Any], fx.Node],
    spreader: StrideSpreader,
) -> None:
    """Put build(x channels-last, scale, bias) in the place of a convolution and of a scale_shift that only it has."""
    norm = only_user(conv)
    last = norm if norm is not None and is_call(norm, (SCALE_SHIFT,)) else conv
    x, _, bias, *_ = args_of(conv)
    before = fake(conv)
    with graph.inserting_before(last):
        scale, bias = _scale_and_bias(graph, last, bias)
        new = build(to_channels_last(graph, x), scale, bias)
    spreader.changed(new, before)
    last.replace_all_uses_with(new)


def _scale_and_bias(graph: fx.Graph, last: fx.Node, bias: Any) -> tuple[fx.Node | None, Any]:
    """(scale, bias) of a convolution that ends with `last`: (y + bias) * s + t = y * s + (bias * s + t)."""
    if last.target is not SCALE_SHIFT:
        return None, bias
    _, scale, shift = args_of(last)
    if bias is not None:
        shift = add(graph, aten.add.Tensor, add(graph, aten.mul.Tensor, widest(graph, bias), scale), shift)
    return scale, shift


def pack(graph: fx.Graph, weight: fx.Node, name: str) -> fx.Node:
    """A (columns, depth) weight in the layout of a micro kernel; those of a (batch, columns, depth) one after the
    other."""
    if not all(isinstance(size, int) for size in fake(weight).shape[-2:]):
        return add(graph, PACKED_OPERAND, weight, name)
    return _pack(graph, weight, MICRO_KERNELS[name])


def _pack(graph: fx.Graph, weight: fx.Node, micro: MicroKernel) -> fx.Node:
    columns, depth = fake(weight).shape[-2:]
    batch = fake(weight).dim() - 2
    more_columns, more_depth = -columns % micro.columns, -depth % micro.step
    if more_columns or more_depth:
        weight = add(graph, aten.constant_pad_nd.default, weight, [0, more_depth, 0, more_columns])
    split = add(graph, aten.reshape.default, weight, [-1] * batch + list(micro.split_shape(columns, depth)))
    ordered = add(graph, aten.permute.default, split, [*range(batch), *(batch + d for d in ORDER)])
    return add(graph, aten.clone.default, ordered, memory_format=torch.contiguous_format)
