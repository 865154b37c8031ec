"""Matrix products with a second operand that is not static, and products of batches, by a kernel of our own.

mm(x, w)        ->  packed_linear(x, packed(permute(w))), or a sum over the depth (`by_loops.py`)
addmm(b, x, w)  ->  packed_linear(x, packed(permute(w)), None, b)
bmm(x, w)       ->  packed_bmm(x, packed(permute(w)), None), also with a static w
baddbmm(a, ...) ->  packed_bmm(x, packed(permute(w)), a, beta, alpha)

w is packed at each call, unless it is static: by ATen's operators, or where its sizes are symbols by `packed_operand`,
which counts panels and steps at run time. What follows becomes the epilogue of the kernel, and what gives w may be
fused with packing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.by_loops import multiply_by_loops
from inductor_cpu.graph.edit import add, args_of, aten, fake, is_call, is_number, product_operands, size_of
from inductor_cpu.graph.linear import PRODUCTS, known, product_shape, transposed, why_not_a_linear
from inductor_cpu.graph.products import MicroKernelChoice, pack, use_micro_kernel
from inductor_cpu.graph.weights import growth_reason, read_otherwise
from inductor_cpu.ir.micro_kernels import BY_LOOPS, MICRO_KERNELS
from inductor_cpu.ir.operators import PACKED_BMM

_BATCHES = (aten.bmm.default, aten.baddbmm.default)

#: (rows, inner size, columns, dtype, products of a batch, whether the second operand lies as (columns, inner), whether
#: the first one lies as (inner, rows)), sizes None when unknown -> the micro kernel that should pack the second operand
#: at each call and compute the product, `BY_LOOPS`, or None.
PerCallChoice = Callable[[int | None, int | None, int | None, torch.dtype, int | None, bool, bool], str | None]

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def pack_per_call(
    gm: fx.GraphModule,
    weights: frozenset[fx.Node],
    static: MicroKernelChoice,
    per_call: PerCallChoice,
    once: bool = False,
) -> int:
    """Replace products of batches, and others whose second operand is none of `weights`; returns how many. static,
    per_call: the micro kernel for operands that are packed once, and at each call. once: leave weights of batches alone
    that are read unpacked too."""
    count = 0
    for node in [node for node in gm.graph.nodes if node not in weights]:
        with gm.graph.inserting_before(node):
            if is_call(node, _BATCHES) and args_of(node)[-1] not in weights:
                count += _pack_batch(gm.graph, node, per_call)
            elif is_call(node, _BATCHES) and _may_keep(args_of(node)[-1], weights, once):
                count += _pack_batch(gm.graph, node, _of_linears(static, per_call))
            elif is_call(node, PRODUCTS) and product_operands(node)[2] not in weights:
                count += _pack(gm.graph, node, per_call)
    gm.graph.eliminate_dead_code()
    return count


def _of_linears(static: MicroKernelChoice, per_call: PerCallChoice) -> PerCallChoice:
    """The choice for a static operand: as for a linear, loops only where all products together are worth it."""

    def choose(*product: Any) -> str | None:
        rows, inner, columns, dtype, *_ = product
        own = static(rows, inner, columns, dtype, dtype)
        if own in MICRO_KERNELS:
            return own
        return BY_LOOPS if per_call(*product) == BY_LOOPS else None

    return choose


def _may_keep(weight: fx.Node, weights: frozenset[fx.Node], once: bool) -> bool:
    twice = once and read_otherwise(weight, weights, _BATCHES) is not None
    return not twice and growth_reason(weight) is None


def _pack(graph: fx.Graph, product: fx.Node, choice: PerCallChoice) -> bool:
    if why_not_a_linear(product) is not None or not _has_sizes(product_operands(product)[2]):
        return False
    bias, x, weight = product_operands(product)
    name = choice(*product_shape(product), 1, _lies_transposed(weight), _lies_transposed(x))
    if name is None:
        return False
    if name == BY_LOOPS:
        multiply_by_loops(graph, product)
        return True
    use_micro_kernel(graph, product, x, transposed(graph, weight), None, bias, name)
    return True


def _has_sizes(weight: fx.Node) -> bool:
    """Whether it is surely not empty: a size that depends on data may be 0, of which no kernel of products knows."""
    return all(statically_known_true(size > 0) for size in fake(weight).shape[-2:])


def _lies_transposed(matrix: fx.Node) -> bool:
    strides = fake(matrix).stride()[-2:]
    return statically_known_true(strides[0] == 1) and not statically_known_true(strides[1] == 1)


def _pack_batch(graph: fx.Graph, product: fx.Node, choice: PerCallChoice) -> bool:
    *added, x, weight = args_of(product)
    batch, rows, depth, columns = (known(size) for size in (*fake(x).shape[:2], *fake(weight).shape[1:]))
    dtype = fake(x).dtype
    if dtype not in _FLOATS or 0 in (batch, rows) or not _has_sizes(weight):
        return False
    beta, alpha = (product.kwargs.get(factor, 1) for factor in ("beta", "alpha"))
    if not is_number(beta) or not is_number(alpha):
        return False
    name = choice(rows, depth, columns, dtype, batch, _lies_transposed(weight), _lies_transposed(x))
    if name is None:
        return False
    if name == BY_LOOPS:
        multiply_by_loops(graph, product)
        return True
    packed = pack(graph, add(graph, aten.permute.default, weight, [0, 2, 1]), name)
    terms = (*added, beta, alpha) if added and beta != 0 else (None, 0, alpha)
    args = (x, packed, *terms, size_of(graph, weight, 2), name)
    product.replace_all_uses_with(add(graph, PACKED_BMM, *args, value=fake(product)))
    return True
