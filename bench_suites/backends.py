"""The competitors by name, as arguments of torch.compile, and the counters that icpu gives."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._inductor import config as inductor_config

from inductor_cpu.backend import compile_dynamo_graph
from inductor_cpu.trace import CompileReport, count_reasons

Observer = Callable[[CompileReport], None]

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "inductor-freezing": {"backend": "inductor", "options": {"freezing": True}},
    "inductor-max-autotune": {"backend": "inductor", "options": {"freezing": True, "max_autotune": True}},
    "icpu-max-autotune": {"backend": "icpu", "mode": "max-autotune"},
}
"""Names that stand for a backend with options. Any other is a registered backend's own; `eager` compiles nothing."""


class Frozen:
    """A function compiled by stock Inductor with its global switch `freezing` on during the first call: Dynamo reads it
    while it traces, and as an option alone it comes too late to make constants of the parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._called = function, False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._called:
            return self._function(*args, **kwargs)
        with inductor_config.patch(freezing=True):
            result = self._function(*args, **kwargs)
        self._called = True
        return result


def freezes(arguments: Mapping[str, Any]) -> bool:
    """Whether these arguments of torch.compile ask for freezing."""
    return bool(arguments.get("options", {}).get("freezing"))


def check_names(names: list[str]) -> None:
    """Raise ValueError for a backend that nobody has registered."""
    known = {"eager", *VARIANTS, *torch._dynamo.list_backends(exclude_tags=())}
    for name in names:
        if name not in known:
            raise ValueError(f"no backend {name!r}; there are {', '.join(sorted(known))}")


def is_icpu(name: str) -> bool:
    """Whether a name is icpu, with or without options: it gives counters."""
    return name == "icpu" or name.startswith("icpu-")


def compiler(
    name: str, observe: Observer, *, dynamic: bool, eager_random: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What turns a module or a function into the backend's. icpu's reports go to `observe`. eager_random: icpu draws
    eager's random numbers, so that results can be compared."""
    if name == "eager":
        return lambda function: function
    # A copy: torch.compile takes entries out of `options`.
    arguments: dict[str, Any] = copy.deepcopy(dict(VARIANTS.get(name, {"backend": name})))
    if is_icpu(name):
        options = {"fallback_random": eager_random}
        backend = functools.partial(
            compile_dynamo_graph, observe=observe, mode=arguments.pop("mode", None), options=options
        )
        arguments["backend"] = backend
    wrap: Callable[..., Any] = Frozen if freezes(arguments) else lambda function: function
    return lambda function: wrap(torch.compile(function, dynamic=True if dynamic else None, **arguments))


def counters(reports: list[CompileReport]) -> dict[str, Any]:
    """icpu's own counts over all graphs, as plain data: kernels, vectorization, ATen calls, packed weights, stages."""
    kernels = [k for r in reports for k in r.kernels]
    externs: dict[str, int] = {}
    reasons: dict[str, str] = {}
    stages: dict[str, float] = {}
    for report in reports:
        for extern in report.externs:
            externs[extern.op] = externs.get(extern.op, 0) + extern.count
            reasons.setdefault(extern.op, extern.reason)
        for timing in report.timings:
            stages[timing.stage] = stages.get(timing.stage, 0.0) + timing.ms
    return {
        "graphs": len(reports),
        "eager_graphs": [note for r in reports if r.kind == "eager" for note in r.notes],
        "kernels": len(kernels),
        "vectorized": sum(k.vectorized for k in kernels),
        "scalar_reasons": dict(count_reasons(kernels)),
        "externs": externs,
        "extern_reasons": reasons,
        "packed_bytes": sum(r.packed_weight_bytes for r in reports),
        "stage_ms": stages,
    }
