"""The execution plan of a schedule."""

from __future__ import annotations

from inductor_cpu.codegen.plan import build_plan
from inductor_cpu.ir.index import of, size_symbol
from inductor_cpu.ir.nodes import InputSpec
from inductor_cpu.ir.plan import LoadInt
from inductor_cpu.schedule.schedule import schedule_program
from tests.ir.build import program


def test_sizes_that_are_passed_twice_keep_registers_of_their_own() -> None:
    s0, s1, s2 = size_symbol("s0"), size_symbol("s1"), size_symbol("s2")
    inputs = tuple(InputSpec(k, symbol=symbol) for k, symbol in enumerate((s0, s1, s0, s1, s2)))
    made = program([], [], [of(s0), of(s1), of(s2)], inputs=inputs)
    plan = build_plan(schedule_program(made, 1, 1), {})
    loaded = {i.reg: i.position for i in plan.instructions if isinstance(i, LoadInt)}
    assert [loaded[result] for result in plan.results] == [0, 1, 4]
    assert plan.registers == 3
