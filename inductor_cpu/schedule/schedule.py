"""Program -> Schedule: dead code, inlining, layouts, flattening, fusion, kernels, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.kernel import Schedule, Scored, Step, kernels_of
from inductor_cpu.ir.loop_nest import Buffer, LoopNest
from inductor_cpu.ir.nodes import Attention, Program
from inductor_cpu.ir.rewrite import prune
from inductor_cpu.schedule import roofline
from inductor_cpu.schedule.after_columns import set_apart
from inductor_cpu.schedule.build import build_kernel
from inductor_cpu.schedule.columns import divide_columns
from inductor_cpu.schedule.cost import CACHE
from inductor_cpu.schedule.flat import flatten
from inductor_cpu.schedule.fuse import HORIZONTAL, Item, fuse
from inductor_cpu.schedule.group import Group
from inductor_cpu.schedule.guards import simplify_guarded
from inductor_cpu.schedule.inline import inline_producers
from inductor_cpu.schedule.known import put_known_indices
from inductor_cpu.schedule.layout import lay_out
from inductor_cpu.schedule.listed import listed
from inductor_cpu.schedule.memory import plan_memory
from inductor_cpu.schedule.scores import scored
from inductor_cpu.schedule.strips import join_strips
from inductor_cpu.schedule.uses import live_nodes, reads_of, result_buffers


def schedule_program(
    program: Program, lanes: int, cores: int, horizontal: int = HORIZONTAL, redzone: int = 0, cache: int = CACHE
) -> Schedule:
    """Decide kernels, their order and memory. lanes: vector lanes of the target (0 for scalar code); cores: how many
    threads a kernel should have work for; horizontal: most nests in a kernel that joins nests without a dependency;
    redzone: bytes that stay free around each buffer; cache: bytes of a core's second-level cache."""
    inlined = inline_producers(program, live_nodes(program, program.nodes))
    live = live_nodes(program, inlined.nodes)
    buffers = lay_out(program.buffer_table, live)
    program = replace(program, buffers=tuple(buffers.values()))
    nodes = [
        simplify_guarded(flatten(put_known_indices(node), buffers)) if isinstance(node, LoopNest) else node
        for node in live
    ]
    fused = fuse(program, nodes, horizontal)
    items, parts, divisions = _in_parts(without_dead_stores(program, fused.items), lanes)
    program = replace(program, buffers=(*program.buffers, *parts))
    buffers |= {part.name: part for part in parts}
    steps = [_step(item, buffers, lanes, cores, cache) for item in items]
    in_lists = [listed(item, buffers, lanes, cache) if isinstance(item, Group) else None for item in items]
    steps = join_strips(program, steps, in_lists, buffers, cores, cache)
    places, arena = plan_memory(steps, buffers, _input_symbols(program), redzone)
    kernels = (kernel for step in steps if not isinstance(step, Scored) for kernel in kernels_of(step))
    bounds = (roofline.note(kernel) for kernel in kernels if kernel.product is None)
    return Schedule(program, tuple(steps), places, arena, (*inlined.notes, *fused.notes, *divisions, *bounds))


def _step(item: Item, buffers: dict[str, Buffer], lanes: int, cores: int, cache: int) -> Step:
    if isinstance(item, Group):
        return build_kernel(item, buffers, lanes, cores, cache)
    if isinstance(item, Attention) and item.scores is not None:
        return scored(item, item.scores, buffers, lanes)
    return item


def _in_parts(items: Sequence[Item], lanes: int) -> tuple[list[Item], list[Buffer], list[str]]:
    """The items with long reductions of columns in two, and apart from what follows them, the buffers between them, and
    a note on each."""
    found: list[Item] = []
    parts: list[Buffer] = []
    notes: list[str] = []
    for item in items:
        if not isinstance(item, Group):
            found.append(item)
            continue
        apart = set_apart(item, lanes)
        if apart is not None:
            item = apart.reductions
            parts.extend(apart.handed)
            notes.append(apart.note)
        divided = divide_columns(item, lanes)
        found.extend((item,) if divided is None else divided.groups)
        if divided is not None:
            parts.extend(divided.parts)
            notes.append(divided.note)
        if apart is not None:
            found.append(apart.after)
    return found, parts, notes


def without_dead_stores(program: Program, items: Sequence[Item]) -> list[Item]:
    """The items without stores to temps that nobody reads afterwards: their values live in registers."""
    needed = result_buffers(program) | {binding.buffer for binding in program.bindings}
    kept: list[Item] = []
    for item in reversed(items):
        if not isinstance(item, Group):
            needed |= reads_of(item)
            kept.append(item)
            continue
        stores = [s for s in item.nest.stores if s.buffer in needed or program.buffer(s.buffer).kind != "temp"]
        if stores:
            body, renumbered = prune(item.nest.body, stores)
            nest = replace(item.nest, body=body, stores=renumbered)
            needed |= reads_of(nest) | (reads_of(item.gemm) if item.gemm is not None else set())
            kept.append(replace(item, nest=nest))
    return kept[::-1]


def _input_symbols(program: Program) -> frozenset[Sym]:
    """The size symbols that are known before the first step."""
    inputs = {spec.buffer for spec in program.inputs}
    found = {spec.symbol for spec in program.inputs if spec.symbol is not None}
    return frozenset(found | {binding.symbol for binding in program.bindings if binding.buffer in inputs})
