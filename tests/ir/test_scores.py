"""Attention whose scores are changed: what the verifier, the interpreter, the scheduler and the printer make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import ZERO, as_expr
from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.kernel import Scored
from inductor_cpu.ir.loop_nest import Const, Scalar, Store
from inductor_cpu.ir.nodes import Attention, Blocks, Program
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.verify import verify_program
from inductor_cpu.ir.verify_schedule import verify_schedule
from inductor_cpu.schedule.schedule import schedule_program
from tests.ir.build import F32, at, buffer, load, loops, nest, program, whole

DIMS = loops(1, 2, 4, 6)
PLACE = (ZERO, *at(*DIMS[1:]))
BUFFERS = {
    b.name: b
    for b in (
        buffer("q", (1, 2, 4, 8), "input"),
        buffer("k", (1, 2, 6, 8), "input"),
        buffer("v", (1, 2, 6, 8), "input"),
        buffer("factor", (6,), "input"),
        buffer("counts", (1, 2, 2), "input", dtype=torch.int32),
        buffer("numbers", (1, 2, 2, 3), "input", dtype=torch.int32),
        buffer("out", (1, 2, 4, 8), "output"),
        buffer("scores", (1, 2, 4, 6), "accumulator"),
    )
}
SCALED = nest(
    DIMS,
    [load("scores", PLACE), load("factor", at(DIMS[3])), Scalar("mul", (0, 1), F32)],
    Store("scores", PLACE, 2),
    name="scaled",
)
BLOCKS = Blocks(((whole(BUFFERS["counts"]), whole(BUFFERS["numbers"])),), as_expr(2), as_expr(2))


def attention(**changes: Any) -> Program:
    q, k, v = (whole(BUFFERS[name]) for name in "qkv")
    node = Attention("attention", "vec_f32", q, k, v, None, 1.0, False, False, "out", None, (), SCALED)
    return program(list(BUFFERS.values()), [replace(node, **changes)])


def test_scores_are_changed_and_blocks_outside_of_lists_left_out() -> None:
    q, k, v = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    factor = torch.randn(6)
    counts = torch.tensor([[[1, 2], [3, 0]]], dtype=torch.int32)  # of the second head's last rows: no keys at all
    numbers = torch.tensor([[[[1, 0, 2], [2, 0, 1]], [[0, 1, 2], [0, 1, 2]]]], dtype=torch.int32)
    for blocks in (None, BLOCKS):
        made = attention(blocks=blocks)
        verify_program(made)
        (result,) = run(made, [q, k, v, factor, counts, numbers])
        scores = q @ k.transpose(2, 3) * factor
        if blocks is not None:
            scores[0, 0, :2, [0, 1, 4, 5]] = scores[0, 0, 2:, 2:4] = scores[0, 1, 2:] = -torch.inf
        torch.testing.assert_close(result, scores.softmax(3).nan_to_num() @ v)


def test_the_scheduled_step_reads_what_the_scores_read() -> None:
    schedule = schedule_program(attention(blocks=BLOCKS), 16, 2)
    verify_schedule(schedule)
    (step,) = schedule.steps
    assert isinstance(step, Scored)
    assert step.reads == ("q", "k", "v", "counts", "numbers", "factor")
    assert step.kernel.vector.loop == step.kernel.outer[1]
    assert "scaled" in show(attention())
    assert "its scores by blocks (" in show(schedule)


OTHER_PLACE = nest(DIMS, [load("scores", (ZERO, *at(*DIMS[1:3], 0)))], Store("scores", PLACE, 0))
TRANSPOSED = nest(DIMS, [Const(0.0, F32)], Store("scores", (*at(*DIMS[:3]), ZERO), 0))
TWICE = replace(SCALED, stores=(*SCALED.stores, Store("out", PLACE, 2)))
ELSEWHERE = replace(SCALED, stores=(Store("out", PLACE, 2),))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"scores": OTHER_PLACE}, "a score meets another one"),
        ({"scores": TRANSPOSED}, "a score meets another one"),
        ({"scores": TWICE}, "its scores become no scores"),
        ({"scores": ELSEWHERE}, "no accumulator of scores"),
        ({"causal": True}, "its scores are masked twice"),
        ({"scores": None, "blocks": BLOCKS}, "is no list of blocks"),
        ({"q": whole(buffer("q", (1, 2, 3, 8)))}, "its scores have the wrong shape"),
    ],
)
def test_what_becomes_of_scores_is_checked(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_program(attention(**changes))
    assert text in caught.value.message
