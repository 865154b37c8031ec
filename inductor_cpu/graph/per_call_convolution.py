"""Convolutions of 3 x 3 neighbours whose weights are not static, and their gradients, by tiles of windows
(`ir/windows.py`): what training steps of convolutional models spend their time on.

convolution(x, w, b)              ->  packed_convolution(x, packed_tiles(w), b)
convolution_backward(e, x, w)[0]  ->  packed_convolution(e, packed_tiles(w turned around))
convolution_backward(e, x, w)[1]  ->  weight_gradient(x, e)
convolution_backward(e, x, w)[2]  ->  sum(e, [0, 2, 3])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from inductor_cpu.graph.convolution_calls import CONVOLUTION, read_convolution, replace_gradients, replace_value
from inductor_cpu.graph.edit import add, args_of, aten, fake, to_channels_last
from inductor_cpu.graph.products import pair
from inductor_cpu.graph.widened import computed_dtype
from inductor_cpu.ir.operators import PACKED_CONVOLUTION
from inductor_cpu.ir.windows import are_neighbours
from inductor_cpu.ir.winograd import PACKED_TILES, WEIGHT_GRADIENT

#: (windows or None when unknown, channels, output channels, dtype) -> the micro kernel that multiplies the windows of a
#: convolution by tiles and packs its weights at each call, or None.
TilingChoice = Callable[[int | None, int, int, torch.dtype], str | None]


@dataclass(frozen=True)
class _Convolution:
    """A convolution, or that of a gradient, over two dimensions, of 3 x 3 neighbours, of one group. windows: None when
    unknown. dtype: in which it is computed."""

    x: fx.Node
    weight: fx.Node
    padding: tuple[int, int]
    windows: int | None
    dtype: torch.dtype

    @property
    def columns(self) -> int:
        """Output channels."""
        return int(fake(self.weight).shape[0])

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return int(fake(self.weight).shape[1])

    @property
    def turned_padding(self) -> tuple[int, int]:
        """Of the convolution of the gradients of results that gives those of the image."""
        return 2 - self.padding[0], 2 - self.padding[1]


def convolve_by_tiles(gm: fx.GraphModule, choice: TilingChoice) -> int:
    """Replace convolutions, and what gradients can be had so; returns of how many calls. Convolutions are in the dtype
    in which they are computed (`widened.py`)."""
    count = 0
    for node in list(gm.graph.nodes):
        conv = _read(node)
        if conv is None:
            continue
        with gm.graph.inserting_before(node):
            replace = _convolve if node.target is CONVOLUTION else _differentiate
            count += replace(gm.graph, node, conv, choice)
    gm.graph.eliminate_dead_code()
    return count


def is_tiled(node: fx.Node, choice: TilingChoice) -> bool:
    """Whether a convolution, or one of its gradients, would be computed by tiles."""
    conv = _read(node)
    if conv is None:
        return False
    if node.target is CONVOLUTION:
        return choice(conv.windows, conv.channels, conv.columns, conv.dtype) is not None
    return _kernel_of_image(conv, choice) is not None or _kernel_of_weights(conv, choice) is not None


def _read(node: fx.Node) -> _Convolution | None:
    """A convolution or its gradient; None for another node, and where tiles are of no use."""
    call = read_convolution(node)
    if call is None:
        return None
    value, kernel = fake(call.x), fake(call.weight)
    sizes = kernel.shape
    if kernel.dim() != 4 or value.dim() != 4 or call.transposed or call.groups != 1 or kernel.dtype != value.dtype:
        return None
    if any(not isinstance(n, int) for n in sizes):
        return None
    if not are_neighbours(sizes[2:], pair(call.stride), pair(call.dilation)):
        return None
    results = call.results
    windows = results.shape[0] * results.shape[2] * results.shape[3]
    down, across = pair(call.padding)
    known = windows if isinstance(windows, int) else None
    return _Convolution(call.x, call.weight, (down, across), known, computed_dtype(value.dtype))


def _convolve(graph: fx.Graph, node: fx.Node, conv: _Convolution, choice: TilingChoice) -> bool:
    name = choice(conv.windows, conv.channels, conv.columns, conv.dtype)
    if name is None:
        return False
    packed = add(graph, PACKED_TILES, conv.weight, False, name)
    replace_value(graph, node, _convolution(graph, conv.x, packed, args_of(node)[2], conv.columns, conv.padding, name))
    return True


def _differentiate(graph: fx.Graph, node: fx.Node, conv: _Convolution, choice: TilingChoice) -> bool:
    gradients, *_, wanted = args_of(node)
    of_image = _kernel_of_image(conv, choice) if wanted[0] else None
    of_weights = _kernel_of_weights(conv, choice) if wanted[1] else None
    if of_image is None and of_weights is None:
        return False
    made: dict[int, fx.Node] = {}
    by_pixel = to_channels_last(graph, gradients)
    if of_image is not None:
        packed = add(graph, PACKED_TILES, conv.weight, True, of_image)
        made[0] = _convolution(graph, by_pixel, packed, None, conv.channels, conv.turned_padding, of_image)
    if of_weights is not None:
        image = to_channels_last(graph, conv.x)
        made[1] = add(graph, WEIGHT_GRADIENT, image, by_pixel, list(conv.padding), of_weights)
    if wanted[2]:
        made[2] = add(graph, aten.sum.dim_IntList, gradients, [0, 2, 3])
    replace_gradients(graph, node, made)
    return True


def _kernel_of_image(conv: _Convolution, choice: TilingChoice) -> str | None:
    """Of the gradients of the image: as many windows as it has pixels."""
    if min(conv.turned_padding) < 0:
        return None
    pixels = fake(conv.x).shape[0] * fake(conv.x).shape[2] * fake(conv.x).shape[3]
    return choice(pixels if isinstance(pixels, int) else None, conv.columns, conv.channels, conv.dtype)


def _kernel_of_weights(conv: _Convolution, choice: TilingChoice) -> str | None:
    """Of the gradients of the weights: output channels come as channels do."""
    forward = choice(conv.windows, conv.channels, conv.columns, conv.dtype)
    turned = choice(conv.windows, conv.columns, conv.channels, conv.dtype)
    return forward if forward == turned else None


def _convolution(
    graph: fx.Graph,
    x: fx.Node,
    packed: fx.Node,
    bias: fx.Node | None,
    columns: int,
    padding: Sequence[int],
    name: str,
) -> fx.Node:
    windows = [3, 3], [1, 1], list(padding), [1, 1]
    return add(graph, PACKED_CONVOLUTION, to_channels_last(graph, x), packed, None, bias, columns, *windows, name)
