"""Equal views become one node, and copies and singular or eigenvectors that nothing needs go.

Later passes then see that two linears read the same input, and that an activation follows its layer (dropout leaves a
copy behind in inference).
"""

from __future__ import annotations

from typing import Any

from torch import fx

from inductor_cpu.graph.edit import RESHAPES, TRANSPOSES, args_of, aten, compute_fake, fake, is_call
from inductor_cpu.graph.weights import escapes, mutated_inputs, sources

_SHARED = (*RESHAPES, *TRANSPOSES, aten._to_copy.default)
#: Operator -> (its result that needs no vectors, what asks for vectors: an argument's place and name).
_VALUES_OF: dict[Any, tuple[int, int, str]] = {
    aten._linalg_svd.default: (1, 2, "compute_uv"),
    aten._linalg_eigh.default: (0, 2, "compute_v"),
}


def share_views(gm: fx.GraphModule) -> int:
    """Make equal views and casts of one value one node; returns how many were dropped."""
    seen: dict[Any, fx.Node] = {}
    count = 0
    for node in list(gm.graph.nodes):
        if not is_call(node, _SHARED) or escapes(node):
            continue  # results of a graph stay tensors of their own
        key = (node.target, repr(node.args), repr(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            gm.graph.erase_node(node)
            count += 1
    return count


def drop_copies(gm: fx.GraphModule) -> int:
    """Let the readers of a copy with the layout of its source read the source; returns how many copies went."""
    changed = mutated_inputs(gm)
    count = 0
    for node in list(gm.graph.nodes):
        if not is_call(node, (aten.clone.default,)):
            continue
        source = node.args[0]
        if not isinstance(source, fx.Node) or fake(source).stride() != fake(node).stride():
            continue
        if escapes(node) and not _is_own_copy(source):
            continue
        if changed.intersection(sources(source)):
            continue  # the copy may be older than the change
        node.replace_all_uses_with(source)
        gm.graph.erase_node(node)
        count += 1
    return count


def _is_own_copy(node: fx.Node) -> bool:
    """Whether a value is a copy, perhaps seen in another shape, that nobody else reads: it may be a result itself."""
    while is_call(node, RESHAPES) and len(node.users) == 1:
        node = node.all_input_nodes[0]
    return is_call(node, (aten.clone.default,)) and len(node.users) == 1


def drop_unread_vectors(gm: fx.GraphModule) -> int:
    """Let LAPACK compute singular values and eigenvalues alone where nobody reads the vectors, as eager mode does:
    torch traces them with vectors, which take two to four times as long. Returns how many calls were changed."""
    count = 0
    for node in gm.graph.nodes:
        if not is_call(node, _VALUES_OF):
            continue
        part, place, name = _VALUES_OF[node.target]
        arguments = {**dict(enumerate(args_of(node))), **node.kwargs}
        asked = arguments.get(place, arguments.get(name, True))
        if not asked or any(args_of(user)[1] != part for user in node.users):
            continue
        rest = {key: value for key, value in node.kwargs.items() if key != name}
        node.args, node.kwargs = node.args[:place], {**rest, name: False}
        node.meta["val"] = compute_fake(node.target, node.args, node.kwargs)
        count += 1
    return count
