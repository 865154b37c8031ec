"""LSTM layers: oneDNN's layer gets static weights packed, and floats where this CPU has no such layer of bf16.

mkldnn_rnn_layer(x, w_ih, w_hh, ...)  ->  mkldnn_rnn_layer(x, *packed(w_ih, w_hh), ...)
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.convolution import Refusal, unsupported_dtype
from inductor_cpu.graph.edit import add, args_of, compute_fake, fake, is_call, typical_size

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn


def drop_empty_layers(gm: fx.GraphModule) -> None:
    """Replace the empty results of layers without a batch: oneDNN divides by its size."""
    for node in list(gm.graph.nodes):
        if not is_call(node, (aten.mkldnn_rnn_layer.default,)) or not is_empty(args_of(node)[0]):
            continue
        for part in list(node.users):
            value = fake(part)
            if isinstance(value, torch.Tensor):
                with gm.graph.inserting_before(part):
                    zeros = add(gm.graph, aten.new_zeros.default, args_of(node)[0], list(value.shape), value=value)
                part.replace_all_uses_with(zeros)
    gm.graph.eliminate_dead_code()


def widen_layers(gm: fx.GraphModule) -> None:
    """Let oneDNN compute layers in float32 whose dtype it does not have on this CPU: torch makes its layers of an LSTM
    of bf16 on any CPU."""
    for node in [node for node in gm.graph.nodes if is_call(node, (aten.mkldnn_rnn_layer.default,))]:
        narrow = [x for x in node.all_input_nodes if _is_narrow(fake(x))]
        for x in narrow:
            with gm.graph.inserting_before(node):
                node.replace_input_with(x, add(gm.graph, aten._to_copy.default, x, dtype=torch.float32))
        if narrow:
            for part in [part for part in node.users if _is_narrow(fake(part))]:
                _narrow_again(gm.graph, part)
            node.meta["val"] = compute_fake(node.target, node.args, node.kwargs)


def _narrow_again(graph: fx.Graph, part: fx.Node) -> None:
    """Let a result be float32, and cast it to the dtype that it had."""
    value = fake(part)
    part.meta["val"] = value.to(torch.float32)
    with graph.inserting_after(part):
        result = add(graph, aten._to_copy.default, part, dtype=value.dtype, value=value)
    part.replace_all_uses_with(result, lambda user: user is not result)


def _is_narrow(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.bfloat16, torch.float16):
        return False
    return unsupported_dtype(value.dtype, "recurrent layer") is not None


def is_empty(x: fx.Node) -> bool:
    """Whether a size of a tensor is known to be 0."""
    return any(isinstance(s, int) and s == 0 for s in fake(x).shape)


def pack_recurrent(gm: fx.GraphModule, weights: frozenset[fx.Node]) -> tuple[int, list[Refusal]]:
    """Give every layer packed weights; returns how many, and those left alone."""
    count = 0
    refused: list[Refusal] = []
    for node in list(gm.graph.nodes):
        if not is_call(node, (aten.mkldnn_rnn_layer.default,)):
            continue
        reason = refusal(node, weights)
        if reason is not None:
            refused.append(Refusal(node.name, reason))
            continue
        _pack(gm.graph, node)
        count += 1
    return count, refused


def refusal(layer: fx.Node, weights: frozenset[fx.Node]) -> str | None:
    """Why a layer's weights cannot be packed; None when they can."""
    x, by_input, by_state = args_of(layer)[:3]
    if by_input not in weights or by_state not in weights:
        return "its weights are not static"
    if not fake(x).dtype == fake(by_input).dtype == fake(by_state).dtype:
        return "input and weights have different dtypes"
    if fake(x).dtype == torch.float16:
        return "oneDNN's packed layer has no float16"
    return unsupported_dtype(fake(x).dtype, "recurrent layer")


def _pack(graph: fx.Graph, layer: fx.Node) -> None:
    x, by_input, by_state, _, _, _, _, reverse, _, _, hidden, _, has_biases, _, batch_first, _ = args_of(layer)
    old = [by_input, by_state]
    with graph.inserting_before(layer):
        packed = add(
            graph, mkldnn._reorder_mkldnn_rnn_layer_weight.default, *old, hidden, reverse, has_biases, batch_first,
            typical_size(fake(x)), value=[fake(weight) for weight in old],
        )  # fmt: skip
        new = [add(graph, operator.getitem, packed, k, value=fake(weight)) for k, weight in enumerate(old)]
    layer.args = (x, *new, *args_of(layer)[3:])
