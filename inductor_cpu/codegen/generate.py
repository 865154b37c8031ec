"""The C++ functions of a schedule: which generator writes which step."""

from __future__ import annotations

from inductor_cpu.codegen.attention import generate_attention, generate_attention_backward
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.ranking import generate_ranking
from inductor_cpu.codegen.strips import generate_strips
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.kernel import Kernel, Schedule, Scored, Strips
from inductor_cpu.ir.nodes import AttentionBackward, Extern, Ranking, Templated
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.targets.cpu import Target


def generate_all(schedule: Schedule, target: Target, choices: Choices) -> tuple[list[KernelSource], dict[int, str]]:
    """The functions, each text once, and the name of each step's function by the step's number."""
    sources: dict[str, KernelSource] = {}
    symbols: dict[int, str] = {}
    for number, step in enumerate(schedule.steps):
        if not isinstance(step, Extern):
            source = _source(step, schedule, target, choices)
            sources.setdefault(source.symbol, source)
            symbols[number] = source.symbol
    return list(sources.values()), symbols


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
    if isinstance(step, AttentionBackward):
        return generate_attention_backward(step, buffers, choices)
    return generate_attention(step, buffers, choices, target)
