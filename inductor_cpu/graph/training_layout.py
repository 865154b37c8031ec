"""Training steps with depthwise convolutions, or with convolutions by tiles (`per_call_convolution.py`) or as products
of pixels (`per_call_pixels.py`), run channels-last: a pass over the graph of both directions, before AOTAutograd splits
it.

Eager mode, too, takes half the time for a step of mobilenetv3 in float32 there, and loops over channels (batch norms,
pooling) have their lanes side by side. Tiles and products read and write pixels with their channels side by side, and
would have to copy them. Without any of them a ResNet-18 in float32 lost a tenth: weights and their gradients are copied
from layout to layout, and those of images that have fewer pixels than weights stay as they are. Results of the graph
have eager's strides.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.convolution_calls import CONVOLUTION, GRADIENT, ConvolutionCall, read_convolution
from inductor_cpu.graph.edit import (
    StrideSpreader,
    args_of,
    carry,
    copy_as_before,
    fake,
    hints,
    is_call,
    to_channels_last,
)
from inductor_cpu.graph.per_call_convolution import TilingChoice, is_tiled
from inductor_cpu.graph.per_call_pixels import PixelChoice, is_of_pixels
from inductor_cpu.graph.strided_pixels import close_gaps

#: A convolution or its gradient -> the arguments that lie like its images.
_IMAGES: dict[Any, tuple[int, ...]] = {CONVOLUTION: (0,), GRADIENT: (0, 1)}
#: What oneDNN computes, where the CPU has it; others become products of pixels, or float32 (`widened.py`).
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
#: The share of all multiplications that tiles and products must have: batch norms lose some of what they gain. A
#: channel of all images lies in the cache where it is by itself, and its mean is found and used in one pass; here it
#: takes two.
_LEAST_FASTER = 0.25


def train_channels_last(
    gm: fx.GraphModule, tiling_kernel: TilingChoice, by_pixels: PixelChoice, eager_random: bool = True
) -> int:
    """Give convolutions and their gradients channels-last images if some are depthwise, or computed by tiles or as
    products of pixels; how many got them. eager_random: random numbers are those of eager mode."""
    calls = [node for node in gm.graph.nodes if is_call(node, _IMAGES)]
    depthwise = set(filter(_is_depthwise, calls))
    faster = {node for node in calls if is_tiled(node, tiling_kernel) or is_of_pixels(_read(node), by_pixels)}
    if sum(map(_work, faster)) < _LEAST_FASTER * sum(map(_work, calls)):
        faster = set()
    wanting = depthwise | faster
    chosen = {node for node in calls if _may_be_channels_last(node) and (node in wanting or _reads_more_pixels(node))}
    if not chosen & wanting:
        return 0
    spreader, copies = StrideSpreader(gm.graph, eager_random), dict[fx.Node, fx.Node]()
    close_gaps(gm.graph, [node for node in calls if node in chosen and _has_gaps(node)], spreader)
    for node in list(gm.graph.nodes):
        for place in _IMAGES.get(node.target, ()):
            image = args_of(node)[place]
            if node in chosen:
                node.update_arg(place, _moved(spreader, gm.graph, node, image, copies))
            elif isinstance(image.meta.get("value_before"), torch.Tensor):
                node.update_arg(place, copy_as_before(gm.graph, node, image))
        spreader.visit(node)
    _restore_results(gm.graph)
    gm.graph.eliminate_dead_code()
    return len(chosen)


def _may_be_channels_last(node: fx.Node) -> bool:
    """Whether a convolution or its gradient is one over two dimensions that oneDNN computes, and no gaps between single
    pixels remain that `close_gaps` knows nothing of."""
    call = _read(node)
    x = fake(call.x)
    if fake(call.weight).dim() != 4 or call.transposed or x.dtype not in _DTYPES:
        return False
    if any(statically_known_true(s == 0) for s in x.shape):
        return False
    return not _has_gaps(node) or not any(call.padding)


def _reads_more_pixels(node: fx.Node) -> bool:
    """Whether a convolution has no more weights than pixels, so that copying these from layout to layout is cheap.
    Those of single pixels lie the same in both."""
    call = _read(node)
    weight, sizes = fake(call.weight), hints(fake(call.x).shape)
    return weight.shape[2:].numel() == 1 or None in sizes or math.prod(sizes) >= weight.numel()


def _has_gaps(node: fx.Node) -> bool:
    """Whether it is one of single pixels with gaps between them."""
    call = _read(node)
    return fake(call.weight).shape[2:].numel() == 1 and any(s != 1 for s in call.stride)


def _work(node: fx.Node) -> int:
    """Multiplications of a convolution, for its gradient as many; 128 stands for a size that is unknown."""
    call = _read(node)
    windows = [128 if size is None else size for size in hints((call.results.shape[0], *call.results.shape[2:]))]
    return fake(call.weight).numel() * math.prod(windows)


def _is_depthwise(node: fx.Node) -> bool:
    """Whether each of several channels is convolved by itself."""
    call = _read(node)
    return bool(fake(call.weight).shape[1] == 1 and fake(call.x).shape[1] > 1)


def _read(node: fx.Node) -> ConvolutionCall:
    call = read_convolution(node)
    assert call is not None
    return call


def _moved(
    spreader: StrideSpreader, graph: fx.Graph, user: fx.Node, x: fx.Node, copies: dict[fx.Node, fx.Node]
) -> fx.Node:
    """The image channels-last; the same copy for a convolution and its gradient."""
    if x not in copies:
        with graph.inserting_before(user):
            copies[x] = to_channels_last(graph, x)
        if copies[x] is not x:
            carry(user, copies[x])
            spreader.changed(copies[x], fake(x))
    return copies[x]


def _restore_results(graph: fx.Graph) -> None:
    """Copy results whose strides have changed to what they were."""
    output = graph.output_node()
    for result in dict.fromkeys(output.all_input_nodes):
        before = result.meta.get("value_before")
        if isinstance(before, torch.Tensor) and before.stride() != fake(result).stride():
            output.replace_input_with(result, copy_as_before(graph, output, result))
