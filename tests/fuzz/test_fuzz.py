"""The fuzzer itself, and a short run of it."""

from __future__ import annotations

import itertools
import string
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases import cases
from tests.fuzz import index_campaign
from tests.fuzz.campaign import next_seed
from tests.fuzz.check import Attempt, evaluate, is_torchs
from tests.fuzz.generate import Builder, generate
from tests.fuzz.graph import Graph, Input, Step
from tests.fuzz.judge import complaints, reference
from tests.fuzz.replay import Invalid, replay
from tests.fuzz.rows import ROWS
from tests.fuzz.script import LAYOUTS, function_text, make_inputs, standalone, widened
from tests.fuzz.shrink import shrink

X = Input("x0", (4, 3), (4, 3), fill="integers", seed=1)
Y = Input("x1", (4, 3), (4, 3), seed=2)


def graph_of(*steps: Step, outputs: tuple[str, ...] = ("v0",), inputs: tuple[Input, ...] = (X, Y)) -> Graph:
    return Graph(0, inputs, steps, outputs)


def test_a_seed_always_gives_the_same_graph() -> None:
    for seed in range(8):
        assert generate(seed) == generate(seed)
    assert len({generate(seed) for seed in range(8)}) == 8


def test_generated_graphs_replay_and_run_from_their_text() -> None:
    for seed in range(100, 110):
        graph = generate(seed)
        replay(graph)
        compile(standalone(graph, "title"), "script", "exec")
        assert function_text(graph).count("\n") == len(graph.steps) + 2


def test_the_fields_of_a_rows_text_are_its_arguments_and_attributes() -> None:
    for row in ROWS.values():
        fields = [name for _, name, _, _ in string.Formatter().parse(row.text) if name is not None]
        assert set(row.attrs) <= set(fields), row.name


def test_every_row_gets_into_a_graph() -> None:
    # What eager refuses is dropped without a word: two rows were written so that eager always refused them.
    waiting = dict(ROWS)
    for seed in range(60):
        builder = Builder(seed)
        for _ in range(6):
            builder.first_input()
        for name, row in list(waiting.items()):
            if builder.attempt(row):
                del waiting[name]
    assert not waiting, list(waiting)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_keeps_the_shape(layout: str) -> None:
    spec = Input("x0", (2, 3, 4, 5), (3, 3, 2, 5), layout=layout)
    graph = graph_of(inputs=(spec,), outputs=("x0",))
    for second, shape in ((False, spec.shape), (True, spec.second)):
        value = make_inputs(graph, second)["x0"]
        wide = widened(value)
        if layout != "expanded":  # its size is fixed
            assert value.shape == shape
        assert wide.stride() == value.stride()
        assert torch.equal(wide.float(), value)


def test_a_comparison_of_rounded_values_is_not_valid() -> None:
    rounded = Step("v0", "exp", ("x0",))
    with pytest.raises(Invalid, match="exact"):
        replay(graph_of(rounded, Step("v1", "lt", ("v0", "x0"))))
    replay(graph_of(Step("v0", "add", ("x0", "x0")), Step("v1", "lt", ("v0", "x0"))))


def test_an_inexact_value_written_into_a_view_makes_its_base_inexact() -> None:
    row = Input("x1", (3,), (3,))
    write = Step("v1", "copy_", ("v0", "x1"))
    part = Step("v0", "slice", ("x0",), (("d", 0), ("start", 1), ("step", 1), ("stop", 3)))
    graph = graph_of(part, write, inputs=(X, row))
    assert replay(replace(graph, steps=graph.steps[:1])).is_exact("x0")
    assert not replay(graph).is_exact("x0")


def _corrupted(by: float, step: Step, dtype: str = "float32") -> dict[str, str]:
    graph = graph_of(step, inputs=(X, replace(Y, dtype=dtype)))
    ref = reference(graph, replay(graph), False)
    value = ref.plain.outputs[0].clone()
    value[1, 2] += by * value[1, 2].abs() + by
    return complaints(replace(ref.plain, outputs=(value,)), ref)


def test_a_rounding_error_is_right_and_a_larger_one_is_wrong() -> None:
    softmax = Step("v0", "softmax", ("x1",), (("dim", 1),))
    assert not _corrupted(0.0, softmax)
    assert not _corrupted(1e-8, softmax)
    assert _corrupted(1e-4, softmax)


def test_doubles_may_drift_but_not_be_singles() -> None:
    softmax = Step("v0", "softmax", ("x1",), (("dim", 1),))
    assert not _corrupted(1e-13, softmax, "float64")
    assert _corrupted(1e-9, softmax, "float64")


def test_a_gradient_that_is_the_difference_of_two_equal_sums_may_be_their_rounding() -> None:
    """Attention with one key: the gradient of a query is nothing, by two sums in any order."""
    q, k, v = (
        Input(f"x{n}", (1, 2, rows, 2), (1, 2, rows, 2), fill="normal", seed=n) for n, rows in enumerate((5, 1, 1))
    )
    attention = Step("v0", "attention_plain", ("x0", "x1", "x2"), (("scale", None),))
    graph = graph_of(attention, inputs=(replace(q, grad=True), k, v))
    ref = reference(graph, replay(graph), False)
    assert ref.plain.grads[0] is not None
    for by, right in ((1e-7, True), (1e-4, False)):
        grads = (ref.plain.grads[0] + by, *ref.plain.grads[1:])
        assert (not complaints(replace(ref.plain, grads=grads), ref)) == right


def test_an_exact_value_must_be_equal() -> None:
    assert _corrupted(1e-6, Step("v0", "add", ("x0", "x0")))


def test_another_stride_or_alias_is_wrong() -> None:
    graph = graph_of(Step("v0", "transpose", ("x0",), (("d", 0), ("e", 1))))
    ref = reference(graph, replay(graph), False)
    copied = ref.plain.outputs[0].contiguous()
    found = complaints(replace(ref.plain, outputs=(copied,), aliases=frozenset()), ref)
    assert list(found) == ["output 0 (v0)", "aliases"]
    assert "strides" in found["output 0 (v0)"]


def test_numbers_of_eager_that_no_rounding_explains_are_erratic() -> None:
    graph = graph_of(Step("v0", "softmax", ("x1",), (("dim", 1),)))
    ref = reference(graph, replay(graph), False)
    assert not ref.erratic()
    assert not replace(ref, wide=replace(ref.wide, outputs=(ref.wide.outputs[0] > 0,))).erratic()
    assert ref.spread[0] is not None
    ref.spread[0][1, 2] = 1e30
    assert ref.erratic() == {"output 0 (v0)"}


def _wrong(graph: Graph, outputs: tuple[torch.Tensor, ...]) -> Attempt:
    """A first call of a model that gives these results."""
    ref = reference(graph, replay(graph), False)
    results = replace(ref.plain, outputs=outputs)
    found = complaints(results, ref)
    return Attempt("wrong" if found else "ok", str(found), frozenset(found), (results,))


def test_a_wrong_number_is_torchs_if_torch_alone_gives_the_same_wrong_number() -> None:
    graph = graph_of(Step("v0", "softmax", ("x1",), (("dim", 1),)))
    refs = [reference(graph, replay(graph), False)]
    right = refs[0].plain.outputs[0]
    ours = _wrong(graph, (right + 1,))
    assert is_torchs(ours, _wrong(graph, (right + 1 + 1e-7,)), refs)
    assert not is_torchs(ours, _wrong(graph, (right + 2,)), refs)
    assert not is_torchs(ours, _wrong(graph, (right,)), refs)
    assert not is_torchs(ours, Attempt("error", "call 1: RuntimeError", frozenset(), ()), refs)


def test_strides_are_torchs_if_torch_alone_gives_the_same_strides_and_numbers() -> None:
    graph = graph_of(Step("v0", "softmax", ("x1",), (("dim", 1),)))
    refs = [reference(graph, replay(graph), False)]
    right = refs[0].plain.outputs[0]
    turned = right.t().contiguous().t()
    assert is_torchs(_wrong(graph, (turned,)), _wrong(graph, (turned.clone(),)), refs)
    assert not is_torchs(_wrong(graph, (turned + 1,)), _wrong(graph, (turned,)), refs)
    assert not is_torchs(_wrong(graph, (turned,)), _wrong(graph, (right,)), refs)


def test_an_error_is_torchs_if_torch_alone_raises_the_same() -> None:
    raised = [
        f"call 1: BackendCompilerFailed: backend='{name}' raised:\nRuntimeError: no" for name in ("icpu", "eager")
    ]
    ours, theirs = (Attempt("error", text, frozenset(), ()) for text in raised)
    assert is_torchs(ours, theirs, [])
    assert not is_torchs(ours, replace(theirs, text=raised[1] + "t"), [])
    assert not is_torchs(ours, replace(theirs, status="wrong"), [])


def test_a_change_of_elements_that_share_memory_is_not_valid() -> None:
    row = Input("x0", (1, 3), (1, 3), fill="integers")
    write = Step("v1", "zero_", ("v0",))
    for shape, valid in (((4, -1), False), ((1, -1), True)):
        graph = graph_of(Step("v0", "expand", ("x0",), (("sizes", shape),)), write, inputs=(row,))
        if valid:
            replay(graph)
        else:
            with pytest.raises(Invalid, match="share memory"):
                replay(graph)


def test_an_embedding_into_elements_that_share_memory_is_not_valid() -> None:
    # Eager keeps the strides of a view by unfold: what is embedded changes its neighbours, too.
    row = Input("x0", (4,), (4,), fill="integers")
    embed = Step("v1", "slice_scatter", ("v0",), (("dim", 0),))
    with pytest.raises(Invalid, match="share memory"):
        replay(graph_of(Step("v0", "unfold", ("x0",), (("d", 0), ("size", 2), ("step", 1))), embed, inputs=(row,)))
    replay(graph_of(Step("v0", "unfold", ("x0",), (("d", 0), ("size", 2), ("step", 2))), embed, inputs=(row,)))
    replay(graph_of(Step("v0", "grow", ("x0",), (("d", 0), ("n", 3))), embed, inputs=(row,)))


def test_parameters_keep_their_shape() -> None:
    inputs = [x for seed in (100019, 100140) for x in generate(seed).inputs]
    assert all(x.shape == x.second for x in inputs if x.parameter)


def test_shrinking_keeps_what_an_artificial_bug_needs_and_little_else() -> None:
    graph = next(g for g in map(generate, itertools.count()) if "softmax" in g.ops and len(g.steps) > 12)
    small = shrink(graph, lambda g: "softmax" in g.ops, seconds=600, tries=2000)
    assert small.ops == ("softmax",)
    assert len(small.steps) == len(small.inputs) == len(small.outputs) == 1
    assert small.dynamic == "static"
    assert max(small.inputs[0].shape) <= 2


def test_shrinking_tries_only_graphs_that_run() -> None:
    graph = generate(5)

    def fails(candidate: Graph) -> bool:
        replay(candidate)
        return len(candidate.steps) > 3

    assert len(shrink(graph, fails, seconds=600).steps) == 4


def test_a_run_goes_on_after_the_recorded_seeds(tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    assert next_seed(progress) == 0
    progress.write_text('{"first_seed": 10, "graphs": 5}\n{"first_seed": 0, "graphs": 3}\n')
    assert next_seed(progress) == 15


@pytest.mark.parametrize("first", cases([5], [0, 10, 15]))
def test_random_graphs_give_eagers_values(first: int) -> None:
    for seed in range(first, first + 5):
        outcome = evaluate(generate(seed))
        assert not outcome.finding, f"seed {seed}: {outcome.detail}"


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_index_expressions_keep_their_value(first: int) -> None:
    for seed in range(first, first + 20):
        assert index_campaign.judge(seed)[1] is None
