"""Transposed convolutions with static weights as convolutions with steps of one, of all phases of the result at once.

With a stride s, result q * s + r is the sum of w[r + s * j] * x[q - j] over j: those of a phase r in 0 .. s - 1 are the
convolution of x with every s-th weight, in reverse order. All phases have the same windows, so they are the channels of
one convolution, whose results are interleaved (a pixel shuffle):

convolution(x, w, b, stride=s, transposed=True)  ->  interleaved(convolution(x, phases(w), repeated(b)), s)[..., cut]

Weights that are missing, where s does not divide the size of the kernel, would be zeros to multiply by; that pays where
windows of 3 x 3 become tiles (Winograd's), else such a convolution stays as it is. Beside an infinite pixel these zeros
make NaN of results that eager mode computes without it. oneDNN's transposed convolutions of channels-last images take 1
to 11 times as long (AVX2, 2 cores, 29 November 2026).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.convolution import refusal
from inductor_cpu.graph.edit import add, args_of, aten, fake, is_call, only_user, size_of
from inductor_cpu.graph.per_call_convolution import TilingChoice
from inductor_cpu.ir.operators import SCALE_SHIFT

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
#: How many products of windows of 3 x 3 become one by tiles.
_SAVED_BY_TILES = 36 / 16


@dataclass(frozen=True)
class Phases:
    """Of one dimension: how many phases (the stride), how many weights a phase has, the padding of the convolution, and
    what is cut from its interleaved results on the left and on the right (in results)."""

    count: int
    weights: int
    padding: int
    left: int
    right: int


def phases_of(kernel: int, stride: int, padding: int, dilation: int, output_padding: int) -> Phases | None:
    """The phases of a dimension of a transposed convolution; None for a dilated one with a stride, whose phases see
    different windows."""
    if dilation > 1 and stride > 1:
        return None
    weights = -(-kernel // stride)
    reach = dilation * (weights - 1)
    # So many windows more than elements that the first and the last result that are asked for have theirs.
    before = reach - padding // stride
    after = -((padding + stride - 1 - dilation * (kernel - 1) - output_padding) // stride)
    added = max(0, before, after)
    left = padding - stride * (reach - added)
    # All interleaved results less those that are asked for: both grow by `stride` with each element.
    surplus = stride * (2 * added - reach + 1) - (dilation * (kernel - 1) + output_padding + 1 - 2 * padding)
    return Phases(stride, weights, added, left, surplus - left)


def convolve_by_phases(
    gm: fx.GraphModule, weights: frozenset[fx.Node], tiling: TilingChoice
) -> list[tuple[fx.Node, torch.Tensor]]:
    """Replace transposed convolutions. Returns the results, which lie channels-last, with the values that they stand
    for."""
    made: list[tuple[fx.Node, torch.Tensor]] = []
    for node in list(gm.graph.nodes):
        phases = _phases(node, weights, tiling)
        if phases is not None:
            made.append(_replace(gm.graph, node, phases))
    gm.graph.eliminate_dead_code()
    return made


def _phases(node: fx.Node, weights: frozenset[fx.Node], tiling: TilingChoice) -> list[Phases] | None:
    """Those of each dimension of a convolution; None where it is no transposed one, or stays one."""
    if not is_call(node, (aten.convolution.default,)) or not args_of(node)[6] or node in weights:
        return None
    _, weight, _, strides, paddings, dilations, _, output_paddings, _ = args_of(node)
    if refusal(node, weights) is not None or fake(weight).dtype not in _DTYPES:
        return None
    kernel = [int(size) for size in fake(weight).shape[2:]]
    each = [phases_of(*sizes) for sizes in zip(kernel, strides, paddings, dilations, output_paddings, strict=True)]
    known = [phases for phases in each if phases is not None]
    if len(known) < len(each):
        return None
    work: float = prod(phases.count * phases.weights for phases in known)
    if _become_tiles(node, known, tiling):
        work /= _SAVED_BY_TILES
    return known if work <= prod(kernel) else None


def _become_tiles(conv: fx.Node, phases: Sequence[Phases], tiling: TilingChoice) -> bool:
    """Whether the convolution of all phases would be products by tiles."""
    weight, dilation, groups = (args_of(conv)[k] for k in (1, 5, 8))
    if [phase.weights for phase in phases] != [3, 3] or any(step != 1 for step in dilation) or groups != 1:
        return False
    channels, columns = (int(size) for size in fake(weight).shape[:2])
    count = prod(phase.count for phase in phases)
    batch, _, *places = fake(conv).shape
    windows = batch * prod(places) // count  # but for what is cut
    known = windows if isinstance(windows, int) else None
    return tiling(known, channels, columns * count, fake(weight).dtype) is not None


def _replace(graph: fx.Graph, conv: fx.Node, phases: Sequence[Phases]) -> tuple[fx.Node, torch.Tensor]:
    """Put the convolution of all phases, interleaved, in the place of one, and of a scale_shift that only it has."""
    x, weight, bias, _, _, dilation, _, _, groups = args_of(conv)
    norm, ones = only_user(conv), [1] * len(phases)
    last = norm if norm is not None and is_call(norm, (SCALE_SHIFT,)) else conv
    before = fake(last)
    with graph.inserting_before(last):
        new = add(
            graph, aten.convolution.default, x, _weights_of_phases(graph, weight, phases, groups),
            _repeated(graph, bias, phases, groups), ones, [p.padding for p in phases], dilation, False,
            [0] * len(phases), groups,
        )  # fmt: skip
        if last is not conv:
            scale, shift = (_repeated(graph, vector, phases, groups) for vector in args_of(last)[1:])
            new = add(graph, SCALE_SHIFT, new, scale, shift)
        result = _cut(graph, _interleaved(graph, new, phases, groups), phases)
    last.replace_all_uses_with(result)
    return result, before


def _weights_of_phases(graph: fx.Graph, weight: fx.Node, phases: Sequence[Phases], groups: int) -> fx.Node:
    """(in, out / groups, *kernel) -> (groups * phases * out / groups, in / groups, *weights of a phase), each reversed,
    as a convolution goes over them."""
    channels, results, *kernel = (int(size) for size in fake(weight).shape)
    rank = len(phases)
    more = [phase.count * phase.weights - size for phase, size in zip(phases, kernel, strict=True)]
    if any(more):
        weight = add(graph, aten.constant_pad_nd.default, weight, [n for size in reversed(more) for n in (0, size)])
    sizes = [n for phase in phases for n in (phase.weights, phase.count)]
    split = add(graph, aten.reshape.default, weight, [groups, channels // groups, results, *sizes])
    by_weight, by_phase = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    turned = add(graph, aten.flip.default, split, list(by_weight))
    ordered = add(graph, aten.permute.default, turned, [0, *by_phase, 2, 1, *by_weight])
    return add(graph, aten.reshape.default, ordered, [-1, channels // groups, *(phase.weights for phase in phases)])


def _repeated(graph: fx.Graph, vector: Any, phases: Sequence[Phases], groups: int) -> Any:
    """One number per channel, for each phase of each group; None stays None."""
    if vector is None:
        return None
    count = prod(phase.count for phase in phases)
    split = add(graph, aten.reshape.default, vector, [groups, 1, -1])
    every = add(graph, aten.expand.default, split, [groups, count, -1])
    return add(graph, aten.reshape.default, every, [-1])


def _interleaved(graph: fx.Graph, image: fx.Node, phases: Sequence[Phases], groups: int) -> fx.Node:
    """(batch, groups * phases * channels, *places) -> (batch, *(places * phases), groups * channels)."""
    rank = len(phases)
    batch, *places = (size_of(graph, image, dim) for dim in (0, *range(2, 2 + rank)))
    counts = [phase.count for phase in phases]
    if prod(counts) == 1:
        return add(graph, aten.permute.default, image, [0, *range(2, 2 + rank), 1])
    channels = fake(image).shape[1] // (groups * prod(counts))
    split = add(graph, aten.reshape.default, image, [batch, groups, *counts, channels, *places])
    by_place = [dim for n in range(rank) for dim in (3 + rank + n, 2 + n)]
    ordered = add(graph, aten.permute.default, split, [0, *by_place, 1, 2 + rank])
    sizes = [_times(graph, place, count) for place, count in zip(places, counts, strict=True)]
    return add(graph, aten.reshape.default, ordered, [batch, *sizes, groups * channels])


def _times(graph: fx.Graph, size: int | fx.Node, count: int) -> int | fx.Node:
    if isinstance(size, int):
        return size * count
    return add(graph, operator.mul, size, count, value=fake(size) * count)


def _cut(graph: fx.Graph, image: fx.Node, phases: Sequence[Phases]) -> fx.Node:
    """The part of (batch, *places, channels) that is asked for, as (batch, channels, *places)."""
    rank = len(phases)
    for dim, phase in enumerate(phases, start=1):
        if phase.left or phase.right:
            image = add(graph, aten.slice.Tensor, image, dim, phase.left, -phase.right or torch.iinfo(torch.int64).max)
    return add(graph, aten.permute.default, image, [0, rank + 1, *range(1, rank + 1)])
