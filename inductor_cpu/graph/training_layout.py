"""Training steps with depthwise convolutions run channels-last: a pass over the graph of both directions, before
AOTAutograd splits it.

Eager mode, too, takes half the time for a step of mobilenetv3 in float32 there, and loops over channels (batch norms,
pooling) have their lanes side by side. Without depthwise ones a ResNet-18 in float32 lost a tenth: weights and their
gradients are copied from layout to layout. Results of the graph have eager's strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import StrideSpreader, args_of, carry, copy_as_before, fake, is_call, to_channels_last

aten = torch.ops.aten

#: A convolution or its gradient -> the arguments that lie like its images.
_IMAGES: dict[Any, tuple[int, ...]] = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
#: What oneDNN computes (bf16 with AVX-512).
_DTYPES = (torch.float32, torch.bfloat16)


def train_channels_last(gm: fx.GraphModule) -> int:
    """Give convolutions and their gradients channels-last images if some are depthwise; how many got them."""
    calls = [node for node in gm.graph.nodes if is_call(node, _IMAGES)]
    chosen = {node for node in calls if _gains_channels_last(node)}
    if not any(map(_is_depthwise, chosen)):
        return 0
    spreader, copies = StrideSpreader(gm.graph), dict[fx.Node, fx.Node]()
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


def _gains_channels_last(call: fx.Node) -> bool:
    """Whether a convolution or its gradient is one over two dimensions that oneDNN computes.

    Not one over single pixels with gaps between them: the gradient of its weights ends the process for three channels
    (224 x 224 pixels, two images, stride 2, oneDNN of torch 2.13), in eager mode, too."""
    x, weight, strides, transposed = _arguments(call)
    if weight.dim() != 4 or transposed or x.dtype not in _DTYPES or any(s == 0 for s in x.shape):
        return False
    return weight.shape[2:].numel() > 1 or all(s == 1 for s in strides)


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
