"""Results that share memory go on sharing it when a pass has changed how that memory is laid out.

Each result has strides that the caller was promised. Copying every one into its own would give right values, and lose
that a change of one shows in the other; so the memory that they share is copied, and they are its views again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import args_of, copy_with_strides, fake, hints, view_again


@dataclass(frozen=True)
class SharedResults:
    """Results that are views of one value of the graph. members: position of each result, and how many views lie
    between it and the value. strides: those of the value before the passes."""

    members: tuple[tuple[int, int], ...]
    strides: tuple[Any, ...]


def find_shared_results(gm: fx.GraphModule) -> list[SharedResults]:
    """The groups of two or more results that share memory which the graph makes."""
    groups: dict[fx.Node, list[tuple[int, int]]] = {}
    for position, result in enumerate(_results(gm)):
        if isinstance(result, fx.Node) and isinstance(fake(result), torch.Tensor):
            base, steps = _base(result)
            groups.setdefault(base, []).append((position, steps))
    return [
        SharedResults(tuple(members), tuple(fake(base).stride()))
        for base, members in groups.items()
        if base.op == "call_function" and len(members) > 1
    ]


def keep_shared_results(gm: fx.GraphModule, groups: Sequence[SharedResults], promised: Sequence[Any]) -> None:
    """Make the results of each group views of one copy, if any of them no longer has its promised strides."""
    end, results = gm.graph.output_node(), list(_results(gm))
    for group in groups:
        if all(hints(fake(results[k]).stride()) == hints(promised[k]) for k, _ in group.members):
            continue
        made: dict[fx.Node, fx.Node] = {}
        for position, steps in group.members:
            chain = [results[position]]
            for _ in range(steps):
                chain.append(_viewed(chain[-1]))
            *views, base = chain
            if base not in made:
                made[base] = copy_with_strides(gm.graph, end, base, group.strides)
            with gm.graph.inserting_before(end):
                results[position] = _view_again(gm.graph, views, made, made[base])
    end.args = (results,)


def _view_again(graph: fx.Graph, views: Sequence[fx.Node], made: dict[fx.Node, fx.Node], value: fx.Node) -> fx.Node:
    """The views, innermost last, of another value. made: those that are there already."""
    for view in reversed(views):
        if view not in made:
            made[view] = view_again(graph, view, value)
        value = made[view]
    return value


def _results(gm: fx.GraphModule) -> Sequence[Any]:
    (results,) = gm.graph.output_node().args
    assert isinstance(results, list | tuple)
    return results


def _base(result: fx.Node) -> tuple[fx.Node, int]:
    """The first value that has the memory of `result`, and the number of views between."""
    node, steps = result, 0
    while (source := _viewed(node)) is not node and _memory(source) == _memory(result):
        node, steps = source, steps + 1
    return node, steps


def _viewed(node: fx.Node) -> fx.Node:
    """The node that a view is taken of; the node itself if it takes none."""
    source = args_of(node)[0] if node.op == "call_function" and node.args else None
    return source if isinstance(source, fx.Node) else node


def _memory(node: fx.Node) -> int | None:
    """What tells the memory of a value, or of the parts of one, from other memory."""
    values = [v for v in torch.utils._pytree.tree_leaves(fake(node)) if isinstance(v, torch.Tensor)]
    memories = {v.untyped_storage()._cdata for v in values}
    return memories.pop() if len(memories) == 1 else None
