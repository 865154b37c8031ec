"""Random graphs: the schedule, interpreted with its memory plan, gives what the program gives."""

from __future__ import annotations

import pytest

from tests.cases import cases
from tests.lower.harness import fresh, lower
from tests.schedule.graphs import describe, plan_of
from tests.schedule.harness import check_program

#: Seeds per test case, so that a failure names a small range.
BATCH = 10


@pytest.mark.parametrize("first", cases((0, 30), (10, 20, 40, 50)))
def test_schedule_of_a_random_graph_gives_the_values_of_the_program(first: int) -> None:
    for seed in range(first, first + BATCH):
        plan, exact, dynamic = plan_of(seed)
        program = lower(plan, *fresh(plan.inputs), dynamic=dynamic)
        try:
            check_program(program, plan.inputs, 0.0 if exact else 1e-3)
        except Exception as error:
            error.add_note(f"seed {seed}, dynamic={dynamic}\n{describe(plan)}")
            raise
