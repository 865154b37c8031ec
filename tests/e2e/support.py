"""What the end-to-end tests share: compile, count the compiles, compare with eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch

from inductor_cpu.backend import compile_dynamo_graph
from inductor_cpu.trace import CompileReport

Function = Callable[..., Any]


class Layers(torch.nn.Module):
    """Some layers, each on an image of its own: they share templates, which are compiled once."""

    def __init__(self, layers: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
        return [one(image) for one, image in zip(self.layers, images, strict=True)]


def step(module: torch.nn.Module, function: Callable[..., object], images: list[torch.Tensor]) -> list[torch.Tensor]:
    """Results, and gradients of images and parameters, for gradients of results that are drawn from one seed."""
    module.zero_grad()
    images = [image.detach().requires_grad_() for image in images]
    results = function(images)
    generator = torch.Generator().manual_seed(1)
    torch.autograd.backward(results, [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results])
    return [*results, *(image.grad for image in images), *(p.grad for p in module.parameters())]


def compile_counted(function: Function, **options: Any) -> tuple[Function, list[CompileReport]]:
    """`function` compiled with icpu, and a list that gets one report per graph. `options`: of torch.compile."""
    reports: list[CompileReport] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any, options: dict[str, object] | None = None) -> Function:
        return compile_dynamo_graph(gm, example_inputs, options=options, observe=reports.append)

    return torch.compile(function, backend=backend, **options), reports


def assert_like_eager(function: Function, *args: Any, **tolerances: float) -> Any:
    """Run `function` in eager mode and compiled, on separate copies of `args` and from the same seed.

    Outputs and, after the call, arguments must agree in value, dtype, shape and stride. There must be a compiled graph.
    Returns the compiled outputs.
    """
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    torch.manual_seed(7)
    expected = function(*theirs)
    compiled, reports = compile_counted(function)
    torch.manual_seed(7)
    actual = compiled(*ours)
    assert reports, "nothing was compiled"
    assert all(r.kind != "eager" for r in reports), reports
    assert_same((actual, ours), (expected, theirs), **tolerances)
    return actual


def assert_same(actual: Any, expected: Any, **tolerances: float) -> None:
    """Equal structure, values, dtypes, shapes and strides."""
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=True, **tolerances)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, **tolerances)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same(actual[key], expected[key], **tolerances)
    else:
        assert actual == expected
