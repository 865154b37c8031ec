"""Splits off what a graph computes from its weights alone: it runs once, and again only when a weight changes.

After the passes have folded batch norms, cast weights and asked for packed layouts, every node that depends on static
inputs (parameters and buffers) only moves to a second graph, the recipe. The main graph gets its results as extra
inputs.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import RESHAPES, args_of
from inductor_cpu.ir.depthwise import PACKED_DEPTHWISE_CONVOLUTION
from inductor_cpu.ir.grouped import PACKED_GROUPED_CONVOLUTION
from inductor_cpu.ir.operators import (
    PACKED_BMM,
    PACKED_CONVOLUTION,
    PACKED_INT_CONVOLUTION,
    PACKED_INT_MM,
    PACKED_LINEAR,
)

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn

#: Views cost nothing: a view of a weight stays in the main graph.
VIEWS = {
    aten.permute.default,
    aten.t.default,
    aten.transpose.int,
    aten.view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.expand.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.alias.default,
    aten.detach.default,
}

#: Views of several parts, each taken by getitem.
_PARTS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.chunk.default}

#: Operators that give a weight in a layout of oneDNN's own, which no other operator reads -> the argument that steers
#: the layout and not what it means: equal recipes may differ in it.
_LAYOUT_HINTS: dict[Any, int] = {
    mkldnn._reorder_convolution_weight.default: 5,
    mkldnn._reorder_convolution_transpose_weight.default: 6,
    mkldnn._reorder_linear_weight.default: 1,
    mkldnn._reorder_mkldnn_rnn_layer_weight.default: 6,
}

#: Operators of ours whose second operand is a packed weight.
_PRODUCTS = {
    PACKED_BMM, PACKED_CONVOLUTION, PACKED_DEPTHWISE_CONVOLUTION, PACKED_GROUPED_CONVOLUTION, PACKED_INT_CONVOLUTION,
    PACKED_INT_MM, PACKED_LINEAR,
}  # fmt: skip

#: Operators that read rows of a table.
_LOOKUPS = {aten.embedding.default, aten.gather.default, aten.index.Tensor, aten.index_select.default}

#: Views that make a weight as long as an input.
_BY_SIZE = {aten.slice.Tensor, aten.expand.default}

#: A computed weight may be this many times larger than the weights it comes from; more would trade memory for little.
MAX_GROWTH = 2.0


@dataclass(frozen=True)
class Recipe:
    """How packed weights come from the weights.

    graph: takes the static inputs at `sources` (positions among the main graph's inputs), returns one tensor for each
    of the main graph's extra inputs, which follow its own inputs. uses: for each of them, the positions it depends on.
    texts: for each of them, its computation as text, so that equal recipes on equal weights share one copy."""

    graph: fx.GraphModule
    sources: tuple[int, ...]
    uses: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]


def _nothing() -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(())
    return fx.GraphModule({}, graph)


#: Of a graph without packed weights.
NO_RECIPE = Recipe(_nothing(), (), (), ())


def split_weights(gm: fx.GraphModule, static_inputs: Collection[int]) -> tuple[fx.GraphModule, Recipe | None]:
    """(main graph, recipe), the recipe None when nothing depends on weights alone. Changes `gm`."""
    weights = _weights(gm, static_inputs)
    frozen = dict.fromkeys(weights)
    grow(gm, frozen)
    roots = _roots([node for node in frozen if node not in weights])
    if not roots:
        return gm, None
    recipe = _recipe(gm, roots, weights)
    _replace(gm, [node for node in gm.graph.nodes if node.op == "placeholder"][-1], roots)
    return gm, recipe


def weight_only(gm: fx.GraphModule, static_inputs: Collection[int]) -> frozenset[fx.Node]:
    """The nodes that depend on static inputs only, those inputs included."""
    known = dict.fromkeys(_weights(gm, static_inputs))
    grow(gm, known)
    return frozenset(known)


def hoist_weights(gm: fx.GraphModule, static_inputs: Collection[int]) -> None:
    """Move what depends on weights alone before everything else, so that later passes may use it anywhere."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    frozen = weight_only(gm, static_inputs)
    last = placeholders[-1]
    for node in list(gm.graph.nodes):
        if node in frozen and node.op != "placeholder":
            last.append(node)
            last = node


def _weights(gm: fx.GraphModule, static_inputs: Collection[int]) -> dict[fx.Node, int]:
    """Static inputs that the graph does not write, with their positions."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    changed = mutated_inputs(gm)
    return {
        placeholders[p]: p
        for p in sorted(static_inputs)
        if placeholders[p] not in changed and isinstance(placeholders[p].meta.get("val"), torch.Tensor)
    }


def read_inputs(gm: fx.GraphModule, static_inputs: Collection[int]) -> tuple[int, ...]:
    """The positions of the static inputs that the graph itself reads."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return tuple(p for p in sorted(static_inputs) if placeholders[p].users)


def mutated_inputs(gm: fx.GraphModule) -> set[fx.Node]:
    """Inputs that the graph itself writes."""
    found: set[fx.Node] = set()
    for node in gm.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "call_function" and schema is not None and schema.is_mutable:
            found.update(n for n in node.all_input_nodes if n.op == "placeholder")
    return found


#: Namespaces whose operators give the same for the same arguments; those of a program may count, or draw numbers.
_PURE = ("aten", "prims", "mkldnn", "icpu", "quantized_decomposed")


def grow(gm: fx.GraphModule, known: dict[fx.Node, None]) -> None:
    """Add to `known`, in order, every node that depends on `known` nodes only."""
    for node in gm.graph.nodes:
        if node in known or node.op != "call_function" or not _is_tensors(node.meta.get("val")):
            continue
        if node.target is operator.getitem:
            if node.args[0] in known:
                known[node] = None
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags or node.target.namespace not in _PURE:
            continue
        inputs = node.all_input_nodes
        if inputs and all(n in known for n in inputs):
            known[node] = None


def _is_tensors(value: object) -> bool:
    """A tensor or several."""
    return isinstance(value, torch.Tensor) or (
        isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(v, torch.Tensor) for v in value)
    )


def _is_view(node: fx.Node) -> bool:
    """Whether a call only views its input, as one part or several."""
    parts = args_of(node)[0] if node.target is operator.getitem else node
    return node.target in VIEWS or (isinstance(parts, fx.Node) and parts.target in _PARTS)


def _roots(computed: Sequence[fx.Node]) -> list[fx.Node]:
    """Which of the computed weights are stored: those that the main graph uses. A value that may not be stored is
    computed by the main graph, which then uses what it is computed from."""
    moved, roots = set(computed), []
    for node in reversed(computed):
        users = [user for user in users_through_views(node) if user not in moved]
        if _is_view(node) or not users:
            continue
        if _may_be_stored(node, users):
            roots.append(node)
        else:
            moved.discard(node)
    return roots[::-1]


def _may_be_stored(node: fx.Node, users: Sequence[fx.Node]) -> bool:
    """Whether a computed weight that these nodes use may be a packed weight."""
    if not isinstance(node.meta["val"], torch.Tensor):
        return False
    if _is_packed(node) or any(user.target in _PRODUCTS and user.args[1] is node for user in users):
        return True  # padded to whole panels, a small weight may grow more than others may
    return not escapes(node) and growth(node) <= MAX_GROWTH and not _as_long_as_an_input(node)


def _as_long_as_an_input(node: fx.Node) -> bool:
    """Whether a value is as many rows of a table as an input has: position embeddings. Each size would keep a copy of
    its own, to save nothing: reading the copy costs what reading the table costs."""
    return node.target in _LOOKUPS and any(n.target in _BY_SIZE for n in _ancestors([node]))


def escapes(node: fx.Node) -> bool:
    """Whether a value or a view of it is a result of the graph, or is written: it must be new at each call."""
    return any(user.op == "output" or _is_mutable(user) or (_is_alias(user) and escapes(user)) for user in node.users)


def _is_alias(node: fx.Node) -> bool:
    """Whether a call may give its input's memory."""
    if node.target in VIEWS or node.target in RESHAPES or node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _is_packed(node: fx.Node) -> bool:
    """Whether a value is in a layout of oneDNN's own."""
    made = args_of(node)[0] if node.target is operator.getitem else node
    return made.target in _LAYOUT_HINTS


def _is_mutable(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return schema is None or schema.is_mutable


def users_through_views(node: fx.Node) -> list[fx.Node]:
    """The users of a value and of its views, without those views."""
    found: list[fx.Node] = []
    for user in node.users:
        found.extend(users_through_views(user) if user.op == "call_function" and _is_view(user) else (user,))
    return found


def growth(node: fx.Node) -> float:
    """Bytes of a computed weight over bytes of the weights that it comes from."""
    before = sum(_bytes(n) for n in sources(node))
    return _bytes(node) / before if before else float("inf")


def growth_reason(weight: fx.Node) -> str | None:
    """Why a computed weight is too large to keep; None when it is not."""
    ratio = growth(weight)
    return None if ratio <= MAX_GROWTH else f"its weight is {ratio:.1f} times as large as what it is computed from"


def sources(node: fx.Node) -> tuple[fx.Node, ...]:
    """The graph inputs that a value depends on, in order of appearance."""
    found: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if item.op == "placeholder":
            found[item] = None
        stack.extend(reversed(item.all_input_nodes))
    return tuple(found)


def readers(weight: fx.Node, weights: Collection[fx.Node]) -> set[fx.Node]:
    """What uses the graph inputs that a weight comes from, and what is computed from them; no weights themselves."""
    found: set[fx.Node] = set()
    stack = list(sources(weight))
    while stack:
        for user in stack.pop().users:
            if user in weights:
                stack.append(user)
            else:
                found.add(user)
    return found


def read_otherwise(weight: fx.Node, weights: Collection[fx.Node], products: Collection[Any]) -> str | None:
    """Why a weight that these operators read packed would be in memory twice; None when they alone read it."""
    others = [node for node in readers(weight, weights) if node.op != "call_function" or node.target not in products]
    return f"its weight is read unpacked by {others[0].name} too, and would be in memory twice" if others else None


def _bytes(node: fx.Node) -> int:
    fake = node.meta["val"]
    return int(fake.numel()) * fake.element_size()


def _recipe(gm: fx.GraphModule, roots: list[fx.Node], weights: dict[fx.Node, int]) -> Recipe:
    graph = fx.Graph()
    used = {s for root in roots for s in sources(root)}
    order = [node for node in weights if node in used]
    copies = {node: graph.placeholder(node.name) for node in order}
    for node in _needed(gm, roots):
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[root] for root in roots))
    return Recipe(
        graph=fx.GraphModule(gm, graph),
        sources=tuple(weights[node] for node in order),
        uses=tuple(tuple(sorted({weights[s] for s in sources(root)})) for root in roots),
        texts=tuple(_text(gm, root, weights) for root in roots),
    )


def _needed(gm: fx.GraphModule, roots: Sequence[fx.Node]) -> list[fx.Node]:
    """What the roots depend on, themselves included, in the graph's order."""
    found = _ancestors(roots)
    return [node for node in gm.graph.nodes if node in found]


def _ancestors(roots: Sequence[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def _text(gm: fx.GraphModule, root: fx.Node, weights: dict[fx.Node, int]) -> str:
    """A weight's computation, one line for each node; weights are numbered by their order among the graph's inputs."""
    inputs = sorted(sources(root), key=weights.__getitem__)
    names = {node: f"w{k}" for k, node in enumerate(inputs)}
    lines: list[str] = []
    for node in _needed(gm, [root]):
        if node not in names:
            names[node] = f"v{len(lines)}"
            hint = _LAYOUT_HINTS.get(node.target)
            args = tuple(None if k == hint else a for k, a in enumerate(args_of(node)))
            named = fx.map_arg((args, dict(node.kwargs)), lambda n: _Name(names[n]))
            lines.append(f"{names[node]} = {node.target}{named}")
    return "\n".join(lines)


class _Name(str):
    """A text that prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _replace(gm: fx.GraphModule, last_input: fx.Node, roots: list[fx.Node]) -> None:
    """Computed weights become inputs after the graph's own."""
    previous = last_input
    for number, root in enumerate(roots):
        with gm.graph.inserting_after(previous):
            packed = gm.graph.placeholder(f"packed_{number}")
        packed.meta["val"] = root.meta["val"]
        root.replace_all_uses_with(packed)
        previous = packed
    gm.graph.eliminate_dead_code()
    gm.recompile()
