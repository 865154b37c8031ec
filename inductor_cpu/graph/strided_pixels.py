"""Convolutions of single pixels with gaps between them, in training: the image without the pixels between is convolved.

convolution(x, w, stride=s)              ->  convolution(x[:, :, ::s, ::s], w)
convolution_backward(e, x, w, stride=s)  ->  convolution_backward(e, x[:, :, ::s, ::s], w), whose first result is spread
                                             over zeros

As they are, ATen's gradient of their weights ends the process for channels-last images of three channels (224 x 224
pixels, two images, stride 2, oneDNN of torch 2.13), in eager mode, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import fx

from inductor_cpu.graph.edit import StrideSpreader, add, args_of, aten, carry, compute_fake, fake
from inductor_cpu.graph.products import pair

_END = 2**63 - 1


def close_gaps(graph: fx.Graph, calls: Sequence[fx.Node], spreader: StrideSpreader) -> None:
    """Change convolutions, and gradients of convolutions, in the order of the graph. Gradients of images become
    channels-last."""
    closed: dict[tuple[fx.Node, tuple[int, ...]], fx.Node] = {}
    for call in calls:
        place, stride = (0, 3) if call.target is aten.convolution.default else (1, 4)
        image, step = args_of(call)[place], tuple(pair(args_of(call)[stride]))
        if (image, step) not in closed:
            closed[image, step] = _without_gaps(graph, call, image, step)
        call.update_arg(place, closed[image, step])
        call.update_arg(stride, [1, 1])
        if call.target is aten.convolution_backward.default:
            _spread_gradient(graph, call, image, step, spreader)


def _without_gaps(graph: fx.Graph, call: fx.Node, image: fx.Node, step: Sequence[int]) -> fx.Node:
    with graph.inserting_before(call):
        lines = add(graph, aten.slice.Tensor, image, 2, 0, _END, step[0])
        pixels = add(graph, aten.slice.Tensor, lines, 3, 0, _END, step[1])
    carry(call, lines, pixels)
    return pixels


def _spread_gradient(
    graph: fx.Graph, call: fx.Node, image: fx.Node, step: Sequence[int], spreader: StrideSpreader
) -> None:
    """Put zeros between the pixels of the gradient of the image."""
    call.meta["val"] = compute_fake(call.target, call.args, call.kwargs)  # type: ignore[arg-type]
    for part in [user for user in call.users if args_of(user)[1] == 0]:
        before, part.meta["val"] = fake(part), fake(call)[0]
        with graph.inserting_before(part.next):
            zeros = add(graph, aten.full_like.default, image, 0, memory_format=torch.channels_last)
            lines = add(graph, aten.slice.Tensor, zeros, 3, 0, _END, step[1])
            filled = add(graph, aten.slice_scatter.default, lines, part, 2, 0, _END, step[0])
            whole = add(graph, aten.slice_scatter.default, zeros, filled, 3, 0, _END, step[1])
        carry(part, zeros, lines, filled, whole)
        part.replace_all_uses_with(whole, delete_user_cb=_all_but(filled))
        spreader.changed(whole, before)


def _all_but(node: fx.Node) -> Callable[[fx.Node], bool]:
    return lambda user: user is not node
