"""Who writes and who reads each buffer; dead code elimination."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.loop_nest import Load, LoopNest, View
from inductor_cpu.ir.nodes import Extern, Gemm, Node, Program, Templated


def views_in(value: Any) -> Iterator[View]:
    """Every View inside nested tuples."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from views_in(item)


def reads_of(node: Node) -> set[str]:
    """Buffers that a node reads."""
    if isinstance(node, LoopNest):
        return {i.buffer for i in node.body if isinstance(i, Load)} | {s.buffer for s in node.stores if s.mode == "add"}
    if isinstance(node, Gemm):
        return {node.a.buffer, node.b}
    if isinstance(node, Templated):
        return set(node.reads)
    found = {view.buffer for view in views_in(node.args)}
    return found | {view.buffer for _, value in node.kwargs for view in views_in(value)}


def writes_of(node: Node) -> set[str]:
    """Buffers that a node writes."""
    if isinstance(node, LoopNest):
        return {store.buffer for store in node.stores}
    if isinstance(node, Gemm):
        return {node.accumulator}
    if isinstance(node, Templated):
        return set(node.outputs)
    return {name for name in node.outputs if name is not None} | set(node.mutates)


def defined_symbols(program: Program, node: Extern | Templated) -> set[Sym]:
    """Size symbols that have a value only after the call: its int results and sizes of its results."""
    found = {symbol for _, symbol in node.int_outputs} if isinstance(node, Extern) else set()
    return found | {binding.symbol for binding in program.bindings if binding.buffer in node.outputs}


def result_buffers(program: Program) -> set[str]:
    """Buffers that the graph returns."""
    return {view.buffer for view in views_in(program.results)}


def readers(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """buffer -> nodes that read it, in program order."""
    table: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in reads_of(node):
            table[name].append(node)
    return table


def writers(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """buffer -> nodes that write it, in program order."""
    table: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in writes_of(node):
            table[name].append(node)
    return table


def live_nodes(program: Program, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Those of a program's nodes whose effect can be seen: they feed a result, write an input, or are ordered calls."""
    live = result_buffers(program)
    kinds = {buffer.name: buffer.kind for buffer in program.buffers}
    bound = {binding.buffer for binding in program.bindings}
    kept: list[Node] = []
    for node in reversed(nodes):
        written = writes_of(node)
        visible = any(name in live or name in bound or kinds[name] in ("input", "constant") for name in written)
        if visible or (isinstance(node, Extern) and (node.ordered or node.int_outputs)):
            kept.append(node)
            live |= reads_of(node)
    return tuple(reversed(kept))
