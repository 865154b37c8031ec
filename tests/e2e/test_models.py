"""Real architectures, few and narrow layers, random weights: inference in fp32 and bf16 against an fp64 reference."""

from __future__ import annotations

import pytest
import torch

from bench_suites import measure
from bench_suites.models import RECIPES, build
from tests.cases import in_turns
from tests.e2e.support import compile_counted


@pytest.mark.parametrize(("name", "dtype"), in_turns(RECIPES, [torch.float32, torch.bfloat16]), ids=str)
@torch.no_grad()
def test_model_matches_eager_and_is_one_graph(name: str, dtype: torch.dtype) -> None:
    model = build(name, dtype, batch=2, tiny=True)
    compiled, reports = compile_counted(model.module, fullgraph=True)
    eager = model()
    output = model(compiled)
    assert [r.kind for r in reports] == ["inference"]
    accuracy = measure.check(model, eager, output, measure.fp64_reference(model))
    assert accuracy.passes, accuracy
    for ours, theirs in zip(measure.tensors(output), measure.tensors(eager), strict=True):
        assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())


@torch.no_grad()
def test_second_call_with_other_inputs_and_changed_weights_is_right() -> None:
    model = build("bert-base", tiny=True)
    compiled, reports = compile_counted(model.module)
    model(compiled)
    for parameter in model.module.parameters():
        parameter.mul_(1.5).add_(0.01)
    tokens = {"input_ids": model.kwargs["input_ids"].flip(1)}
    torch.testing.assert_close(compiled(**tokens).logits, model.module(**tokens).logits, atol=1e-4, rtol=1e-4)
    assert len(reports) == 1


@torch.no_grad()
def test_loaded_state_shows_in_the_next_call() -> None:
    model, other = build("resnet50", tiny=True), build("resnet50", tiny=True, seed=1)
    compiled, _ = compile_counted(model.module)
    model(compiled)
    model.module.load_state_dict(other.module.state_dict())
    torch.testing.assert_close(model(compiled), other.module(*model.args), atol=1e-4, rtol=1e-4)
