"""Convolutions of a training step run channels-last, in the graph of both directions before AOTAutograd splits it.

oneDNN's convolutions and above all its gradients of depthwise ones are faster there, and loops over channels (batch
norms, pooling) have their lanes side by side. Results of the graph have eager's strides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import StrideSpreader, args_of, carry, copy_as_before, fake, is_call, to_channels_last

aten = torch.ops.aten

#: A convolution or its gradient -> the arguments that lie like its images.
_IMAGES: dict[Any, tuple[int, ...]] = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
#: What oneDNN computes on every CPU.
_DTYPES = (torch.float32, torch.bfloat16)


def train_channels_last(gm: fx.GraphModule) -> int:
    """Give convolutions over two dimensions channels-last images; how many and how many gradients got them."""
    calls = [node for node in gm.graph.nodes if is_call(node, _IMAGES) and _is_over_images(node)]
    if not calls:
        return 0
    spreader, copies, chosen = StrideSpreader(gm.graph), dict[fx.Node, fx.Node](), set(calls)
    for node in list(gm.graph.nodes):
        if node in chosen:
            for place in _IMAGES[node.target]:
                node.update_arg(place, _moved(spreader, gm.graph, node, args_of(node)[place], copies))
        spreader.visit(node)
    _restore_results(gm.graph)
    gm.graph.eliminate_dead_code()
    return len(calls)


def _is_over_images(call: fx.Node) -> bool:
    """Whether a convolution or its gradient is one over two dimensions that oneDNN computes."""
    first = _IMAGES[call.target][-1]
    transposed = args_of(call)[6 if first == 0 else 7]
    x = fake(args_of(call)[first])
    return x.dim() == 4 and x.dtype in _DTYPES and not transposed and all(s != 0 for s in x.shape)


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
