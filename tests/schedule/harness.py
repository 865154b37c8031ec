"""Schedule a program and interpret the schedule step by step, with every temp at its planned place in one arena.

`check_program` compares the result with the interpreted program: kernels, order of steps and memory plan are tested
without a compiler. `scheduled(fn, *inputs)` gives the schedule of a function for tests of its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor_cpu.ir import interpret
from inductor_cpu.ir.interpret_loops import run_kernel
from inductor_cpu.ir.kernel import Kernel, Schedule, Strips
from inductor_cpu.ir.loop_nest import Buffer, Load
from inductor_cpu.ir.nodes import Extern, Program, Ranking
from inductor_cpu.ir.verify import verify_program
from inductor_cpu.ir.verify_schedule import verify_schedule
from inductor_cpu.schedule.schedule import schedule_program
from tests.lower.harness import fresh, lower

#: Bytes of memory that nobody has written: NaN for floats, -1 for integers.
POISON = 0xFF
LANES, CORES = 16, 4


class ScheduleRun(interpret._Run):
    """One run of a schedule under the interpreter."""

    def __init__(self, schedule: Schedule, inputs: Sequence[object]) -> None:
        super().__init__(schedule.program, inputs)
        self.schedule = schedule
        self.places = {name: place.offset for name, place in schedule.places}
        self.arena = torch.empty(0, dtype=torch.uint8)

    def run(self) -> list[object]:
        for spec in self.program.inputs:
            value = self.inputs[spec.position]
            if spec.buffer is not None:
                assert isinstance(value, torch.Tensor)
                self.tensors[spec.buffer] = value
            elif spec.symbol is not None:
                assert isinstance(value, int)
                self.symbols[spec.symbol] = value
        for name in self.tensors:
            self.bind(name)
        self.arena = torch.full((self.schedule.arena_bytes.evaluate(self.symbols),), POISON, dtype=torch.uint8)
        for step in self.schedule.steps:
            if isinstance(step, Extern):
                self.call(step)
            elif isinstance(step, Ranking):
                self.rank(step)
            elif isinstance(step, Strips):
                for kernel in step.kernels:
                    self.kernel(kernel)
            else:
                self.kernel(step)
        return [self.result(value) for value in self.program.results]

    def provide(self, name: str) -> Buffer:
        buffer = self.program.buffer(name)
        if name in self.places and name not in self.tensors:
            sizes, strides = self.ints(buffer.sizes), self.ints(buffer.strides)
            count = 1
            for size in sizes:
                count *= size
            start = self.places[name].evaluate(self.symbols)
            end = start + count * buffer.dtype.itemsize
            assert end <= self.arena.numel(), f"{name} ends at {end} of {self.arena.numel()}"
            own = self.arena[start:end].view(buffer.dtype)
            self.tensors[name] = torch.as_strided(own, sizes, strides, own.storage_offset())
        return super().provide(name)

    def kernel(self, kernel: Kernel) -> None:
        self._check_arguments(kernel)
        for arg in kernel.args:
            self.provide(arg.buffer)
        known = {symbol: self.symbols[symbol] for symbol in kernel.sizes}
        run_kernel(kernel, {arg.buffer: self.tensors[arg.buffer] for arg in kernel.args}, known)

    @staticmethod
    def _check_arguments(kernel: Kernel) -> None:
        loads = {i.buffer for i in kernel.body if isinstance(i, Load)} | {
            s.buffer for s in kernel.stores if s.mode == "add"
        }
        assert loads == {a.buffer for a in kernel.args if a.reads}
        assert {s.buffer for s in kernel.stores} == {a.buffer for a in kernel.args if a.writes}


def schedule_of(program: Program, lanes: int = LANES, cores: int = CORES) -> Schedule:
    """The verified schedule of a program that is verified too."""
    verify_program(program)
    schedule = schedule_program(program, lanes, cores)
    verify_schedule(schedule)
    return schedule


def run_schedule(schedule: Schedule, inputs: Sequence[object]) -> list[object]:
    """Results of the schedule; inputs that it mutates are changed."""
    with torch.no_grad():
        return ScheduleRun(schedule, inputs).run()


def scheduled(fn: Callable[..., Any], *inputs: Any, dynamic: bool = False, **options: int) -> Schedule:
    """The schedule of a function, checked against the interpreted program."""
    program = lower(fn, *fresh(inputs), dynamic=dynamic)
    return check_program(program, inputs, **options)


def check_program(
    program: Program, inputs: Sequence[Any], tolerance: float = 1e-4, lanes: int = LANES, cores: int = CORES
) -> Schedule:
    """Schedule the program and compare its results and mutated inputs with the interpreted program. Results agree to
    the tolerance (reductions may fold in another order), and bit by bit if it is 0."""
    schedule = schedule_of(program, lanes, cores)
    expected_inputs, own_inputs = fresh(inputs), fresh(inputs)
    expected = interpret.run(program, expected_inputs)
    actual = run_schedule(schedule, own_inputs)
    assert len(actual) == len(expected)
    for number, (have, want) in enumerate(zip(actual, expected, strict=True)):
        equal(have, want, tolerance, f"result {number}")
    for number, (have, want) in enumerate(zip(own_inputs, expected_inputs, strict=True)):
        equal(have, want, tolerance, f"input {number} after the call")
    return schedule


def equal(have: Any, want: Any, tolerance: float, what: str) -> None:
    """Assert equal values and the same layout; NaN equals NaN."""
    if not isinstance(want, torch.Tensor):
        assert have == want, what
        return
    assert (have.dtype, have.shape, have.stride()) == (want.dtype, want.shape, want.stride()), what
    low = have.dtype in (torch.bfloat16, torch.float16) and tolerance > 0
    rtol = 2e-2 if low else tolerance
    torch.testing.assert_close(have, want, rtol=rtol, atol=rtol, equal_nan=True, msg=lambda m: f"{what}: {m}")


def kernels(schedule: Schedule) -> list[Kernel]:
    """The kernels of a schedule, in order."""
    steps = [step.kernels if isinstance(step, Strips) else (step,) for step in schedule.steps]
    return [step for together in steps for step in together if isinstance(step, Kernel)]


def only_kernel(schedule: Schedule) -> Kernel:
    """The schedule's one step, a kernel. Fails, with the notes on fusion, when there are more."""
    assert len(schedule.steps) == 1, "\n".join([f"{len(schedule.steps)} steps", *schedule.notes])
    (step,) = schedule.steps
    assert isinstance(step, Kernel)
    return step


def place_ranges(schedule: Schedule, symbols: Mapping[Any, int] | None = None) -> dict[str, tuple[int, int]]:
    """buffer -> (first byte, byte after its last one) in the arena."""
    found: dict[str, tuple[int, int]] = {}
    for name, place in schedule.places:
        buffer = schedule.program.buffer(name)
        start, size = place.offset.evaluate(symbols or {}), buffer.dtype.itemsize
        for expr in buffer.sizes:
            size *= expr.evaluate(symbols or {})
        found[name] = (start, start + size)
    return found


__all__ = [
    "check_program",
    "equal",
    "kernels",
    "lower",
    "only_kernel",
    "place_ranges",
    "run_schedule",
    "schedule_of",
    "scheduled",
]
