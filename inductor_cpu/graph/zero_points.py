"""Zero points of quantized weights that are 0, as in nearly every model, in Dynamo's graph.

dequantize_per_channel(w, s, z, ...)  ->  dequantize_per_channel(symmetric(w, z), s, None, ...)

Only here do tensors have values; later passes see what depends on weights, but not how large it is. Products of
integers by such weights need no sums of their other operand. `symmetric` is part of the recipe that packs the weight:
it looks again whenever the zero points have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from inductor_cpu.graph.edit import args_of
from inductor_cpu.ir.operators import SYMMETRIC

#: As a program calls it, and as exported programs do.
_DEQUANTIZE = (
    "quantized_decomposed.dequantize_per_channel",
    "quantized_decomposed.dequantize_per_channel.default",
)


def drop_zero_points(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Take the zero points from weights whose zero points are buffers of zeros; returns how many."""
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    values = dict(zip(inputs, example_inputs, strict=True))
    count = 0
    for node in gm.graph.nodes:
        if str(node.target) not in _DEQUANTIZE or len(node.args) < 3:
            continue
        weight, _, points, *_ = args_of(node)
        if not _is_static(weight) or not _is_static(points) or not _is_zero(values[points]):
            continue
        with gm.graph.inserting_before(node):
            checked = gm.graph.call_function(SYMMETRIC, (weight, points))
        checked.meta.update({key: weight.meta[key] for key in ("example_value",) if key in weight.meta})
        node.update_arg(0, checked)
        node.update_arg(2, None)
        count += 1
    if count:
        gm.recompile()
    return count


def _is_static(node: Any) -> bool:
    """Whether an input is a parameter or buffer, which is the same at each call or packed again."""
    if not isinstance(node, fx.Node) or node.op != "placeholder":
        return False
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def _is_zero(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not bool(value.any())
