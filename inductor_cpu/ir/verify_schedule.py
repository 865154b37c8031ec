"""The verifier of schedules: kernels, the order of steps, and the memory plan for a few sizes."""

from __future__ import annotations

from inductor_cpu.ir.index import Expr, Sym, product
from inductor_cpu.ir.kernel import CALLS, Kernel, Schedule, Step, Strips, kernels_of
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import Extern, Program, leaves
from inductor_cpu.ir.strips import verify_strips
from inductor_cpu.ir.verify import verify_kernel
from inductor_cpu.ir.verify_body import SCHEDULE, Checker

#: Values given to size symbols when a memory plan is checked (added to the symbol's lower bound), and how much further
#: each is than the one before it: equal sizes alone would not show that a place has the size of another buffer.
_SAMPLE_SIZES = ((1, 0), (6, 0), (45, 0), (6, 5), (6, -5))


def verify_schedule(schedule: Schedule) -> None:
    """Raise InternalError if a kernel, the order of steps or the memory plan is wrong."""
    program = schedule.program
    check = Checker(SCHEDULE, program.name)
    places = dict(schedule.places)
    written = {buffer.name for buffer in program.buffers if buffer.kind in ("input", "constant")}
    lives: dict[str, list[int]] = {}
    for number, step in enumerate(schedule.steps):
        for kernel in kernels_of(step):
            verify_kernel(kernel)
            _check_copied(Checker(SCHEDULE, kernel.label), program, kernel)
        if isinstance(step, Strips):
            verify_strips(step)
        reads, writes = step_uses(step)
        at = Checker(SCHEDULE, f"step {number} ({step.label if isinstance(step, (Kernel, Strips)) else step.name})")
        for name in (*reads, *writes):
            at.require(name in program.buffer_table, f"buffer {name} does not exist")
        own = set(writes) if isinstance(step, (Kernel, Strips)) else set()
        for name in reads:
            at.require(name in written or name in own, f"{name} is read before it is written")
        written.update(writes)
        for name in (*reads, *writes):
            lives.setdefault(name, []).append(number)
    for result in program.results:
        if isinstance(result, View):
            check.require(result.buffer in written, f"the result {result.buffer} is never written")
            inside = result.buffer in places
            check.require(not inside, f"the result {result.buffer} lives in the arena, which does not outlive the call")
    known = _input_symbols(program)
    for name in lives:
        buffer = program.buffer(name)
        planned_here = buffer.kind == "temp" and all(size.symbols <= known for size in buffer.sizes)
        check.require(name in places or not planned_here, f"the temp {name} has no memory")
    planned = [node.name for node in program.nodes if isinstance(node, Extern) and node.ordered]
    actual = [step.name for step in schedule.steps if isinstance(step, Extern) and step.ordered]
    check.require(planned == actual, f"ordered calls {planned} run as {actual}")
    for sample, apart in _SAMPLE_SIZES:
        _check_memory(check, schedule, lives, sample, apart)


def _input_symbols(program: Program) -> set[Sym]:
    """Size symbols with a value before the first step; a temp of another size is allocated when it is written."""
    inputs = {spec.buffer for spec in program.inputs}
    found = {spec.symbol for spec in program.inputs if spec.symbol is not None}
    return found | {binding.symbol for binding in program.bindings if binding.buffer in inputs}


def step_uses(step: Step) -> tuple[list[str], list[str]]:
    """(read, written) buffer names of a step."""
    if isinstance(step, (Kernel, Strips)):
        return [arg.buffer for arg in step.args if arg.reads], [arg.buffer for arg in step.args if arg.writes]
    if isinstance(step, CALLS):
        return list(step.reads), list(step.outputs)
    reads = [value.buffer for value in leaves((step.args, step.kwargs)) if isinstance(value, View)]
    return reads, [*step.mutates, *(name for name in step.outputs if name is not None)]


def _check_copied(check: Checker, program: Program, kernel: Kernel) -> None:
    """Copies of a buffer have all of its elements, and nothing else is added up with them."""
    if kernel.divided is None or kernel.divided.pieces == 1:
        return
    buffer = program.buffer(kernel.stores[0].buffer)
    dense = product(buffer.sizes) == kernel.divided.elements == buffer.extent
    check.require(dense, f"{buffer.name} has not {kernel.divided.elements} elements next to each other")


def _check_memory(check: Checker, schedule: Schedule, lives: dict[str, list[int]], sample: int, apart: int) -> None:
    """No two places overlap while both are live, for one choice of sizes. A kernel may write over what it reads for the
    last time at the very same place."""
    exprs = [schedule.arena_bytes, *(place.offset for _, place in schedule.places)]
    buffers = [schedule.program.buffer(name) for name, _ in schedule.places]
    for buffer in buffers:
        exprs += [*buffer.sizes, *buffer.strides]
    values = _possible_sizes(exprs, buffers, sample, apart)
    if values is None:
        return
    total = schedule.arena_bytes.evaluate(values)
    spans = []
    for (name, place), buffer in zip(schedule.places, buffers, strict=True):
        start = place.offset.evaluate(values)
        end = start + buffer.extent.evaluate(values) * buffer.dtype.itemsize
        check.require(start >= 0 and end <= total, f"{name} at {start}..{end} leaves the arena of {total} bytes")
        if name in lives:
            spans.append((min(lives[name]), max(lives[name]), start, end, name))
    active: list[tuple[int, int, int, int, str]] = []
    for span in sorted(spans):
        active = [other for other in active if other[1] >= span[0]]
        for other in active:
            in_place = other[1] == span[0] and other[2] == span[2] and isinstance(schedule.steps[span[0]], Kernel)
            apart = span[3] <= other[2] or other[3] <= span[2] or span[2] == span[3] or other[2] == other[3]
            check.require(apart or in_place, f"{span[4]} and {other[4]} overlap in the arena while both are live")
        active.append(span)


def _possible_sizes(exprs: list[Expr], buffers: list[Buffer], sample: int, apart: int) -> dict[Sym, int] | None:
    """Values for which no size of a buffer is negative and no divisor is 0 (the guards of the graph allow no others);
    None if none of those tried is such."""
    symbols = sorted({symbol for expr in exprs for symbol in expr.symbols}, key=repr, reverse=apart < 0)
    for scale in (1, 8, 64, 512):
        values = {s: max(s.lo, 1) + (sample + abs(apart) * k) * scale for k, s in enumerate(symbols)}
        try:
            for expr in exprs:
                expr.evaluate(values)
        except ZeroDivisionError:
            continue
        if all(size.evaluate(values) >= 0 for buffer in buffers for size in buffer.sizes):
            return values
    return None
