"""Convolutions of single pixels whose weights are not static, and their gradients, as matrix products, of which
`per_call.py` gives some to kernels of ours.

convolution(x, w, b)              ->  addmm(b, pixels(x), w^T), or mm without a bias
convolution_backward(e, x, w)[0]  ->  mm(pixels(e), w)
convolution_backward(e, x, w)[1]  ->  mm(pixels(e)^T, pixels(x))
convolution_backward(e, x, w)[2]  ->  sum(e, [0, 2, 3])

pixels: a channels-last image, seen as a matrix (pixels, channels).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.convolution_calls import (
    CONVOLUTION,
    ConvolutionCall,
    read_convolution,
    replace_gradients,
    replace_value,
)
from inductor_cpu.graph.edit import add, args_of, aten, fake, size_of, to_channels_last
from inductor_cpu.graph.products import pair

#: A dtype -> whether products of channels-last pixels and weights that are not static are faster than ATen's
#: convolutions of these.
PixelChoice = Callable[[torch.dtype], bool]


def multiply_pixels(gm: fx.GraphModule, choice: PixelChoice) -> int:
    """Replace convolutions of channels-last images, and their gradients; returns how many calls."""
    count = 0
    for node in list(gm.graph.nodes):
        call = read_convolution(node)
        if call is None or not is_of_pixels(call, choice) or not _is_channels_last(fake(call.x)):
            continue
        if any(step != 1 for step in pair(call.stride)):
            continue
        with gm.graph.inserting_before(node):
            replace = _multiply if node.target is CONVOLUTION else _differentiate
            replace(gm.graph, node, call)
        count += 1
    gm.graph.eliminate_dead_code()
    return count


def is_of_pixels(call: ConvolutionCall, choice: PixelChoice) -> bool:
    """Whether a convolution, or its gradient, would be products if its image were channels-last, and without gaps."""
    value, sizes = fake(call.x), fake(call.weight).shape
    if len(sizes) != 4 or value.dim() != 4 or call.transposed or call.groups != 1:
        return False
    if any(not isinstance(size, int) for size in sizes) or tuple(sizes[2:]) != (1, 1) or any(pair(call.padding)):
        return False
    empty = 0 in sizes or any(statically_known_true(size == 0) for size in value.shape)
    return not empty and fake(call.weight).dtype == value.dtype and choice(value.dtype)


def _is_channels_last(image: torch.Tensor) -> bool:
    """Whether the channels of a pixel are neighbours, also in a part of an image."""
    return statically_known_true(image.stride(1) == 1) or image.is_contiguous(memory_format=torch.channels_last)


def _multiply(graph: fx.Graph, node: fx.Node, call: ConvolutionCall) -> None:
    bias, pixels = args_of(node)[2], _pixels(graph, call.x)
    turned = add(graph, aten.permute.default, _matrix(graph, call.weight), [1, 0])
    if bias is None:
        product = add(graph, aten.mm.default, pixels, turned)
    else:
        product = add(graph, aten.addmm.default, bias, pixels, turned)
    replace_value(graph, node, _image(graph, product, call.x, fake(node)))


def _differentiate(graph: fx.Graph, node: fx.Node, call: ConvolutionCall) -> None:
    gradients, *_, wanted = args_of(node)
    by_pixel = _pixels(graph, to_channels_last(graph, gradients))
    made: dict[int, fx.Node] = {}
    if wanted[0]:
        product = add(graph, aten.mm.default, by_pixel, _matrix(graph, call.weight))
        made[0] = _image(graph, product, call.x, fake(node)[0])
    if wanted[1]:
        by_channel = add(graph, aten.permute.default, by_pixel, [1, 0])
        product = add(graph, aten.mm.default, by_channel, _pixels(graph, call.x))
        made[1] = _image(graph, product, call.weight, fake(node)[1])
    if wanted[2]:
        made[2] = add(graph, aten.sum.dim_IntList, gradients, [0, 2, 3])
    replace_gradients(graph, node, made)


def _matrix(graph: fx.Graph, weight: fx.Node) -> fx.Node:
    """The weight as a matrix (output channels, channels)."""
    return add(graph, aten.reshape.default, weight, list(fake(weight).shape[:2]))


def _pixels(graph: fx.Graph, image: fx.Node) -> fx.Node:
    by_pixel = add(graph, aten.permute.default, image, [0, 2, 3, 1])
    return add(graph, aten.reshape.default, by_pixel, [-1, fake(image).shape[1]])


def _image(graph: fx.Graph, pixels: fx.Node, like: fx.Node, promised: torch.Tensor) -> fx.Node:
    """A matrix (pixels, channels) as an image with as many pixels as another one: channels-last. One pixel, or one
    channel, lies the same in both layouts, and gets the strides that were promised."""
    batch, height, width = (size_of(graph, like, dim) for dim in (0, 2, 3))
    channels = fake(pixels).shape[1]
    one_pixel, one_channel = (height, width) == (1, 1), channels == 1
    if (one_pixel and promised.stride(3) == 1) or (one_channel and promised.stride(1) != 1):
        return add(graph, aten.reshape.default, pixels, [batch, channels, height, width])
    by_pixel = add(graph, aten.reshape.default, pixels, [batch, height, width, channels])
    return add(graph, aten.permute.default, by_pixel, [0, 3, 1, 2])
