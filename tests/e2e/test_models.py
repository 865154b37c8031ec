"""Real architectures, few and narrow layers, random weights: inference in fp32 and bf16 against an fp64 reference."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench_suites import measure
from bench_suites.models import RECIPES, build
from tests.cases import cases
from tests.e2e.support import compile_counted

#: Each in one dtype, but for T5, which tests/bench_suites/test_selection.py trains.
ALWAYS = [
    ("resnet50", torch.float32),
    ("mobilenetv3_large_100", torch.float32),
    ("vit_base_patch16_224", torch.bfloat16),
    ("swin_tiny_patch4_window7_224", torch.bfloat16),
    ("convnext_tiny", torch.bfloat16),
    ("bert-base", torch.bfloat16),
    ("gpt2", torch.float32),
    ("llama-small", torch.float32),
]
MORE = [(n, dtype) for n in RECIPES for dtype in (torch.float32, torch.bfloat16) if (n, dtype) not in ALWAYS]


@pytest.mark.parametrize(("name", "dtype"), cases(ALWAYS, MORE), ids=str)
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
    module = nn.Sequential(nn.Embedding(99, 32), nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 99))
    compiled, reports = compile_counted(module)
    tokens = torch.randint(0, 99, (2, 16))
    compiled(tokens)
    for parameter in module.parameters():
        parameter.mul_(1.5).add_(0.01)
    torch.testing.assert_close(compiled(tokens.flip(1)), module(tokens.flip(1)), atol=1e-4, rtol=1e-4)
    assert len(reports) == 1


@torch.no_grad()
def test_loaded_state_shows_in_the_next_call() -> None:
    module, other = (
        nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10)).eval()
        for _ in range(2)
    )
    nn.init.normal_(other[1].running_mean)
    nn.init.uniform_(other[1].running_var, 0.5, 1.5)
    compiled, _ = compile_counted(module)
    image = torch.randn(2, 3, 8, 8)
    compiled(image)
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(compiled(image), other(image), atol=1e-4, rtol=1e-4)
