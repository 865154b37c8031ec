"""Convolutions, and their gradients, of types that oneDNN lacks on this CPU, in float32. ATen's own take ten times as
long and more: they copy windows, of each image and group of channels by itself.

convolution(x, w, b)           ->  narrow(convolution(wide(x), wide(w), wide(b)))
convolution_backward(e, x, w)  ->  narrow(convolution_backward(wide(e), wide(x), wide(w)))

Results are rounded once, as eager mode rounds its sums. Forward and backward graphs are widened by themselves: the
graph of both directions would keep images in float32 from one to the other.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.convolution import unsupported_dtype
from inductor_cpu.graph.convolution_calls import CONVOLUTION, ConvolutionCall, read_convolution, replace_value
from inductor_cpu.graph.edit import add, args_of, aten, fake

_LOW_PRECISION = (torch.bfloat16, torch.float16)


def computed_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a convolution of a dtype is computed here, unless a kernel of ours takes it as it is."""
    lacking = dtype in _LOW_PRECISION and unsupported_dtype(dtype, "convolution") is not None
    return torch.float32 if lacking else dtype


def widen_convolutions(gm: fx.GraphModule) -> int:
    """Replace convolutions and gradients of convolutions; returns how many."""
    wide, count = dict[fx.Node, fx.Node](), 0
    for node in list(gm.graph.nodes):
        call = read_convolution(node)
        if call is None or not _is_lacking(call):
            continue
        with gm.graph.inserting_before(node):
            _widen(gm.graph, node, wide)
        count += 1
    gm.graph.eliminate_dead_code()
    return count


def _is_lacking(call: ConvolutionCall) -> bool:
    dtype = fake(call.x).dtype
    return fake(call.weight).dtype == dtype != computed_dtype(dtype)


def _widen(graph: fx.Graph, node: fx.Node, wide: dict[fx.Node, fx.Node]) -> None:
    """wide: the casts there are."""
    target: Any = node.target
    tensors = [_cast(graph, tensor, wide) for tensor in args_of(node)[:3]]  # the bias may be None
    made = add(graph, target, *tensors, *args_of(node)[3:])
    if node.target is CONVOLUTION:
        _put(graph, node, made)
        return
    for user in list(node.users):
        part = args_of(user)[1]
        _put(graph, user, add(graph, operator.getitem, made, part, value=fake(made)[part]))


def _cast(graph: fx.Graph, tensor: Any, wide: dict[fx.Node, fx.Node]) -> Any:
    if isinstance(tensor, fx.Node) and tensor not in wide:
        wide[tensor] = add(graph, aten._to_copy.default, tensor, dtype=torch.float32)
    return wide.get(tensor)


def _put(graph: fx.Graph, node: fx.Node, made: fx.Node) -> None:
    """Round a result, in the place of another one."""
    replace_value(graph, node, add(graph, aten._to_copy.default, made, dtype=fake(node).dtype))
