"""Making a failing graph small: smaller graphs are tried until none fails the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.graph import Graph, Input, used_names
from tests.fuzz.replay import Invalid, replay
from tests.fuzz.rows import ROWS

Fails = Callable[[Graph], bool]


def shrink(graph: Graph, fails: Fails, seconds: float = 240.0, tries: int = 250) -> Graph:
    """The smallest graph found for which `fails` is true, within a time and a number of tries.

    `fails(graph)` must be true for the given graph. Graphs that eager mode cannot run are not tried.
    """
    end = time.monotonic() + seconds
    left = tries
    seen = {graph}
    changed = True
    while changed:
        changed = False
        for candidate in candidates(graph):
            if candidate in seen:
                continue
            seen.add(candidate)
            if not is_valid(candidate):
                continue
            if left == 0 or time.monotonic() > end:
                return graph
            left -= 1
            if fails(candidate):
                graph, changed = candidate, True
                break
    return graph


def is_valid(graph: Graph) -> bool:
    """Whether the graph replays in eager mode."""
    try:
        replay(graph)
    except Invalid:
        return False
    return True


def candidates(graph: Graph) -> Iterator[Graph]:
    """Simpler graphs, those that remove most first."""
    yield from _fewer_outputs(graph)
    yield from _earlier_ends(graph)
    yield from _fewer_steps(graph)
    yield from _simpler_calls(graph)
    yield from _simpler_inputs(graph)
    yield from _smaller_sizes(graph)


def tidy(graph: Graph) -> Graph:
    """Without steps whose result nobody reads (but those in place, whose effect may be read) and unread inputs."""
    steps = list(graph.steps)
    while True:
        used = {name for step in steps for name in step.args} | set(graph.outputs)
        kept = [s for s in steps if s.name in used or ROWS[s.op].kind == "inplace"]
        if len(kept) == len(steps):
            break
        steps = kept
    small = replace(graph, steps=tuple(steps))
    used = used_names(small)
    return replace(small, inputs=tuple(x for x in graph.inputs if x.name in used))


def _fewer_outputs(graph: Graph) -> Iterator[Graph]:
    if len(graph.outputs) > 1:
        for name in dict.fromkeys(graph.outputs):
            yield tidy(replace(graph, outputs=(name,)))
        for k in range(len(graph.outputs)):
            yield tidy(replace(graph, outputs=(*graph.outputs[:k], *graph.outputs[k + 1 :])))


def _earlier_ends(graph: Graph) -> Iterator[Graph]:
    """The graph cut off after a step."""
    count = len(graph.steps)
    for k in sorted({count // 2, count - 1, count - 2, count * 3 // 4}):
        if 0 < k < count:
            steps = graph.steps[:k]
            known = {x.name for x in graph.inputs} | {s.name for s in steps}
            outputs = tuple(dict.fromkeys([*(o for o in graph.outputs if o in known), steps[-1].name]))
            yield tidy(replace(graph, steps=steps, outputs=outputs))


def _fewer_steps(graph: Graph) -> Iterator[Graph]:
    """A step left out: its result is one of its arguments, or a new input."""
    shapes = _shapes(graph)
    for position in range(len(graph.steps) - 1, -1, -1):
        step = graph.steps[position]
        first, second, dtype, exact = shapes[step.name]
        for arg in dict.fromkeys(step.args):
            yield _without(graph, position, arg)
        fresh = Input(f"x{_free(graph)}", first, second, dtype, fill="integers" if exact else "normal", seed=position)
        if not exact and any(x.grad for x in graph.inputs):
            yield _without(graph, position, fresh.name, replace(fresh, grad=True))
        yield _without(graph, position, fresh.name, fresh)


def _free(graph: Graph) -> int:
    return 1 + max((int(x.name[1:]) for x in graph.inputs), default=0)


def _without(graph: Graph, position: int, name: str, fresh: Input | None = None) -> Graph:
    gone = graph.steps[position].name
    rest = [*graph.steps[:position], *graph.steps[position + 1 :]]
    steps = [replace(s, args=tuple(name if a == gone else a for a in s.args)) for s in rest]
    outputs = tuple(dict.fromkeys(name if o == gone else o for o in graph.outputs))
    inputs = graph.inputs if fresh is None else (*graph.inputs, fresh)
    return tidy(replace(graph, steps=tuple(steps), outputs=outputs, inputs=inputs))


def _simpler_calls(graph: Graph) -> Iterator[Graph]:
    if graph.backward:
        yield replace(graph, inputs=tuple(replace(x, grad=False) for x in graph.inputs))
        for k, x in enumerate(graph.inputs):
            if x.grad:
                yield _with_input(graph, k, replace(x, grad=False))
    if graph.dynamic != "static":
        same = tuple(replace(x, second=x.shape) for x in graph.inputs)
        yield replace(graph, dynamic="static", inputs=same)
        yield replace(graph, dynamic="static", inputs=tuple(replace(x, shape=x.second) for x in graph.inputs))
        if graph.dynamic != "all":
            yield replace(graph, dynamic="all")


def _simpler_inputs(graph: Graph) -> Iterator[Graph]:
    for k, x in enumerate(graph.inputs):
        for simpler in (
            replace(x, layout="contiguous"),
            replace(x, parameter=False, name="x" + x.name[1:]),
            replace(x, dtype="float32") if x.fill != "index" else x,
            replace(x, fill="integers") if x.fill == "normal" else x,
        ):
            if simpler != x:
                yield _with_input(graph, k, simpler)


def _with_input(graph: Graph, k: int, spec: Input) -> Graph:
    old = graph.inputs[k].name
    steps = tuple(replace(s, args=tuple(spec.name if a == old else a for a in s.args)) for s in graph.steps)
    outputs = tuple(spec.name if o == old else o for o in graph.outputs)
    return replace(graph, inputs=(*graph.inputs[:k], spec, *graph.inputs[k + 1 :]), steps=steps, outputs=outputs)


def _smaller_sizes(graph: Graph) -> Iterator[Graph]:
    """One size replaced by a smaller one, in all inputs and attributes."""
    sizes = sorted({n for x in graph.inputs for n in (*x.shape, *x.second) if n > 1}, reverse=True)
    for size in sizes:
        for smaller in sorted({1, 2, 3, size // 2, size - 1}):
            if 0 < smaller < size:
                yield _resized(graph, size, smaller)


def _resized(graph: Graph, size: int, to: int) -> Graph:
    def changed(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(to if n == size else n for n in shape)

    inputs = tuple(
        replace(x, shape=changed(x.shape), second=changed(x.second), limit=to if x.limit == size else x.limit)
        for x in graph.inputs
    )
    steps = tuple(
        replace(
            s,
            attrs=tuple(
                (k, changed(v) if isinstance(v, tuple) else to if type(v) is int and v == size else v)
                for k, v in s.attrs
            ),
        )
        for s in graph.steps
    )
    return replace(graph, inputs=inputs, steps=steps)


def _shapes(graph: Graph) -> dict[str, tuple[tuple[int, ...], tuple[int, ...], str, bool]]:
    """Shape at both calls, dtype and exactness of every step; of an invalid graph, nothing."""
    made = replay(graph)
    found = {}
    for step in graph.steps:
        v = made.value(step.name)
        found[step.name] = (tuple(v.tensor.shape), v.second, str(v.tensor.dtype).removeprefix("torch."), v.exact)
    return found
