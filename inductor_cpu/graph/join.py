"""Several linears on one input become one: query, key and value; gate and up.

mm(x, w1), mm(x, w2)  ->  y[:, :n1], y[:, n1:]  with y = mm(x, [w1 w2])

One call reads x once and costs one start: measured, one call is 1.1 to 1.7 times as fast up to 32 rows and equal from
128 rows on, until the joined weight no longer fits a part of the last-level cache. The decision does not depend on the
number of rows, so that all graphs of a model share one copy of the joined weight.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, fake, is_call, product_operands
from inductor_cpu.graph.linear import PRODUCTS, refusal, transposed
from inductor_cpu.graph.post_ops import NONE
from inductor_cpu.graph.tail import find_tail
from inductor_cpu.graph.weights import readers

aten = torch.ops.aten

#: Largest joined weight, in bytes.
MAX_BYTES = 12 << 20


def join_linears(
    gm: fx.GraphModule, weights: frozenset[fx.Node]
) -> tuple[list[tuple[fx.Node, torch.Tensor]], list[str]]:
    """Join every group that it pays for. Returns the slices of the results, whose strides are new, with the values that
    they stand for, and notes that say why or why not."""
    groups: dict[Any, list[fx.Node]] = defaultdict(list)
    for node in gm.graph.nodes:
        if is_call(node, PRODUCTS) and node not in weights and refusal(node, weights) is None:
            bias, x, weight = product_operands(node)
            groups[x, bias is None, fake(weight).shape[0]].append(node)
    slices: list[tuple[fx.Node, torch.Tensor]] = []
    notes: list[str] = []
    for group in groups.values():
        if len(group) < 2:
            continue
        names = ", ".join(node.name for node in group)
        reason = _why_not(group, weights)
        if reason is not None:
            notes.append(f"{names} stay apart: {reason}")
            continue
        slices.extend(_join(gm.graph, group))
        notes.append(f"{names} are one product: they read the same input")
    gm.graph.eliminate_dead_code()
    return slices, notes


def _why_not(group: list[fx.Node], weights: frozenset[fx.Node]) -> str | None:
    size = sum(_bytes(product_operands(node)[2]) for node in group)
    if size > MAX_BYTES:
        return f"the joined weight would have {size} bytes, more than {MAX_BYTES}"
    if all(find_tail(node).post is not NONE for node in group):
        return "each has an activation of its own to fuse"
    if any(len(readers(product_operands(node)[2], weights)) != 1 for node in group):
        return "a weight is also used elsewhere, and would be kept twice"
    if any(bias is not None and bias not in weights for bias, _, _ in map(product_operands, group)):
        return "a bias is not static"
    return None


def _bytes(weight: fx.Node) -> int:
    value = fake(weight)
    return int(value.numel()) * value.element_size()


def _join(graph: fx.Graph, group: list[fx.Node]) -> list[tuple[fx.Node, torch.Tensor]]:
    first = group[0]
    bias, x, _ = product_operands(first)
    slices: list[tuple[fx.Node, torch.Tensor]] = []
    with graph.inserting_before(first):
        by_rows = [transposed(graph, product_operands(node)[2]) for node in group]
        weight = add(graph, aten.permute.default, add(graph, aten.cat.default, by_rows), [1, 0])
        if bias is None:
            whole = add(graph, aten.mm.default, x, weight)
        else:
            biases = add(graph, aten.cat.default, [product_operands(node)[0] for node in group])
            whole = add(graph, aten.addmm.default, biases, x, weight)
        start = 0
        for node in group:
            end = start + int(fake(node).shape[1])
            slices.append((add(graph, aten.slice.Tensor, whole, 1, start, end), fake(node)))
            start = end
    for node, (part, _) in zip(group, slices, strict=True):
        node.replace_all_uses_with(part)
    return slices
