"""The C++ functions of a schedule: which generator writes which step."""

from __future__ import annotations

from dataclasses import replace

from inductor_cpu.codegen.alike import Function, join_alike, takes_ints
from inductor_cpu.codegen.around import SHARE_OF_CACHE
from inductor_cpu.codegen.attention import generate_attention, generate_attention_backward
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.ranking import generate_ranking
from inductor_cpu.codegen.strips import generate_strips
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.codegen.winograd import generate_tiles
from inductor_cpu.ir.kernel import Kernel, Schedule, Scored, Strips, kernels_of
from inductor_cpu.ir.nodes import AttentionBackward, Extern, Ranking, Templated, TilePacking, WeightGradient
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.ir.scatter import is_scatter
from inductor_cpu.targets.cpu import Target


def generate_all(
    schedule: Schedule, target: Target, choices: Choices
) -> tuple[list[KernelSource], dict[int, Function]]:
    """The functions, each text once, and that of each step by the step's number."""
    of_steps: dict[int, KernelSource] = {}
    scattered = _scattered_later(schedule)
    for number, step in enumerate(schedule.steps):
        if not isinstance(step, Extern):
            of_steps[number] = _source(step, schedule, target, _with_more_kept(step, scattered[number], choices))
    steps = ((source, schedule.steps[number]) for number, source in of_steps.items())
    joined = join_alike({source: len(step.sizes) for source, step in steps if takes_ints(step)})
    sources: dict[str, KernelSource] = {}
    functions: dict[int, Function] = {}
    for number, own in of_steps.items():
        source, functions[number] = joined.get(own, (own, Function(own.symbol)))
        sources.setdefault(source.symbol, source)
    return list(sources.values()), functions


def _scattered_later(schedule: Schedule) -> list[frozenset[str]]:
    """For each step, the buffers in which later ones update elements here and there."""
    found: list[frozenset[str]] = []
    later: frozenset[str] = frozenset()
    for step in reversed(schedule.steps):
        found.append(later)
        stores = [store for kernel in kernels_of(step) for store in kernel.stores]
        later |= {store.buffer for store in stores if is_scatter(store)}
    return found[::-1]


def _with_more_kept(step: object, scattered: frozenset[str], choices: Choices) -> Choices:
    """Choices that leave to the cache what scatters will look for there, if it fits in at all."""
    if not isinstance(step, Kernel) or scattered.isdisjoint(store.buffer for store in step.stores):
        return choices
    return replace(choices, kept=choices.kept * SHARE_OF_CACHE)


def _source(
    step: Kernel | Strips | Scored | Templated, schedule: Schedule, target: Target, choices: Choices
) -> KernelSource:
    if isinstance(step, Kernel):
        return generate(step, target, choices)
    if isinstance(step, Strips):
        return generate_strips(step, target, choices)
    buffers = schedule.program.buffer_table
    if isinstance(step, Ranking):
        return generate_ranking(step, buffers, choices)
    if isinstance(step, (TilePacking, WeightGradient)):
        return generate_tiles(step, choices)
    if isinstance(step, AttentionBackward):
        return generate_attention_backward(step, buffers, choices)
    return generate_attention(step, buffers, choices, target)
