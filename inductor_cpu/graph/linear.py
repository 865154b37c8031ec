"""Linear layers with static weights become oneDNN calls with packed weights; bias, activation and residual fused.

activation(view(addmm(b, x, permute(w))))  ->  view(_linear_pointwise(x, packed(w), b, activation))
mm(x, permute(w))                          ->  _linear_pointwise(x, packed(w))
addmm(b, x, w), mm(x, w)                   ->  the same with packed(permute(w))
mm(x, permute(cast(w)))                    ->  packed_linear(x, packed(w)) where w is int8
addmm(b, x, w) with few columns            ->  a sum over the depth (`by_loops.py`)
view(linear(x)) + other                    ->  view(_linear_pointwise.binary(x, view(other), packed(w), b, "add"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.by_loops import multiply_by_loops
from inductor_cpu.graph.convolution import Refusal, unsupported_dtype
from inductor_cpu.graph.edit import (
    RESHAPES,
    TRANSPOSES,
    add,
    args_of,
    bytes_of,
    fake,
    is_call,
    is_cast_of_bytes,
    only_user,
    order_of_dims,
    product_operands,
    to_contiguous,
    view_again,
)
from inductor_cpu.graph.post_ops import binary_post_op, fuse_binaries
from inductor_cpu.graph.products import MicroKernelChoice, use_micro_kernel
from inductor_cpu.graph.tail import find_tail, replace_tail
from inductor_cpu.graph.weights import growth_reason, read_otherwise
from inductor_cpu.ir.micro_kernels import BY_LOOPS, MICRO_KERNELS

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn

PRODUCTS = (aten.addmm.default, aten.mm.default)


#: (rows, inner size, columns, each None when unknown, dtype) -> why a linear should not be packed, None when it should.
WhyNotPack = Callable[[int | None, int | None, int | None, torch.dtype], str | None]


def pack_linears(
    gm: fx.GraphModule,
    weights: frozenset[fx.Node],
    why_not: WhyNotPack,
    micro_kernel: MicroKernelChoice,
    once: bool = False,
) -> tuple[int, list[Refusal]]:
    """Replace matrix products with a static second operand; returns how many, and those left alone. once: leave weights
    alone that are read unpacked too, which would be in memory twice."""
    count = 0
    refused: list[Refusal] = []
    products = [node for node in gm.graph.nodes if is_call(node, PRODUCTS) and node not in weights]
    kept = {node: read_otherwise(product_operands(node)[2], weights, PRODUCTS) if once else None for node in products}
    for node in products:
        reason = refusal(node, weights) or kept[node]
        own = _choose(node, micro_kernel) if reason is None else None
        if own is None:
            reason = reason or _why_not_onednn(node) or why_not(*product_shape(node))
        if reason is not None:
            refused.append(Refusal(node.name, reason))
            continue
        if own == BY_LOOPS:
            with gm.graph.inserting_before(node):
                multiply_by_loops(gm.graph, node, weight_is_static=True)
        elif own is not None:
            _use_micro_kernel(gm.graph, node, own)
        else:
            _pack(gm.graph, node)
        count += 1
    gm.graph.eliminate_dead_code()
    return count, refused


def refusal(product: fx.Node, weights: frozenset[fx.Node]) -> str | None:
    """Why the static weight of a matrix product cannot be packed; None when it can."""
    weight = product_operands(product)[2]
    if weight not in weights:
        return "its weight is not static"
    if any(not isinstance(size, int) for size in fake(weight).shape):
        return "its weight has a symbolic size"
    too_large = None if is_cast_of_bytes(weight) else growth_reason(weight)
    return why_not_a_linear(product) or too_large


def why_not_a_linear(product: fx.Node) -> str | None:
    """Why a matrix product is no linear layer of floats; None when it is one."""
    bias, x, weight = product_operands(product)
    value, kernel = fake(x), fake(weight)
    if product.kwargs:
        return "it scales its operands (beta, alpha)"
    if value.dtype != kernel.dtype or value.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"there is no linear for {value.dtype} and {kernel.dtype}"
    if any(isinstance(s, int) and s == 0 for s in (*kernel.shape, *value.shape)):
        return "its weight or its input is empty"
    if bias is not None and not _is_row(bias, kernel.shape[1], value.dtype):
        return "its bias is not one row of the weight's dtype"
    return None


def product_shape(product: fx.Node) -> tuple[int | None, int | None, int | None, torch.dtype]:
    """(rows, inner size, columns, each None when unknown, dtype)."""
    _, x, weight = product_operands(product)
    rows, inner, columns = (known(size) for size in (fake(x).shape[0], *fake(weight).shape))
    return rows, inner, columns, fake(x).dtype


def known(size: int | torch.SymInt) -> int | None:
    """A size, None for a symbol."""
    return size if isinstance(size, int) else None


def _choose(product: fx.Node, micro_kernel: MicroKernelChoice) -> str | None:
    """The micro kernel for a product, one that reads bytes if the weight is a cast of bytes, or `BY_LOOPS`."""
    shape = product_shape(product)
    if is_cast_of_bytes(product_operands(product)[2]) and (own := micro_kernel(*shape, torch.int8)) is not None:
        return own
    return micro_kernel(*shape, shape[-1]) if growth_reason(product_operands(product)[2]) is None else None


def _why_not_onednn(product: fx.Node) -> str | None:
    return unsupported_dtype(fake(product).dtype, "linear") or growth_reason(product_operands(product)[2])


def _use_micro_kernel(graph: fx.Graph, product: fx.Node, name: str) -> None:
    bias, x, weight = product_operands(product)
    with graph.inserting_before(product):
        if MICRO_KERNELS[name].weight == torch.int8:
            weight = bytes_of(graph, weight)
        use_micro_kernel(graph, product, x, transposed(graph, weight), None, bias, name)


def _is_row(bias: Any, columns: int | torch.SymInt, dtype: torch.dtype) -> bool:
    value = fake(bias)
    return value.dim() == 1 and statically_known_true(value.shape[0] == columns) and value.dtype == dtype


def _pack(graph: fx.Graph, product: fx.Node) -> None:
    bias, x, weight = product_operands(product)
    tail = find_tail(product)
    with graph.inserting_before(product):
        by_rows = transposed(graph, weight)
        # oneDNN's layout for an unknown number of rows serves all of them, so that all graphs share one copy.
        packed = add(graph, mkldnn._reorder_linear_weight.default, by_rows, None, value=fake(by_rows))
        row = to_contiguous(graph, bias)
        new = add(
            graph, mkldnn._linear_pointwise.default, x, packed, row, tail.post.name, list(tail.post.scalars),
            tail.post.algorithm, value=fake(product),
        )  # fmt: skip
    replace_tail(graph, tail, new)


def transposed(graph: fx.Graph, weight: fx.Node) -> fx.Node:
    """The weight as (out, in), taking back a transpose of the graph."""
    if is_call(weight, TRANSPOSES) and fake(args_of(weight)[0]).dim() == 2 and order_of_dims(weight) == [1, 0]:
        return args_of(weight)[0]
    return add(graph, aten.permute.default, weight, [1, 0])


# -- operations with another tensor ----------------------------------------------------------------------------------
def fuse_linear_binaries(gm: fx.GraphModule) -> int:
    """Let packed linears without a post-op take an operation with another tensor, also through views."""
    return fuse_binaries(gm, _fuse_binary)


def _fuse_binary(graph: fx.Graph, node: fx.Node, order: Mapping[fx.Node, int]) -> bool:
    name = binary_post_op(node)
    pairs = []
    for value, other in (args_of(node), args_of(node)[::-1])[: 1 if name == "sub" else 2]:
        path = _path_to_linear(value)
        if path is not None and isinstance(other, fx.Node) and other is not value:
            pairs.append((order.get(path[0], 0), path, other))
    for _, (linear, views, permutation), other in sorted(pairs, key=lambda pair: -pair[0]):
        shown = views[-1] if views else linear
        if not _same_type(other, shown) or fake(node).dtype != fake(linear).dtype:
            continue
        back = [permutation.index(d) for d in range(len(permutation))]
        if not fake(other).permute(back).is_contiguous():
            continue  # the other operand would have to be copied
        x, packed, bias = args_of(linear)[:3]
        with graph.inserting_before(node):
            if permutation != sorted(permutation):
                other = add(graph, aten.permute.default, other, back)
            rows = other
            if fake(other).dim() != 2 or views:
                rows = add(graph, aten.reshape.default, other, [-1, fake(linear).shape[1]])
            new = add(graph, mkldnn._linear_pointwise.binary, x, rows, packed, bias, name, value=fake(linear))
            for view in views:
                new = view_again(graph, view, new)
        node.replace_all_uses_with(new)
        return True
    return False


def _path_to_linear(node: Any) -> tuple[fx.Node, list[fx.Node], list[int]] | None:
    """(linear, views after it, permutation that they end with): reshapes that keep the columns, then transposes."""
    views: list[fx.Node] = []
    while is_call(node, RESHAPES + TRANSPOSES) and only_user(node) is not None:
        views.insert(0, node)
        node = args_of(node)[0]
    if not is_call(node, (mkldnn._linear_pointwise.default,)) or args_of(node)[3] != "none" or len(node.users) != 1:
        return None
    permutation = list(range(fake(node).dim()))
    for view in views:
        if view.target in RESHAPES:
            if permutation != sorted(permutation) or fake(view).dim() == 0:
                return None
            if fake(view).shape[-1] != fake(node).shape[1]:
                return None
            permutation = list(range(fake(view).dim()))
        else:
            permutation = [permutation[d] for d in order_of_dims(view)]
    return node, views, permutation


def _same_type(other: fx.Node, shown: fx.Node) -> bool:
    a, b = fake(other), fake(shown)
    return isinstance(a, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype
