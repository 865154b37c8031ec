"""Products with static weights of 8-bit integers become operators that kernels of our own compute.

_int_mm(x, permute(w))           ->  packed_int_mm(x, packed(w)), exactly
_weight_int8pack_mm(x, w, s)     ->  packed_linear(x, packed(w), s)

Scales, bias and activation that follow stay as they are: the scheduler makes them the epilogue of the kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.convolution import Refusal
from inductor_cpu.graph.edit import add, args_of, aten, fake, is_call
from inductor_cpu.graph.linear import transposed
from inductor_cpu.graph.products import MicroKernelChoice, pack, use_micro_kernel
from inductor_cpu.graph.weights import growth_reason, read_otherwise
from inductor_cpu.ir.operators import PACKED_INT_MM

_PRODUCTS = (aten._int_mm.default, aten._weight_int8pack_mm.default)


def pack_int_products(
    gm: fx.GraphModule, weights: frozenset[fx.Node], micro_kernel: MicroKernelChoice, once: bool = False
) -> tuple[int, list[Refusal]]:
    """Replace products with a static second operand of int8; returns how many, and those left alone. once: leave
    weights alone that are read unpacked too, which would be in memory twice."""
    count = 0
    refused: list[Refusal] = []
    for node in [node for node in gm.graph.nodes if is_call(node, _PRODUCTS) and node not in weights]:
        x, weight = args_of(node)[:2]
        reason = _refusal(x, weight, weights) or (read_otherwise(weight, weights, _PRODUCTS) if once else None)
        name = None if reason is not None else choose(micro_kernel, x, fake(node).shape[1])
        if name is None:
            refused.append(Refusal(node.name, reason or NO_KERNEL))
            continue
        with gm.graph.inserting_before(node):
            if node.target is aten._weight_int8pack_mm.default:
                use_micro_kernel(gm.graph, node, x, weight, args_of(node)[2], None, name)
            else:
                weight = transposed(gm.graph, weight)
                node.replace_all_uses_with(int_product(gm.graph, x, weight, name))
        count += 1
    gm.graph.eliminate_dead_code()
    return count, refused


NO_KERNEL = "no kernel of ours multiplies these sizes here"


def choose(micro_kernel: MicroKernelChoice, x: fx.Node, columns: int) -> str | None:
    """The micro kernel for (rows, depth) times int8."""
    rows, depth = fake(x).shape
    return micro_kernel(rows if isinstance(rows, int) else None, depth, columns, fake(x).dtype, torch.int8)


def int_product(graph: fx.Graph, x: Any, weight: fx.Node, name: str) -> fx.Node:
    """x (rows, depth) times a weight (columns, depth): (rows, columns) of int32."""
    return add(graph, PACKED_INT_MM, x, pack(graph, weight, name), int(fake(weight).shape[0]), name)


def _refusal(x: fx.Node, weight: fx.Node, weights: frozenset[fx.Node]) -> str | None:
    if weight not in weights:
        return "its weight is not static"
    if fake(weight).dtype != torch.int8:
        return f"its weight is {fake(weight).dtype}"
    if any(not isinstance(s, int) or s == 0 for s in fake(weight).shape):
        return "its weight has a symbolic or empty size"
    if any(isinstance(s, int) and s == 0 for s in fake(x).shape):
        return "its input is empty"
    return growth_reason(weight)
