"""Results that are views of inputs that the program updates.

AOTAutograd makes such a result anew: as a view of the input, with the strides and the storage offset of the tensor
that the graph returns for it. The graph returns a view of the input's new value, which lies in memory as it likes, and
of an input with gaps or an offset other numbers would be read. So the graph returns a view of the input itself.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.edit import add, args_of, aten, fake


@dataclass(frozen=True)
class Updates:
    """views: position among the graph's results -> the input that it is a view of; returned: input -> the result that
    is its new value, which AOTAutograd copies. Other updated inputs the graph updates itself."""

    views: Mapping[int, int] = field(default_factory=dict)
    returned: Mapping[int, int] = field(default_factory=dict)


#: Of a graph whose results are no such views.
NO_UPDATES = Updates()


def return_views_of_inputs(gm: fx.GraphModule, updates: Updates) -> int:
    """Replace views of new values of inputs by views of the inputs, after their update; returns how many they were."""
    if not updates.views:
        return 0
    end = gm.graph.output_node()
    (results,) = end.args
    assert isinstance(results, list | tuple)
    inputs = gm.graph.find_nodes(op="placeholder")
    new_values = _updated_in_graph(gm.graph) | {inputs[i]: (inputs[i], results[p]) for i, p in updates.returned.items()}
    returned = list(results)
    with gm.graph.inserting_before(end):
        for position, number in updates.views.items():
            if inputs[number] in new_values:
                updated, value = new_values[inputs[number]]
                returned[position] = _view_of(gm.graph, results[position], value, updated)
    end.args = (type(results)(returned),)
    return sum(one is not other for one, other in zip(results, returned, strict=True))


def _updated_in_graph(graph: fx.Graph) -> dict[fx.Node, tuple[fx.Node, Any]]:
    """Input -> (the copy that updates it, its new value)."""
    copies = graph.find_nodes(op="call_function", target=aten.copy_.default)
    return {copy.args[0]: (copy, copy.args[1]) for copy in copies if copy.args[0].op == "placeholder"}


def _view_of(graph: fx.Graph, result: Any, value: Any, updated: fx.Node) -> Any:
    """The views that make `result` of `value`, of `updated` instead; the result itself where they make a copy there, or
    where it is no view of `value`."""
    views, at = [], result
    while isinstance(at, fx.Node) and at is not value and at.op == "call_function" and at.all_input_nodes:
        views.append(at)
        at = args_of(at)[0]
    if at is not value or not views:
        return result
    node, added = updated, []
    for view in reversed(views):
        node = add(graph, view.target, node, *args_of(view)[1:], **view.kwargs)  # type: ignore[arg-type]
        added.append(node)
    if all(fake(one) is not None and _in_memory_of(updated, one) for one in added):
        return node
    for one in reversed(added):
        graph.erase_node(one)
    return result


def _in_memory_of(updated: fx.Node, view: fx.Node) -> bool:
    """Whether the fake value of a view, or of each of several parts, is in the memory of the input."""
    values = fake(view) if view.target is not operator.getitem else [fake(view)]
    parts = values if isinstance(values, list | tuple) else [values]
    memory, dtype = fake(updated).untyped_storage(), fake(updated).dtype
    return all(
        isinstance(part, torch.Tensor) and part.dtype == dtype and part.untyped_storage()._cdata == memory._cdata
        for part in parts
    )
