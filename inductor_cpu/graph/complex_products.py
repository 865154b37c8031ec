"""Products of complex numbers that begin and end as pairs of floats, as pairs of floats.

view_as_real(view_as_complex(x) * c)  ->  stack([xr * cr - xi * ci, xr * ci + xi * cr], -1)

So spell the rotary embeddings of Llama and others that take their angles from a table of complex numbers: what was four
calls of ATen is a part of the loop around it. Of a table the pairs are seen once, before its views.
"""

from __future__ import annotations

import torch
from torch import fx

from inductor_cpu.graph.edit import RESHAPES, add, args_of, aten, fake, is_call, only_user, view_again

#: Views whose second argument is a dimension.
_OF_A_DIMENSION = (aten.slice.Tensor, aten.select.int, aten.unsqueeze.default)


def multiply_pairs(gm: fx.GraphModule) -> int:
    """Put floats in the place of complex products of which only the parts are read; returns how many."""
    count = 0
    seen: dict[fx.Node, fx.Node] = {}
    for node in list(gm.graph.nodes):
        if not is_call(node, (aten.mul.Tensor,)) or not _is_product_of_pairs(node):
            continue
        with gm.graph.inserting_before(node):
            parts = _multiply(gm.graph, *(_pairs(gm.graph, operand, seen) for operand in args_of(node)))
        for reader in list(node.users):
            _replace(gm.graph, reader, parts)
        count += 1
    if count:
        gm.graph.eliminate_dead_code()
    return count


def _is_product_of_pairs(product: fx.Node) -> bool:
    """Whether a product is complex, nobody reads it but as pairs, and one operand at least is made of pairs."""
    operands = args_of(product)
    if not all(isinstance(operand, fx.Node) and _has_pairs(operand) for operand in operands):
        return False
    read = bool(product.users) and all(is_call(user, (aten.view_as_real.default,)) for user in product.users)
    return read and any(is_call(operand, (aten.view_as_complex.default,)) for operand in operands)


def _has_pairs(operand: fx.Node) -> bool:
    """Whether an operand is a tensor of pairs of float32 that may be seen as such: a conjugate is computed when it is
    read."""
    value = fake(operand)
    return isinstance(value, torch.Tensor) and value.dtype == torch.complex64 and not value.is_conj()


def _pairs(graph: fx.Graph, operand: fx.Node, seen: dict[fx.Node, fx.Node]) -> fx.Node:
    """A complex tensor with its parts along a last dimension. seen: those that the graph has already."""
    if operand not in seen:
        seen[operand] = _new_pairs(graph, operand, seen)
    return seen[operand]


def _new_pairs(graph: fx.Graph, operand: fx.Node, seen: dict[fx.Node, fx.Node]) -> fx.Node:
    if is_call(operand, (aten.view_as_complex.default,)):
        return args_of(operand)[0]
    if is_call(operand, RESHAPES) and _has_pairs(args_of(operand)[0]):
        source, sizes = args_of(operand)
        return add(graph, aten.reshape.default, _pairs(graph, source, seen), [*sizes, 2])
    for view in _OF_A_DIMENSION:
        if is_call(operand, (view,)) and _has_pairs(args_of(operand)[0]):
            source, dim, *others = args_of(operand)
            return add(graph, view, _pairs(graph, source, seen), dim if dim >= 0 else dim - 1, *others)
    return add(graph, aten.view_as_real.default, operand)


def _multiply(graph: fx.Graph, x: fx.Node, y: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The parts of the product of two tensors of pairs."""
    (xr, xi), (yr, yi) = ([add(graph, aten.select.int, pairs, -1, part) for part in (0, 1)] for pairs in (x, y))
    real = add(graph, aten.sub.Tensor, _times(graph, xr, yr), _times(graph, xi, yi))
    return real, add(graph, aten.add.Tensor, _times(graph, xr, yi), _times(graph, xi, yr))


def _times(graph: fx.Graph, x: fx.Node, y: fx.Node) -> fx.Node:
    return add(graph, aten.mul.Tensor, x, y)


def _replace(graph: fx.Graph, reader: fx.Node, parts: tuple[fx.Node, fx.Node]) -> None:
    """Put the parts side by side in the place of a view_as_real. Where only their cast is used, the parts are cast: two
    values that end side by side are stored at once."""
    views, last = [], reader
    while (user := only_user(last)) is not None and is_call(user, RESHAPES):
        views.append(user)
        last = user
    cast = user if user is not None and _is_cast_of_floats(user) else None
    with graph.inserting_before(cast or reader):
        if cast is None:
            new = _side_by_side(graph, parts)
            new.meta["val"] = fake(reader)  # with the strides of the complex product
            reader.replace_all_uses_with(new)
            return
        real, imaginary = (add(graph, aten._to_copy.default, part, dtype=fake(cast).dtype) for part in parts)
        new = _side_by_side(graph, (real, imaginary))
        for view in views:
            new = view_again(graph, view, new)
        new.meta["val"] = fake(cast)
    cast.replace_all_uses_with(new)


def _is_cast_of_floats(node: fx.Node) -> bool:
    keeps_order = is_call(node, (aten._to_copy.default,)) and "memory_format" not in node.kwargs
    return keeps_order and fake(node).dtype.is_floating_point


def _side_by_side(graph: fx.Graph, parts: tuple[fx.Node, fx.Node]) -> fx.Node:
    return add(graph, aten.cat.default, [add(graph, aten.unsqueeze.default, part, -1) for part in parts], -1)
