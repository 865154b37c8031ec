"""Running a graph in eager mode step by step, at both calls, beside a float64 twin: what exists, and what is exact.

A graph that replays is valid: no operation fails, values stay finite and small, and operations that would turn a
rounding error into a large one have arguments that every correct implementation computes exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tests.fuzz.graph import Graph, Input, Step
from tests.fuzz.rows import ROWS
from tests.fuzz.rows.row import Value
from tests.fuzz.script import fill, input_text, step_text, widened

Tensor = torch.Tensor

MAX_ELEMENTS = 30_000
MAX_RANK = 5
MAX_VALUE = 1e4

#: Whole numbers up to this stay exact through additions, by dtype.
EXACT_LIMIT = {torch.bfloat16: 64, torch.float16: 512, torch.float32: 1 << 18, torch.float64: 1 << 18}

_SCOPE = {"torch": torch, "F": torch.nn.functional, "fill": fill}


class Invalid(Exception):
    """The graph cannot be judged: an operation fails in eager mode, or its values are unfit. The text says why."""


@dataclass
class _Call:
    """The values of one call: as eager has them, and in float64."""

    second: bool
    plain: dict[str, Tensor] = field(default_factory=dict)
    wide: dict[str, Tensor] = field(default_factory=dict)

    def add_input(self, spec: Input) -> None:
        value = eval(input_text(spec, self.second), _SCOPE)
        self.wide[spec.name] = widened(value)
        self.plain[spec.name] = value.detach().requires_grad_(spec.grad)

    def step(self, step: Step) -> Tensor:
        value = eval(step_text(step), _SCOPE, self.plain)
        if not isinstance(value, Tensor):
            raise Invalid(f"{step.op} gives no tensor")
        if value.numel() > MAX_ELEMENTS or value.ndim > MAX_RANK or value.is_complex():
            raise Invalid(f"{step.op} gives too much")
        old = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with torch.no_grad():
                self.wide[step.name] = eval(step_text(step, "wide"), _SCOPE, self.wide)
        finally:
            torch.set_default_dtype(old)
        if self.wide[step.name].shape != value.shape:
            raise Invalid(f"{step.op} has another shape in float64")
        self.plain[step.name] = value
        return value

    def same(self, name: str) -> bool:
        """Whether eager's value is that in float64, and small enough to stay exact."""
        value, wide = self.plain[name].detach(), self.wide[name]
        if not value.is_floating_point():
            return torch.equal(value, wide)
        small = value.abs().max() <= EXACT_LIMIT[value.dtype] if value.numel() else True
        return bool(small) and torch.equal(value.double(), wide)


def _storage(value: Tensor) -> int:
    return value.untyped_storage()._cdata


def _repeats(value: Tensor) -> bool:
    """Whether a dimension repeats the same elements."""
    return any(n > 1 and s == 0 for n, s in zip(value.shape, value.stride(), strict=True))


def _overlaps(value: Tensor) -> bool:
    """Whether two elements of a tensor are one in memory."""
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(value.shape, value.stride(), strict=True):
        places = (places[:, None] + torch.arange(size) * stride).flatten()
    return places.unique().numel() < places.numel()


class Replay:
    """Both calls of a graph, which grows by inputs and steps."""

    def __init__(self) -> None:
        self.calls = (_Call(False), _Call(True))
        self.specs: dict[str, Input] = {}
        self.exact_storage: dict[int, bool] = {}
        self.exact_steps: set[str] = set()
        self.order: list[str] = []

    def add_input(self, spec: Input) -> None:
        """Make the input at both calls."""
        for call in self.calls:
            call.add_input(spec)
        self.specs[spec.name] = spec
        self.exact_storage[_storage(self.calls[0].plain[spec.name])] = spec.fill != "normal"
        self.order.append(spec.name)

    def value(self, name: str) -> Value:
        """What a row may know of a value."""
        tensor, other = self.calls[0].plain[name], self.calls[1].plain[name]
        parameter = name in self.specs and self.specs[name].parameter
        return Value(name, tensor, tuple(other.shape), self.is_exact(name), parameter)

    def is_exact(self, name: str) -> bool:
        """Whether the value, as it is now, does not depend on the order of additions."""
        return self.exact_storage[_storage(self.calls[0].plain[name])]

    def push(self, step: Step, grad: bool) -> None:
        """Run a step at both calls. Raises Invalid; the replay is then to be thrown away if the step is in place."""
        row = ROWS[step.op]
        args_exact = all(self.is_exact(name) for name in step.args)
        if row.needs_exact and not args_exact:
            raise Invalid(f"{step.op} needs exact arguments")
        if row.kind == "inplace" and any(_overlaps(call.plain[step.args[0]]) for call in self.calls):
            raise Invalid(f"{step.op} changes elements that share memory, which torch.compile does not follow")
        if row.embeds and any(
            _overlaps(x) and not _repeats(x) for x in (call.plain[step.args[0]] for call in self.calls)
        ):
            raise Invalid(f"eager's {step.op} writes into a copy whose elements share memory")
        try:
            with torch.set_grad_enabled(grad):
                results = [call.step(step) for call in self.calls]
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            raise Invalid(f"{step.op}: {error}") from error
        first, other = results
        if first.dtype != other.dtype or first.ndim != other.ndim:
            raise Invalid("the calls disagree")
        for value in results:
            finite = value.detach()
            if finite.is_floating_point() and finite.numel() and not (finite.abs().max() < MAX_VALUE):
                raise Invalid(f"{step.op} leaves the range")
        exact = row.keeps and args_exact and all(call.same(step.name) for call in self.calls)
        if not exact and not first.is_floating_point():
            raise Invalid(f"{step.op} depends on rounding")
        key = _storage(first)
        if row.kind == "plain" and key in self.exact_storage:
            raise Invalid(f"{step.op} gives an alias")
        self.exact_storage[key] = exact and self.exact_storage.get(key, True)
        if self.exact_storage[key]:
            self.exact_steps.add(step.name)
        self.order.append(step.name)


def replay(graph: Graph) -> Replay:
    """All of a graph. Raises Invalid."""
    made = Replay()
    known: set[str] = set()
    for spec in graph.inputs:
        made.add_input(spec)
        known.add(spec.name)
    for step in graph.steps:
        if not known.issuperset(step.args):
            raise Invalid(f"{step.name} has unknown arguments")
        made.push(step, graph.backward)
        known.add(step.name)
    if not graph.outputs or not known.issuperset(graph.outputs):
        raise Invalid("unknown outputs")
    return made


def namespace(**names: Any) -> dict[str, Any]:
    """What the text of a step may name."""
    return {**_SCOPE, **names}
