"""Training steps with depthwise convolutions, or with convolutions by tiles (`per_call_convolution.py`), run
channels-last: a pass over the graph of both directions, before AOTAutograd splits it.

Eager mode, too, takes half the time for a step of mobilenetv3 in float32 there, and loops over channels (batch norms,
pooling) have their lanes side by side. Tiles read and write pixels with their channels side by side, and would have to
copy them. Without either a ResNet-18 in float32 lost a tenth: weights and their gradients are copied from layout to
layout, and those of images that have fewer pixels than weights stay as they are. Results of the graph have eager's
strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

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
from inductor_cpu.graph.strided_pixels import close_gaps

aten = torch.ops.aten

#: A convolution or its gradient -> the arguments that lie like its images.
_IMAGES: dict[Any, tuple[int, ...]] = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
#: What oneDNN computes (bf16 with AVX-512).
_DTYPES = (torch.float32, torch.bfloat16)
#: The share of all multiplications that those by tiles must have: batch norms lose some of what they gain. A channel of
#: all images lies in the cache where it is by itself, and its mean is found and used in one pass; here it takes two.
_LEAST_TILED = 0.25


def train_channels_last(gm: fx.GraphModule, tiling_kernel: TilingChoice, eager_random: bool = True) -> int:
    """Give convolutions and their gradients channels-last images if some are depthwise, or computed by tiles; how many
    got them. eager_random: random numbers are those of eager mode."""
    calls = [node for node in gm.graph.nodes if is_call(node, _IMAGES)]
    depthwise, tiled = set(filter(_is_depthwise, calls)), {node for node in calls if is_tiled(node, tiling_kernel)}
    if sum(map(_work, tiled)) < _LEAST_TILED * sum(map(_work, calls)):
        tiled = set()
    wanting = depthwise | tiled
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


def _may_be_channels_last(call: fx.Node) -> bool:
    """Whether a convolution or its gradient is one over two dimensions that oneDNN computes, and no gaps between single
    pixels remain that `close_gaps` knows nothing of."""
    args, (x, weight, _, transposed) = args_of(call), _arguments(call)
    if weight.dim() != 4 or transposed or x.dtype not in _DTYPES:
        return False
    if any(statically_known_true(s == 0) for s in x.shape):
        return False
    return not _has_gaps(call) or not any(args[4 if call.target is aten.convolution.default else 5])


def _reads_more_pixels(call: fx.Node) -> bool:
    """Whether a convolution has no more weights than pixels, so that copying these from layout to layout is cheap.
    Those of single pixels lie the same in both."""
    x, weight, *_ = _arguments(call)
    sizes = hints(x.shape)
    return weight.shape[2:].numel() == 1 or None in sizes or math.prod(sizes) >= weight.numel()


def _has_gaps(call: fx.Node) -> bool:
    """Whether it is one of single pixels with gaps between them."""
    _, weight, strides, _ = _arguments(call)
    return weight.shape[2:].numel() == 1 and any(s != 1 for s in strides)


def _work(call: fx.Node) -> int:
    """Multiplications of a convolution, for its gradient as many; 128 stands for a size that is unknown."""
    args = args_of(call)
    results = fake(call) if call.target is aten.convolution.default else fake(args[0])
    windows = [128 if size is None else size for size in hints((results.shape[0], *results.shape[2:]))]
    return _arguments(call)[1].numel() * math.prod(windows)


def _is_depthwise(call: fx.Node) -> bool:
    """Whether each of several channels is convolved by itself."""
    x, weight, *_ = _arguments(call)
    return bool(weight.shape[1] == 1 and x.shape[1] > 1)


def _arguments(call: fx.Node) -> tuple[torch.Tensor, torch.Tensor, Sequence[int], bool]:
    """Image, weight, strides, and whether it is transposed."""
    args = args_of(call)
    x, weight, strides, transposed = (0, 1, 3, 6) if call.target is aten.convolution.default else (1, 2, 4, 7)
    return fake(args[x]), fake(args[weight]), args[strides], args[transposed]


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
