"""Joins that hold all parts of an earlier one read its result in their place.

Each layer of a dense block joins what all layers before it have made. Part by part that is a kernel for every part of
every join, some 400 of the 640 in densenet121. Nested, each join copies the one before as a whole, and its new part is
stored in place by the layer that computes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from torch import fx

from inductor_cpu.graph.edit import args_of, aten, fake, is_call
from inductor_cpu.graph.weights import mutated_inputs

Parts = tuple[fx.Node, ...]

#: A join of fewer parts may never be in memory: elementwise readers choose among its parts (`lower/concat.py`).
LEAST_PARTS = 5


def nest_joins(gm: fx.GraphModule) -> int:
    """Let joins read the longest earlier join of LEAST_PARTS or more whose parts they hold in one run; returns how many
    parts fewer are copied. Types stay: a join of narrower numbers could round them."""
    older = _dependents(gm, mutated_inputs(gm))  # a join may be older than a change of its parts
    parts_of: dict[fx.Node, Parts] = {}  # of each join before, as the program has them
    joins_of: defaultdict[fx.Node, dict[fx.Node, None]] = defaultdict(dict)
    spared = 0
    for node in gm.graph.nodes:
        parts = _parts(node)
        if parts is None or not older.isdisjoint(parts):
            continue
        candidates = {join: None for part in parts for join in joins_of[part] if _is_like(join, node)}
        inner, start = _longest(parts, {join: parts_of[join] for join in candidates})
        if inner is not None:
            end = start + len(parts_of[inner])
            node.args = ([*parts[:start], inner, *parts[end:]], *node.args[1:])
            spared += len(parts_of[inner]) - 1
        if len(parts) < LEAST_PARTS:
            continue
        parts_of[node] = parts
        for part in parts:
            joins_of[part][node] = None
    return spared


def _dependents(gm: fx.GraphModule, inputs: Iterable[fx.Node]) -> set[fx.Node]:
    """Inputs and all that is computed from them."""
    found = set(inputs)
    for node in gm.graph.nodes:
        if not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _parts(node: fx.Node) -> Parts | None:
    """The parts of a join, None for anything else. A part of shape (0,) goes with any shape, and is left alone."""
    if not is_call(node, (aten.cat.default,)):
        return None
    parts = tuple(args_of(node)[0])
    ndim = fake(node).ndim
    return parts if len(parts) > 1 and all(fake(part).ndim == ndim for part in parts) else None


def _is_like(one: fx.Node, other: fx.Node) -> bool:
    """Whether two joins are along the same dimension, of one type."""
    return _dim(one) == _dim(other) and fake(one).dtype == fake(other).dtype


def _dim(join: fx.Node) -> int:
    _, dim, *_ = (*args_of(join), join.kwargs.get("dim", 0))
    ndim: int = fake(join).ndim
    return int(dim) % ndim


def _longest(parts: Parts, joins: Mapping[fx.Node, Parts]) -> tuple[fx.Node | None, int]:
    """The join with most parts, fewer than all, that follow one another in `parts`, and the place of the first."""
    for join, inner in sorted(joins.items(), key=lambda item: len(item[1]), reverse=True):
        start = _find(parts, inner) if len(inner) < len(parts) else None
        if start is not None:
            return join, start
    return None, 0


def _find(parts: Parts, run: Parts) -> int | None:
    """Where a run of parts begins."""
    starts = range(len(parts) - len(run) + 1)
    return next((start for start in starts if parts[start : start + len(run)] == run), None)
