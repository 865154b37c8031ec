"""Training steps whose convolutions run channels-last: numbers and strides are eager's."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import same

import inductor_cpu
from tests.cases import cases
from tests.e2e.support import compile_counted


class Features(nn.Module):
    """Results with images of the middle, a view of one among them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.Conv2d(6, 8, 3, stride=2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.first(x).relu()
        z = self.second(y)
        return y, z, z.flatten(2), z.permute(0, 2, 3, 1)


class Part(nn.Module):
    """A result with gaps between its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 6, 3, groups=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[:, 1:3]


def _depthwise() -> nn.Conv2d:
    return nn.Conv2d(3, 6, 3, groups=3)


def _block(channels: int) -> nn.Sequential:
    """Averages, no maxima: a choice that rounding turns over would move a whole gradient."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, stride=2, bias=False),
        nn.BatchNorm2d(channels),
        nn.SiLU(),
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
        nn.AvgPool2d(3, 2, 1),
        nn.Conv2d(channels, 10, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(10, 4),
    )


MODULES: dict[str, Callable[[], nn.Module]] = {
    "norm, depthwise, pooling, linear": lambda: _block(16),
    "results from the middle": Features,
    "a part of a result": Part,
    "patches as tokens": lambda: nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=5),
        nn.Conv2d(12, 12, 1, groups=12),
        nn.Flatten(2),
        nn.LayerNorm(16),
        nn.Linear(16, 5),
    ),
    "transposed": lambda: nn.Sequential(_depthwise(), nn.ConvTranspose2d(6, 4, 2, stride=2)),
    "pixels with gaps": lambda: nn.Sequential(_depthwise(), nn.Conv2d(6, 4, 1, stride=2), nn.Conv2d(4, 5, 3)),
    "changed in place": lambda: nn.Sequential(_depthwise(), nn.ReLU(inplace=True), nn.Conv2d(6, 4, 3)),
    "no depthwise ones": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 4, 1, stride=2)),
}


def _results(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def _step(module: nn.Module, function: Callable[..., Any], x: torch.Tensor) -> tuple[dict[str, torch.Tensor], Any]:
    """Gradients of the input, the parameters, and buffers; and the results."""
    leaf = x.clone().requires_grad_()
    results = _results(function(leaf))
    torch.manual_seed(3)
    sum(((r * torch.randn(r.shape).to(r.dtype)).sum() for r in results), torch.zeros(())).backward()
    assert leaf.grad is not None
    found = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {"x": leaf.grad, **found, **dict(module.named_buffers())}, results


#: Each module once, each dtype with static sizes and with symbols; these take several times as long.
ALWAYS = [
    ("norm, depthwise, pooling, linear", torch.float32, False),
    ("results from the middle", torch.float32, True),
    ("a part of a result", torch.bfloat16, False),
    ("patches as tokens", torch.bfloat16, False),
    ("transposed", torch.float32, False),
    ("pixels with gaps", torch.float32, False),
    ("changed in place", torch.bfloat16, False),
    ("no depthwise ones", torch.bfloat16, True),
]
MORE = [step for step in product(MODULES, [torch.float32, torch.bfloat16], [False, True]) if step not in ALWAYS]


@pytest.mark.parametrize(("name", "dtype", "dynamic"), cases(ALWAYS, MORE), ids=str)
def test_a_step_with_convolutions_has_the_numbers_and_strides_of_eager(
    name: str, dtype: torch.dtype, dynamic: bool
) -> None:
    module = MODULES[name]().to(dtype)
    theirs, exact, x = copy.deepcopy(module), copy.deepcopy(module).double(), torch.randn(2, 3, 20, 20).to(dtype)
    compiled, reports = compile_counted(module, dynamic=dynamic)
    ours, results = _step(module, compiled, x)
    expected, wanted = _step(theirs, theirs, x)
    truth, _ = _step(exact, exact, x.double())
    assert [r.kind for r in reports] == ["forward", "backward"]
    assert [r.stride() for r in results] == [w.stride() for w in wanted]
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        assert ours[key].stride() == value.stride(), key
        assert same(value, ours[key], truth[key], tol=1e-3 if dtype == torch.float32 else 1e-2), key


def test_what_a_step_keeps_of_convolutions_is_channels_last() -> None:
    kept: list[torch.Tensor] = []
    compiled, _ = compile_counted(_block(16))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        compiled(torch.randn(2, 3, 20, 20)).sum().backward()
    images = [t for t in kept if t.dim() == 4 and t.shape[2] > 3]
    assert len(images) >= 3
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in images)


@pytest.mark.parametrize(
    ("module", "dtype"),
    [(_depthwise, torch.double), (lambda: nn.Conv2d(3, 8, 3), torch.float)],
    ids=["not oneDNN's", "no depthwise ones"],
)
def test_other_convolutions_keep_their_layout(module: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    kept: list[torch.Tensor] = []
    compiled, _ = compile_counted(module().to(dtype))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        compiled(torch.randn(2, 3, 9, 9).to(dtype)).sum().backward()
    images = [t for t in kept if t.shape[-1] > 3]
    assert images
    assert not any(t.is_contiguous(memory_format=torch.channels_last) for t in images)


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (
            lambda: nn.Sequential(_depthwise(), nn.MaxPool2d(2)),
            [
                "2 convolutions and gradients of convolutions run channels-last",
                "1 gradients of max pooling read positions as int32",
            ],
        ),
        (lambda: nn.Conv2d(3, 8, 3), []),
    ],
    ids=["depthwise and max pooling", "neither"],
)
def test_explain_tells_what_was_done_in_the_graph_of_both_directions(
    module: Callable[[], nn.Module], told: list[str]
) -> None:
    (forward,) = inductor_cpu.explain(module(), torch.randn(2, 3, 9, 9)).graphs
    assert [note for note in forward.notes if note[0].isdigit()] == told


def test_numbers_that_eager_mode_draws_meet_the_same_elements() -> None:
    """Dropout between convolutions by tiles, which run channels-last: numbers are drawn in the order of memory."""
    torch.manual_seed(0)
    conv = functools.partial(torch.nn.Conv2d, 32, 32, 3, padding=1)
    model = torch.nn.Sequential(conv(), torch.nn.Dropout(0.5), conv()).train()
    x = torch.randn(2, 32, 20, 20)

    def step(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model.zero_grad()
        y = function(x)
        y.mean().backward()
        return [y.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    compiled = torch.compile(model, backend="icpu", options={"fallback_random": True})
    torch.testing.assert_close(step(compiled), step(model), rtol=1e-4, atol=1e-5)
