"""One layer in eager mode and compiled, checked and timed in turns in this process."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench_suites.kernels.check import difference
from bench_suites.layers.row import Layer
from bench_suites.suites.case import tensors
from bench_suites.timing import take_turns
from inductor_cpu import backend  # noqa: F401  (registers icpu)

SECONDS = 0.4  # of calls of a layer, both sides together
ROUNDS = (15, 400)


@dataclass(frozen=True)
class Measured:
    """Microseconds of the median call of each side; error: what went wrong in place of them, or what differs."""

    name: str
    eager: float = 0.0
    compiled: float = 0.0
    error: str = ""

    @property
    def lost(self) -> float:
        """Microseconds that a call takes longer than in eager mode; negative where it is faster."""
        return self.compiled - self.eager


def measure(layer: Layer, dtype: torch.dtype, training: bool) -> Measured:
    """One layer. Errors of building, compiling and calling are told, not raised."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        module, inputs = layer.build()
        module = module.to(dtype).train(training)
        inputs = tuple(i.to(dtype) if i.is_floating_point() else i for i in inputs)
        twin, exact = copy.deepcopy(module), copy.deepcopy(module).double()  # before any call, which may change buffers
        eager = _call(module, inputs, training)
        compiled = _call(torch.compile(twin, backend="icpu"), inputs, training)
        expected, got = eager(), compiled()
        wrong = "" if layer.random else _difference(expected, got, dtype)
        if wrong:  # by more than a tolerance: then eager mode may be as wrong
            wide = tuple(i.double() if i.is_floating_point() else i for i in inputs)
            wrong = difference(got, expected, _call(exact, wide, training)()) or ""
        rounds = _rounds(eager) if not wrong else 0
        times = take_turns({"eager": eager, "icpu": compiled}, rounds + 3) if rounds else {}
    except Exception as error:  # a layer that fails must not end the survey
        return Measured(layer.name, error=f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
    if wrong:
        return Measured(layer.name, error=wrong)
    eager_us, compiled_us = (1e3 * statistics.median(times[name][3:]) for name in ("eager", "icpu"))
    return Measured(layer.name, eager_us, compiled_us)


def _call(module: Callable[..., Any], inputs: Sequence[torch.Tensor], training: bool) -> Callable[[], list[Any]]:
    """A call without a gradient, or a step with the gradients of inputs and weights: its results."""
    if not training:

        def infer() -> list[Any]:
            with torch.no_grad():
                return tensors(module(*inputs))

        return infer
    leaves = tuple(i.detach().clone().requires_grad_(i.is_floating_point()) for i in inputs)
    wanted = [t for t in (*leaves, *_parameters(module)) if t.requires_grad]
    # Gradients that come from outside: a loss would take longer than most of the layers.
    above = [torch.cos(torch.arange(t.numel())).reshape(t.shape).to(t.dtype) for t in _trained(module(*leaves))]

    def step() -> list[Any]:
        results = tensors(module(*leaves))
        gradients = torch.autograd.grad(_trained(results), wanted, above, allow_unused=True)
        return [*results, *(g for g in gradients if g is not None)]

    return step


def _trained(results: Any) -> list[torch.Tensor]:
    return [t for t in tensors(results) if t.requires_grad]


def _parameters(module: Callable[..., Any]) -> list[torch.Tensor]:
    return list(module.parameters()) if isinstance(module, torch.nn.Module) else []


def _difference(expected: list[Any], found: list[Any], dtype: torch.dtype) -> str:
    """What differs by more than the tolerance of the suites; empty where nothing does."""
    if len(expected) != len(found):
        return f"{len(found)} results in place of {len(expected)}"
    tolerance = 1e-3 if dtype == torch.float32 else 3e-2
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {b.dtype}{list(b.shape)} in place of {a.dtype}{list(a.shape)}"
        scale = max(1.0, float(a.detach().double().nan_to_num().abs().max())) if a.numel() else 1.0
        if not torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"result {number} differs"
    return ""


def _rounds(function: Callable[[], Any]) -> int:
    start = time.perf_counter()
    function()
    return max(ROUNDS[0], min(ROUNDS[1], int(SECONDS / 2 / (time.perf_counter() - start))))
