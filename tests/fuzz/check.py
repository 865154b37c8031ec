"""Judging one graph: compile it in several ways, run both calls, and say which way is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch._dynamo

from tests.fuzz.calls import call, model_of
from tests.fuzz.graph import Graph
from tests.fuzz.judge import Reference, complaints, reference
from tests.fuzz.replay import Invalid, replay
from tests.fuzz.script import dynamic_option

#: Ways of compiling: the options of the backend.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "avx2": {"cpp.simdlen": 256},
    "scalar": {"cpp.simdlen": 1},
    "threads": {"cpp.threads": 3, "cpp.min_chunk_size": 1},
    "interpreter": {"debug_interpret": True},
}

#: Noisy runs before a number that looks wrong counts as wrong.
CONFIRMING_TRIALS = 40


@dataclass(frozen=True)
class Outcome:
    """status: "ok", "wrong" (values), "error" (an exception that eager does not raise), "torch" (aot_eager does the
    same), "invalid", and from the process around it "crash" or "hang". detail: text for a person. signature: what
    makes two findings the same."""

    status: str
    detail: str = ""
    signature: str = ""

    @property
    def finding(self) -> bool:
        """Whether the compiler is at fault."""
        return self.status not in ("ok", "torch", "invalid")


def variants_of(seed: int) -> tuple[str, ...]:
    """One or two ways in turn: how a graph is compiled matters less than how many graphs are."""
    turns = (("default",), ("default",), ("default", "interpreter"), ("avx2",), ("scalar",), ("threads",))
    return Random(seed).choice(turns)


def evaluate(graph: Graph, variants: Sequence[str] | None = None) -> Outcome:
    """Compile and judge. Never raises for a fault of the compiler."""
    try:
        made = replay(graph)
        refs = [reference(graph, made, second) for second in (False, True)]
    except (Invalid, RuntimeError) as error:
        return Outcome("invalid", str(error))
    for variant in variants or variants_of(graph.seed):
        status, text = _attempt(graph, refs, "icpu", VARIANTS[variant])
        if status != "ok":
            return _finding(graph, refs, status, text)
    return Outcome("ok")


def _attempt(graph: Graph, refs: Sequence[Reference], backend: str, options: dict[str, Any]) -> tuple[str, str]:
    """Both calls of one compiled model: ("ok" | "wrong" | "error", text)."""
    torch._dynamo.reset()
    model = model_of(graph)
    more: dict[str, Any] = {"options": options} if options else {}
    compiled = torch.compile(model, backend=backend, dynamic=dynamic_option(graph), **more)
    for ref in refs:
        try:
            results = call(graph, compiled, ref.second, mark=graph.dynamic == "mark", weights=model.weights)
        except Exception as error:
            return "error", f"call {ref.second + 1}: {type(error).__name__}: {error}"
        found = complaints(results, ref)
        if found and ref.trials < CONFIRMING_TRIALS:
            ref.widen(CONFIRMING_TRIALS)
            found = complaints(results, ref)
        if found:
            return "wrong", "\n".join(f"call {ref.second + 1}: {line}" for line in found)
    return "ok", ""


def _finding(graph: Graph, refs: Sequence[Reference], status: str, text: str) -> Outcome:
    """The outcome of a graph that a variant fails: which variants do, and whether AOTAutograd alone does too."""
    if _is_torchs(graph, refs, text):
        return Outcome("torch", text)
    table = {name: _attempt(graph, refs, "icpu", options)[0] for name, options in VARIANTS.items()}
    torch._dynamo.reset()
    summary = ", ".join(f"{name} {result}" for name, result in table.items())
    kind = re.sub(r"\d+", "N", _cause(text)) if status == "error" else _stage(table)
    return Outcome(status, f"{text}\nvariants: {summary}\nstage: {_stage(table)}", f"{status}: {kind}"[:200])


def _is_torchs(graph: Graph, refs: Sequence[Reference], text: str) -> bool:
    """Whether torch fails without the compiler. For strides and aliases also with torch's decompositions, because the
    compiler gives the strides that the fake tensors of the traced graph have."""
    backends = ["aot_eager"]
    if all(": strides " in line or ": aliases " in line for line in text.splitlines()):
        backends.append("aot_eager_decomp_partition")
    return any(_attempt(graph, refs, backend, {})[0] != "ok" for backend in backends)


def _cause(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "?"


def _stage(table: dict[str, str]) -> str:
    """The stage at fault, as the variants that fail tell it."""
    if table["interpreter"] != "ok":
        return "lowering"
    if table["scalar"] != "ok":
        return "schedule or scalar code"
    if table["avx2"] != "ok" or table["default"] != "ok":
        return "vector code"
    return "parallel code" if table["threads"] != "ok" else "only sometimes"
