"""Products of 8-bit integers with static weights become operators that kernels of our own compute, exactly.

_int_mm(x, permute(w))  ->  packed_int_mm(x, packed(w))

Scales, bias and activation that follow stay as they are: the scheduler makes them the epilogue of the kernel.
"""

from __future__ import annotations

import torch
from torch import fx

from inductor_cpu.graph.convolution import Refusal
from inductor_cpu.graph.edit import add, args_of, aten, fake, is_call
from inductor_cpu.graph.linear import transposed
from inductor_cpu.graph.products import MicroKernelChoice, pack
from inductor_cpu.graph.weights import growth_reason, readers
from inductor_cpu.ir.operators import PACKED_INT_MM


def pack_int_products(
    gm: fx.GraphModule, weights: frozenset[fx.Node], micro_kernel: MicroKernelChoice, once: bool = False
) -> tuple[int, list[Refusal]]:
    """Replace integer products with a static second operand; returns how many, and those left alone. once: leave
    weights alone that are read unpacked too, which would be in memory twice."""
    count = 0
    refused: list[Refusal] = []
    for node in gm.graph.find_nodes(op="call_function", target=aten._int_mm.default):
        x, weight = args_of(node)[:2]
        reason = _refusal(x, weight, weights) or (_read_otherwise(weight, weights) if once else None)
        name = None
        if reason is None:
            rows, (inner, columns) = fake(x).shape[0], fake(weight).shape
            name = micro_kernel(rows if isinstance(rows, int) else None, inner, columns, fake(x).dtype, torch.int8)
            reason = None if name is not None else "no kernel of ours multiplies these sizes here"
        if name is None or reason is not None:
            refused.append(Refusal(node.name, str(reason)))
            continue
        with gm.graph.inserting_before(node):
            packed = pack(gm.graph, transposed(gm.graph, weight), name)
            new = add(gm.graph, PACKED_INT_MM, x, packed, int(columns), name, value=fake(node))
        node.replace_all_uses_with(new)
        count += 1
    gm.graph.eliminate_dead_code()
    return count, refused


def _read_otherwise(weight: fx.Node, weights: frozenset[fx.Node]) -> str | None:
    others = [node for node in readers(weight, weights) if not is_call(node, (aten._int_mm.default,))]
    return f"its weight is read unpacked by {others[0].name} too, and would be in memory twice" if others else None


def _refusal(x: fx.Node, weight: fx.Node, weights: frozenset[fx.Node]) -> str | None:
    if weight not in weights:
        return "its weight is not static"
    if any(not isinstance(s, int) or s == 0 for s in fake(weight).shape):
        return "its weight has a symbolic or empty size"
    if any(isinstance(s, int) and s == 0 for s in fake(x).shape):
        return "its input is empty"
    return growth_reason(weight)
