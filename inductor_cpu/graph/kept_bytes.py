"""Graphs of torch's quantization (PT2E): what only chooses or moves values between dequantize and quantize stays bytes.

quantize(dequantize(X))                ->  X
quantize(max_pool(dequantize(X)))      ->  max_pool(X)
quantize(relu(dequantize(X)))          ->  clamp_min(X, zero point)
quantize(cat(dequantize(X), ...))      ->  cat(X, ...)

where scales and zero points are equal: dequantize then keeps the order of numbers, and quantize gives each of them
back, as ((X - p) s) (1 / s) is less than a thousandth away from X - p. Limits of quantize that are narrower than the
type become a clamp.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.decomposed import PER_TENSOR, name_of
from inductor_cpu.graph.edit import (
    RESHAPES,
    TRANSPOSES,
    add,
    args_of,
    aten,
    copy_with_strides,
    fake,
    is_call,
    only_user,
    view_again,
)
from inductor_cpu.graph.weights import escapes

_MAX_POOL = aten.max_pool2d_with_indices.default
_VIEWS = (*RESHAPES, *TRANSPOSES, aten.squeeze.dim, aten.unsqueeze.default, aten.slice.Tensor)

#: Scales whose reciprocals are normal floats, too.
_LEAST_SCALE, _LARGEST_SCALE = 2.0**-100, 2.0**100


@dataclass(frozen=True)
class _Grid:
    """What the bytes of a type mean."""

    scale: float
    zero: int
    dtype: torch.dtype

    @property
    def limits(self) -> tuple[int, int]:
        info = torch.iinfo(self.dtype)
        return info.min, info.max


def keep_bytes(gm: fx.GraphModule) -> int:
    """Replace quantize operators of the forms above; returns how many."""
    count = 0
    for node in list(gm.graph.nodes):
        if name_of(node) != "quantize_per_tensor.default":
            continue
        x, scale, zero, low, high, dtype = args_of(node)
        grid = _grid(scale, zero, dtype)
        if grid is None or not _is_on(x, grid):
            continue
        with gm.graph.inserting_before(node):
            value = _bytes(gm.graph, x, grid)
            if low > grid.limits[0] or high < grid.limits[1]:
                value = add(gm.graph, aten.clamp.default, value, low, high)
            elif _is_view(x) and (escapes(node) or fake(value).stride() != fake(node).stride()):
                value = copy_with_strides(gm.graph, node, value, fake(node).stride())
        node.replace_all_uses_with(value)
        count += 1
    gm.graph.eliminate_dead_code()
    return count


def _grid(scale: Any, zero: Any, dtype: torch.dtype) -> _Grid | None:
    """None where scale or zero point are unknown or none of a byte."""
    if dtype not in (torch.int8, torch.uint8) or not isinstance(scale, float) or not isinstance(zero, int):
        return None
    grid = _Grid(scale, zero, dtype)
    return grid if _LEAST_SCALE < scale < _LARGEST_SCALE and grid.limits[0] <= zero <= grid.limits[1] else None


def _is_on(x: Any, grid: _Grid) -> bool:
    """Whether all values come from dequantize operators of this grid, chosen or moved only."""
    if name_of(x) in PER_TENSOR:
        value, scale, zero = args_of(x)[:3]
        return fake(x).dtype == torch.float32 and _grid(scale, zero, fake(value).dtype) == grid
    if not isinstance(x, fx.Node) or only_user(x) is None:
        return False
    if is_call(x, (aten.cat.default,)):
        return all(_is_on(part, grid) for part in args_of(x)[0])
    return (_is_pooled(x) or is_call(x, (aten.relu.default, *_VIEWS))) and _is_on(_source(x), grid)


def _is_view(x: Any) -> bool:
    """Whether the bytes of a value lie where those of its source do."""
    while is_call(x, _VIEWS):
        x = args_of(x)[0]
    return name_of(x) in PER_TENSOR


def _is_pooled(x: fx.Node) -> bool:
    """Whether a value is the maxima of a pooling without positions."""
    return is_call(x, (operator.getitem,)) and args_of(x)[1] == 0 and is_call(args_of(x)[0], (_MAX_POOL,))


def _source(x: fx.Node) -> Any:
    return args_of(args_of(x)[0])[0] if _is_pooled(x) else args_of(x)[0]


def _bytes(graph: fx.Graph, x: fx.Node, grid: _Grid) -> fx.Node:
    """The same choice or move of bytes."""
    if name_of(x) in PER_TENSOR:
        return args_of(x)[0]
    if x.target is aten.cat.default:
        parts, *dim = args_of(x)
        return add(graph, aten.cat.default, [_bytes(graph, part, grid) for part in parts], *dim)
    value = _bytes(graph, _source(x), grid)
    if x.target is aten.relu.default:
        return add(graph, aten.clamp_min.default, value, grid.zero)
    if not _is_pooled(x):
        return view_again(graph, x, value)
    pool = args_of(x)[0]
    both = add(graph, _MAX_POOL, value, *args_of(pool)[1:], **pool.kwargs)
    return add(graph, operator.getitem, both, 0, value=both.meta["val"][0])
