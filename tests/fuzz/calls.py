"""Calling a model of a graph once: fresh inputs in; results, changed inputs and gradients out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.graph import Graph
from tests.fuzz.script import Model, fill, function_of, make_inputs, marked_dims, widened

Tensor = torch.Tensor


@dataclass(frozen=True)
class Results:
    """What one call gives. inputs: the arguments after the call. grads: None where there is none. requires_grad: of the
    outputs. aliases: pairs of positions in outputs + inputs that share storage."""

    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    grads: tuple[Tensor | None, ...]
    requires_grad: tuple[bool, ...]
    aliases: frozenset[tuple[int, int]]

    def tensors(self) -> Iterator[Tensor | None]:
        """Everything, in the order of `labels`."""
        yield from self.outputs
        yield from self.inputs
        yield from self.grads


def labels(graph: Graph) -> list[str]:
    """What each tensor of `Results.tensors` is."""
    calls = [x for x in graph.inputs if not x.parameter]
    leaves = [x for x in (*calls, *(x for x in graph.inputs if x.parameter)) if x.grad]
    outputs = [f"output {k} ({name})" for k, name in enumerate(graph.outputs)]
    return [*outputs, *(f"argument {x.name} after the call" for x in calls), *(f"gradient of {x.name}" for x in leaves)]


def model_of(graph: Graph, mode: str = "plain", exact: Collection[str] = (), **names: Any) -> Model:
    """The module of a graph, with the parameters of the first call."""
    parameters = [x for x in graph.inputs if x.parameter]
    made = make_inputs(graph, False)
    values = [widened(made[x.name]) if mode == "wide" else made[x.name].detach() for x in parameters]
    model = Model(function_of(graph, mode, exact, **names), values)
    for parameter, spec in zip(model.weights, parameters, strict=True):
        parameter.requires_grad_(spec.grad)
    return model


def call(
    graph: Graph,
    model: torch.nn.Module,
    second: bool,
    *,
    wide: bool = False,
    mark: bool = False,
    noise: Callable[[Tensor], Tensor] = lambda x: x,
    weights: torch.nn.ParameterList | None = None,
) -> Results:
    """One call and its gradients. wide: inputs in float64. mark: mark the dimensions that change. noise: applied to
    the gradients that come in. weights: of the module, which get the values of this call."""
    specs = [x for x in graph.inputs if not x.parameter]
    parameters = [x for x in graph.inputs if x.parameter]
    made = make_inputs(graph, second)
    if wide:
        made = {x.name: widened(made[x.name]).requires_grad_(x.grad) for x in graph.inputs}
    owned = list(weights if weights is not None else model.weights)  # type: ignore[arg-type]
    with torch.no_grad():
        for own, spec in zip(owned, parameters, strict=True):
            own.copy_(made[spec.name])
    args = [made[x.name] for x in specs]
    if mark:
        for spec, arg in zip(specs, args, strict=True):
            for dim in marked_dims(spec):
                torch._dynamo.maybe_mark_dynamic(arg, dim)
    with torch.set_grad_enabled(graph.backward):
        outputs = tuple(model(*args))
    leaves = [t for t, x in zip([*args, *owned], [*specs, *parameters], strict=True) if x.grad]
    ends = [o for o in outputs if o.requires_grad]
    marks = [fill(tuple(o.shape), "bfloat16", "normal", 4, k).to(o.dtype) for k, o in enumerate(ends)]
    grads: tuple[Tensor | None, ...] = ()
    if leaves and ends:
        grads = torch.autograd.grad(ends, leaves, [noise(m) for m in marks], allow_unused=True)
    grads = grads or (None,) * len(leaves)
    return Results(
        tuple(o.detach() for o in outputs),
        tuple(a.detach() for a in args),
        grads,
        tuple(o.requires_grad for o in outputs),
        _aliases([*outputs, *args]),
    )


def _aliases(tensors: list[Tensor]) -> frozenset[tuple[int, int]]:
    keys = [t.untyped_storage().data_ptr() if t.numel() else -1 - k for k, t in enumerate(tensors)]
    return frozenset((i, j) for i in range(len(keys)) for j in range(i) if keys[i] == keys[j])
