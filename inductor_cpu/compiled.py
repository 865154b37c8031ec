"""What a compile of a graph gives: a callable, and what stands for it where there are no kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import fx
from torch.autograd import forward_ad

from inductor_cpu.errors import Unsupported, UserError
from inductor_cpu.ir import interpret
from inductor_cpu.ir.nodes import Program
from inductor_cpu.trace import CompileReport, Trace

log = logging.getLogger("inductor_cpu.pipeline")

Kind = Literal["inference", "forward", "backward"]


class CompiledGraph:
    """A compiled graph: called with one list of inputs, which it empties; returns the list of results."""

    _boxed_call = True

    def __init__(self, call: Callable[[list[Any]], Any], report: CompileReport) -> None:
        self._call = call
        self.report = report

    def __call__(self, inputs: list[Any]) -> Any:
        if forward_ad._current_level >= 0:
            refuse_tangents(inputs)
        return self._call(inputs)


def refuse_tangents(inputs: list[Any]) -> None:
    """Raise UserError if an input is a dual tensor: kernels would drop its tangent without a word."""
    tensors = (x for x in inputs if isinstance(x, torch.Tensor))
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise UserError(
            "forward-mode automatic differentiation does not reach into a function compiled with icpu."
            " Call the function without torch.compile, or use torch.func.jvp inside of it."
        )


def run_eagerly(gm: fx.GraphModule, kind: Kind, trace: Trace, error: Unsupported) -> CompiledGraph:
    """The graph, operator by operator in eager mode."""
    log.warning("graph %s runs in eager mode: %s", trace.graph, error.reason)

    def call(inputs: list[Any]) -> Any:
        args = list(inputs)
        inputs.clear()
        with torch.no_grad():
            return list(gm.forward(*args))

    note = f"the whole graph runs in eager mode: {error.reason}"
    return CompiledGraph(call, CompileReport(trace.graph, kind, trace.timings, notes=(note,)))


def interpreted(program: Program, kind: Kind, trace: Trace) -> CompiledGraph:
    """The program under the reference interpreter (`debug_interpret`)."""

    def call(inputs: list[Any]) -> Any:
        args = list(inputs)
        inputs.clear()
        with torch.no_grad():
            return interpret.run(program, args)

    note = "debug_interpret: the reference interpreter runs this graph"
    return CompiledGraph(call, CompileReport(trace.graph, kind, trace.timings, notes=(note,)))
