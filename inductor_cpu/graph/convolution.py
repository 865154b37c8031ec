"""Convolutions with static weights become oneDNN calls with packed weights and post-ops, channels-last throughout.

activation(convolution(x, w, b))           ->  _convolution_pointwise(x, packed(w), b, activation)
relu(convolution(x, w, b) + other)         ->  _convolution_pointwise.binary(x, other, packed(w), b, "add", relu)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.by_loops import convolve_by_loops
from inductor_cpu.graph.edit import (
    StrideSpreader,
    add,
    args_of,
    channels_last,
    fake,
    is_call,
    only_user,
    to_channels_last,
    to_contiguous,
    typical_size,
    view_again,
)
from inductor_cpu.graph.post_ops import PostOp, binary_post_op, fuse_binaries, unary_post_op
from inductor_cpu.graph.products import (
    ConvolutionKernelChoice,
    DepthwiseChoice,
    GroupedChoice,
    make_channels_last,
    pair,
    use_loops_for_depthwise,
    use_micro_kernel_for_convolution,
    use_micro_kernel_for_depthwise,
    use_micro_kernel_for_groups,
)
from inductor_cpu.graph.tail import find_tail, replace_tail
from inductor_cpu.graph.weights import growth_reason
from inductor_cpu.ir.micro_kernels import BY_LOOPS
from inductor_cpu.ir.operators import PACKED_INT_CONVOLUTION
from inductor_cpu.ir.windows import Windows, are_apart, are_neighbours

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn
#: Here what follows a depthwise convolution has to be in float32, in one kernel with it: loops, without a micro kernel.
_LOW_PRECISION = (torch.bfloat16, torch.float16)
_LEAST_CHANNELS = 8


@dataclass(frozen=True)
class Refusal:
    """A convolution or linear that stays with ATen, and why."""

    node: str
    reason: str


def unsupported_dtype(dtype: torch.dtype, what: str) -> str | None:
    """Why oneDNN cannot compute `what` in this dtype on this CPU; None when it can."""
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"oneDNN has no {dtype} {what}"
    if dtype == torch.bfloat16 and not mkldnn._is_mkldnn_bf16_supported():
        return f"this CPU has no bf16 {what}"
    if dtype == torch.float16 and not mkldnn._is_mkldnn_fp16_supported():
        return f"this CPU has no f16 {what}"
    return None


def refusal(conv: fx.Node, weights: frozenset[fx.Node]) -> str | None:
    """Why a convolution stays with ATen, whoever else could compute it; None when that is open."""
    x, weight, bias = args_of(conv)[:3]
    value, kernel = fake(x), fake(weight)
    if weight not in weights or (bias is not None and bias not in weights):
        return "its weight is not static"
    if value.dim() not in (3, 4, 5) or value.dim() != kernel.dim():
        return f"its input has {value.dim()} dimensions"
    if value.dtype != kernel.dtype or (bias is not None and fake(bias).dtype != kernel.dtype):
        return "input, weight and bias have different dtypes"
    if any(not isinstance(s, int) for s in kernel.shape) or any(s == 0 for s in kernel.shape):
        return "its weight has a symbolic or empty size"
    if any(isinstance(s, int) and s == 0 for s in (*value.shape, *fake(conv).shape)):
        return "its input or result is empty"
    return growth_reason(weight)


def convolve_over_two_dimensions(gm: fx.GraphModule, weights: frozenset[fx.Node]) -> int:
    """Make convolutions over one dimension, which may be packed, some over two, the first of size 1: oneDNN has no
    transposed ones over one, and kernels of ours take images. Returns how many."""
    count = 0
    for node in list(gm.graph.nodes):
        one = is_call(node, (aten.convolution.default,)) and fake(args_of(node)[0]).dim() == 3
        if one and refusal(node, weights) is None:
            _add_dimension(gm.graph, node)
            count += 1
    gm.graph.eliminate_dead_code()
    return count


def _add_dimension(graph: fx.Graph, conv: fx.Node) -> None:
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args_of(conv)
    with graph.inserting_before(conv):
        x4, w4 = add(graph, aten.unsqueeze.default, x, 2), add(graph, aten.unsqueeze.default, weight, 2)
        two = add(
            graph, aten.convolution.default, x4, w4, bias, [1, *stride], [0, *padding], [1, *dilation], transposed,
            [0, *output_padding], groups,
        )  # fmt: skip
        out = add(graph, aten.squeeze.dim, two, 2)
    conv.replace_all_uses_with(out)


def pack_convolutions(
    gm: fx.GraphModule,
    weights: frozenset[fx.Node],
    spreader: StrideSpreader,
    micro_kernel: ConvolutionKernelChoice,
    depthwise_kernel: DepthwiseChoice,
    grouped_kernel: GroupedChoice,
) -> tuple[int, list[Refusal]]:
    """Replace convolutions, whose results become channels-last, and bring the strides of all other nodes up to date.
    Returns how many were replaced, and those left alone."""
    count = 0
    refused: list[Refusal] = []
    for node in list(gm.graph.nodes):
        if is_call(node, (PACKED_INT_CONVOLUTION,)):
            make_channels_last(gm.graph, node, spreader)
            count += 1
            continue
        if not is_call(node, (aten.convolution.default,)):
            spreader.visit(node)
            continue
        reason = refusal(node, weights) or _replace(
            gm.graph, node, spreader, micro_kernel, depthwise_kernel, grouped_kernel
        )
        if reason is not None:
            refused.append(Refusal(node.name, reason))
            spreader.visit(node)
            continue
        count += 1
    gm.graph.eliminate_dead_code()
    return count, refused


def _replace(
    graph: fx.Graph,
    conv: fx.Node,
    spreader: StrideSpreader,
    micro_kernel: ConvolutionKernelChoice,
    depthwise_kernel: DepthwiseChoice,
    grouped_kernel: GroupedChoice,
) -> str | None:
    """Put what computes it into its place: a micro kernel, loops or oneDNN; the reason why none of them can."""
    own = _product_choice(conv, micro_kernel) if is_matrix_product(conv) else None
    alone = _depthwise_choice(conv, depthwise_kernel) if is_depthwise(conv) else None
    grouped = _grouped_choice(conv, grouped_kernel) if is_grouped(conv) else None
    if own == BY_LOOPS:
        convolve_by_loops(graph, conv, spreader)
    elif own is not None:
        use_micro_kernel_for_convolution(graph, conv, own, spreader)
    elif alone == BY_LOOPS:
        use_loops_for_depthwise(graph, conv, spreader)
    elif alone is not None:
        use_micro_kernel_for_depthwise(graph, conv, alone, spreader)
    elif grouped is not None:
        use_micro_kernel_for_groups(graph, conv, grouped, spreader)
    elif (reason := unsupported_dtype(fake(conv).dtype, "convolution")) is not None:
        return reason
    else:
        _pack(graph, conv, spreader)
    return None


def _product_choice(conv: fx.Node, micro_kernel: ConvolutionKernelChoice) -> str | None:
    """Who computes a convolution that is one product; None for oneDNN. Loops go over all the pixels, one by one."""
    own = micro_kernel(_windows(conv), fake(conv).dtype)
    stride, padding = args_of(conv)[3:5]
    all_pixels = pair(stride) == [1, 1] and pair(padding) == [0, 0]
    return own if own != BY_LOOPS or all_pixels else None


def _depthwise_choice(conv: fx.Node, depthwise_kernel: DepthwiseChoice) -> str | None:
    """Who convolves each channel by itself; None for oneDNN."""
    kernel = fake(args_of(conv)[1])
    own = depthwise_kernel(kernel.dtype, kernel.shape[2:].numel() / prod(pair(args_of(conv)[3])))
    return BY_LOOPS if own is None and kernel.dtype in _LOW_PRECISION else own


def _grouped_choice(conv: fx.Node, grouped_kernel: GroupedChoice) -> str | None:
    """Who convolves groups of channels by themselves; None for oneDNN, which is as fast where a window is one pixel."""
    kernel, groups = fake(args_of(conv)[1]), args_of(conv)[8]
    if kernel.shape[2:].numel() == 1 and unsupported_dtype(kernel.dtype, "convolution") is None:
        return None
    return grouped_kernel(kernel.dtype, kernel.shape[1], kernel.shape[0] // groups, groups)


def is_matrix_product(conv: fx.Node) -> bool:
    """Whether a convolution is one product of windows and weights: two dimensions, one group, not transposed."""
    _, weight, _, _, _, _, transposed, _, groups = args_of(conv)
    return fake(weight).dim() == 4 and groups == 1 and not transposed


def is_depthwise(conv: fx.Node) -> bool:
    """Whether each channel is convolved by itself, over windows of two dimensions, not transposed; there are enough
    channels for vectors of them."""
    x, weight, _, _, _, _, transposed, _, groups = args_of(conv)
    kernel = fake(weight).shape
    alone = fake(weight).dim() == 4 and groups == fake(x).shape[1] == kernel[0] and not transposed
    return alone and kernel[2:].numel() > 1 and groups >= _LEAST_CHANNELS


def is_grouped(conv: fx.Node) -> bool:
    """Whether groups of channels, or single ones, are convolved by themselves, over windows of two dimensions, not
    transposed."""
    _, weight, _, _, _, _, transposed, _, groups = args_of(conv)
    return fake(weight).dim() == 4 and groups > 1 and not transposed


def _windows(conv: fx.Node) -> Windows:
    """Those of a convolution that is one product."""
    shape, kernel, (stride, _, dilation) = fake(conv).shape, fake(args_of(conv)[1]), args_of(conv)[3:6]
    rows = shape[0] * shape[2] * shape[3]
    known = rows if isinstance(rows, int) else None
    neighbours = are_neighbours(kernel.shape[2:], pair(stride), pair(dilation))
    columns, channels = kernel.shape[:2]
    dilated = pair(dilation)[1] > 1
    apart = are_apart(kernel.shape[2:], pair(stride), pair(dilation))
    return Windows(known, kernel.shape[2:].numel(), channels, columns, share_inside(conv), neighbours, dilated, apart)


def share_inside(conv: fx.Node) -> float:
    """How much of the pixels of all dilated windows lies inside of the image; 1 for windows of neighbours, which reach
    outside in small images only, and where a size is unknown."""
    x, weight, _, strides, paddings, dilations = args_of(conv)[:6]
    if all(dilation == 1 for dilation in dilations) or any(not isinstance(n, int) for n in fake(x).shape[2:]):
        return 1.0
    share = 1.0
    for dim, (stride, padding, dilation) in enumerate(zip(strides, paddings, dilations, strict=True), start=2):
        size, pixels, places = fake(x).shape[dim], fake(weight).shape[dim], fake(conv).shape[dim]
        inside = sum(
            0 <= place * stride - padding + pixel * dilation < size
            for place in range(places)
            for pixel in range(pixels)
        )
        share *= inside / (pixels * places)
    return share


def _pack(graph: fx.Graph, conv: fx.Node, spreader: StrideSpreader) -> None:
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args_of(conv)
    tail = find_tail(conv)
    post = (tail.post.name, list(tail.post.scalars), tail.post.algorithm)
    before = fake(conv)
    value = channels_last(before)
    with graph.inserting_before(conv):
        source, bias = to_channels_last(graph, x), to_contiguous(graph, bias)
        if transposed:
            packed = add(
                graph, mkldnn._reorder_convolution_transpose_weight.default, weight, padding, output_padding, stride,
                dilation, groups, typical_size(fake(x)), value=fake(weight),
            )  # fmt: skip
            new = add(
                graph, mkldnn._convolution_transpose_pointwise.default, source, packed, bias, padding, output_padding,
                stride, dilation, groups, *post, value=value,
            )  # fmt: skip
        else:
            packed = add(
                graph, mkldnn._reorder_convolution_weight.default, weight, padding, stride, dilation, groups,
                typical_size(fake(x)), value=fake(weight),
            )  # fmt: skip
            new = add(
                graph, mkldnn._convolution_pointwise.default, source, packed, bias, padding, stride, dilation, groups,
                *post, value=value,
            )  # fmt: skip
    spreader.changed(new, before)
    for node in replace_tail(graph, tail, new):
        spreader.visit(node)


# -- operations with another tensor ----------------------------------------------------------------------------------
def fuse_conv_binaries(gm: fx.GraphModule) -> int:
    """Let packed convolutions without a post-op take an operation with another tensor, and a relu after it."""
    return fuse_binaries(gm, _fuse_binary)


def _fuse_binary(graph: fx.Graph, node: fx.Node, order: Mapping[fx.Node, int]) -> bool:
    name = binary_post_op(node)
    first = args_of(node)[:1] if name == "sub" else args_of(node)
    candidates = [(conv, n) for n in first if (conv := _takes_binary(n, node)) is not None]
    if not candidates or args_of(node)[0] is args_of(node)[1]:
        return False
    # the later one runs while the other's result is still in the cache
    conv, value = max(candidates, key=lambda pair: order[pair[0]])
    other = next(n for n in args_of(node) if n is not value)
    if not isinstance(other, fx.Node) or not isinstance(fake(other), torch.Tensor):
        return False
    if fake(other).shape != fake(value).shape or fake(other).dtype != fake(value).dtype:
        return False
    tail, post = only_user(node), unary_post_op(only_user(node))
    if post is not None and post.name != "relu":
        post = None  # oneDNN's interface has no other activation after a binary post-op
    last = node if post is None else tail
    assert last is not None
    x, packed, bias, padding, stride, dilation, groups = args_of(conv)[:7]
    post = post or PostOp("")
    with graph.inserting_before(node):
        if value is not conv:
            other = add(graph, aten.unsqueeze.default, other, args_of(value)[1])
        other = to_channels_last(graph, other)
        new = add(
            graph, mkldnn._convolution_pointwise.binary, x, other, packed, bias, padding, stride, dilation, groups,
            name, 1.0, post.name or None, list(post.scalars), post.algorithm or None, value=fake(conv),
        )  # fmt: skip
        if value is not conv:
            new = view_again(graph, value, new)
    last.replace_all_uses_with(new)
    return True


def _takes_binary(value: Any, user: fx.Node) -> fx.Node | None:
    """The packed convolution without a post-op that a value comes from, alone or squeezed (over one dimension)."""
    if not isinstance(value, fx.Node) or only_user(value) is not user:
        return None
    squeezed = is_call(value, (aten.squeeze.dim,))
    conv = args_of(value)[0] if squeezed else value
    if not is_call(conv, (mkldnn._convolution_pointwise.default,)) or args_of(conv)[7] != "none":
        return None
    return conv if len(conv.users) == 1 else None
