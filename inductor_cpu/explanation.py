"""`inductor_cpu.explain(model, *args)`: what the compiler does with a model, for a person to read."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch._dynamo.utils import counters

from inductor_cpu.backend import compile_dynamo_graph
from inductor_cpu.trace import CompileReport, ExternInfo, KernelInfo, count_reasons


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`. `str()` of it is the summary.

    `graphs` has one report per compiled graph, `breaks` the reasons of the graph breaks with their counts, and
    `first_call_s` the seconds of the first call, with Dynamo's tracing and the C++ compiler.
    """

    graphs: tuple[CompileReport, ...]
    breaks: tuple[tuple[str, int], ...]
    first_call_s: float

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The generated kernels of all graphs."""
        return tuple(k for g in self.graphs for k in g.kernels)

    @property
    def vectorized(self) -> int:
        """Number of vectorized kernels."""
        return sum(k.vectorized for k in self.kernels)

    @property
    def externs(self) -> tuple[ExternInfo, ...]:
        """The calls of ATen operators of all graphs."""
        return tuple(e for g in self.graphs for e in g.externs)

    @property
    def extern_calls(self) -> int:
        """Number of calls of ATen operators."""
        return sum(e.count for e in self.externs)

    @property
    def packed_weight_bytes(self) -> int:
        """Bytes of the packed copies of weights."""
        return sum(g.packed_weight_bytes for g in self.graphs)

    def __str__(self) -> str:
        kernels = len(self.kernels)
        lines = [
            f"{len(self.graphs)} graph(s), {sum(n for _, n in self.breaks)} graph break(s),"
            f" first call {self.first_call_s:.2f} s",
            f"{kernels} kernel(s), {self.vectorized}/{kernels} vectorized; {self.extern_calls} extern call(s);"
            f" {self.packed_weight_bytes} bytes of packed weights",
        ]
        lines.extend(f"{count} scalar kernel(s): {reason}" for reason, count in count_reasons(self.kernels))
        for reason, count in self.breaks:
            lines.append(f"graph break, {count} x:")
            # Dynamo's text goes on with its own debug information after the first blank line.
            lines.extend(f"  {line}" for line in takewhile(str.strip, reason.strip().splitlines()))
        lines.extend(str(g) for g in self.graphs)
        return "\n".join(lines)


def _settled(report: CompileReport) -> CompileReport:
    """The report with its measurements as they are now."""
    size = report.packed_weight_bytes
    return replace(report, measure_packed=lambda: size)


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compile `model` anew, call it once with these arguments, and tell what was compiled and how.

    The call is real: buffers and random generators move on. Compiled code of every model is forgotten before and after
    (`torch._dynamo.reset`) and is compiled again when it is next called. A backward graph that is compiled lazily is no
    part of the answer. Raises what the compile or the call raises.
    """
    reports: list[CompileReport] = []
    backend = functools.partial(compile_dynamo_graph, observe=reports.append)
    torch._dynamo.reset()
    before = Counter(counters["graph_break"])
    start = time.perf_counter()
    try:
        torch.compile(model, backend=backend)(*args, **kwargs)
        seconds = time.perf_counter() - start
        reports = [_settled(report) for report in reports]
    finally:
        breaks = Counter(counters["graph_break"]) - before
        torch._dynamo.reset()
    return Explanation(tuple(reports), tuple(breaks.most_common()), seconds)
