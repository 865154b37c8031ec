"""Copies into memory that the source is a view of. Eager mode refuses them; a graph has them once clones are gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.lower.graph import lower_graph
from tests.e2e.support import assert_like_eager

OVERLAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.copy_(x.t()),
    "a_row": lambda x: x.copy_(x[1]),
    "a_column": lambda x: x.copy_(x[:, 1:2]),
    "shifted_up": lambda x: x[1:].copy_(x[:-1]),
    "shifted_down": lambda x: x[:-1].copy_(x[1:]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_copy_from_another_view_of_the_target_reads_all_before_it_writes(name: str) -> None:
    x = torch.randn(6, 6)
    graph = make_fx(OVERLAPS[name], tracing_mode="fake")(x)
    program = lower_graph(graph, "test")
    first, second = (node for node in program.nodes if isinstance(node, LoopNest))
    target = program.inputs[0].buffer
    assert [store.buffer for store in first.stores] != [target]
    assert [store.buffer for store in second.stores] == [target]
    ours, theirs = x.clone(), x.clone()
    source = {"shifted_up": theirs[:-1], "shifted_down": theirs[1:]}.get(name)
    if source is None:
        theirs = {"transposed": x.t(), "a_row": x[1], "a_column": x[:, 1:2]}[name].expand(6, 6).clone()
    else:
        (theirs[1:] if name == "shifted_up" else theirs[:-1]).copy_(source.clone())
    run(program, [ours])
    assert torch.equal(ours, theirs)


def test_a_copy_from_the_same_view_needs_no_other_buffer() -> None:
    program = lower_graph(make_fx(lambda x: x.t().copy_(x.t()), tracing_mode="fake")(torch.randn(6, 6)), "test")
    assert len(program.nodes) <= 1


def test_compiled_copies_between_parts_of_one_tensor() -> None:
    assert_like_eager(lambda x: x.copy_(x.t().clone()) * 2, torch.randn(70, 70))
    assert_like_eager(lambda x: x.copy_(x[1].clone()) * 2, torch.randn(70, 70))
    assert_like_eager(lambda x: x[1:].copy_(x[:-1].clone()) * 2, torch.randn(70, 70))
