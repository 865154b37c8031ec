"""Judging one graph: compile it in several ways, run both calls, and say which way is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo

from inductor_cpu.codegen import around, lookups, prefetch, tiles
from inductor_cpu.ir import nodes
from inductor_cpu.lower import ranking
from inductor_cpu.schedule import after_columns, columns, divide, strips
from tests.fuzz.calls import Results, call, model_of
from tests.fuzz.graph import Graph
from tests.fuzz.judge import Reference, complaints, reference
from tests.fuzz.replay import Invalid, replay
from tests.fuzz.script import dynamic_option


@dataclass(frozen=True)
class Variant:
    """A way of compiling: the options of the backend, and whether small operands count as large ones."""

    options: Mapping[str, Any] = field(default_factory=dict)
    large: bool = False


VARIANTS: dict[str, Variant] = {
    "default": Variant(),
    "avx2": Variant({"cpp.simdlen": 256}),
    "scalar": Variant({"cpp.simdlen": 1}),
    "threads": Variant({"cpp.threads": 3, "cpp.min_chunk_size": 1}),
    "large": Variant(large=True),
    "large in threads": Variant({"cpp.threads": 3, "cpp.min_chunk_size": 1}, large=True),
    "interpreter": Variant({"debug_interpret": True}),
}

#: What decides that operands are large, and so low that those of a graph are.
LOWERED: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (columns, {"LEAST_BYTES": 64, "FEWEST_VECTORS": 0, "ROWS": (8, 2), "SHORT_ROWS_BYTES": 64}),
    (strips, {"LEAST_BYTES": 64, "PIECE_BYTES": 4096, "PIECES_PER_THREAD": 1, "BLOCK_ROWS": 1}),
    (after_columns, {"LEAST_BYTES": 64}),
    (prefetch, {"STREAM_BYTES": 64, "AHEAD_BYTES": 64}),
    (nodes, {"LONGEST_SHORT_ROW": 2}),
    (ranking, {"LONGEST_SHORT_ROW": 2}),
    (tiles, {"LEAST_TILES": 3}),
    (around, {"MOST_KEPT": 64}),
    (lookups, {"LEAST_ROW_BYTES": 8, "TABLE_BYTES": 64}),
    (divide, {"POINTS_PER_ELEMENT": 1, "LEAST_POINTS": 4, "LEAST_OUTERMOST": 2, "FAR": 0, "FAR_ONE_BY_ONE": 0}),
)

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
    alone = ("avx2", "scalar", "threads", "large", "large in threads")
    turns = (("default",), ("default", "interpreter"), *((name,) for name in alone))
    return Random(seed).choice(turns)


@dataclass(frozen=True)
class Attempt:
    """The calls of one compiled model, up to the first that is not right. status: "ok", "wrong" or "error". text: for a
    person. subjects: what is wrong with the last call (`complaints`). results: of the calls that returned."""

    status: str
    text: str
    subjects: frozenset[str]
    results: tuple[Results, ...]


def evaluate(graph: Graph, variants: Sequence[str] | None = None) -> Outcome:
    """Compile and judge. Never raises for a fault of the compiler."""
    try:
        made = replay(graph)
        refs = [reference(graph, made, second) for second in (False, True)]
    except (Invalid, RuntimeError) as error:
        return Outcome("invalid", str(error))
    for variant in variants or variants_of(graph.seed):
        attempt = attempt_with(graph, refs, "icpu", VARIANTS[variant])
        if attempt.status != "ok":
            return _finding(graph, refs, attempt)
    return Outcome("ok")


def attempt_with(graph: Graph, refs: Sequence[Reference], backend: str, variant: Variant) -> Attempt:
    """Compile the model of a graph and call it as `refs` says."""
    with ExitStack() as stack:
        for module, numbers in LOWERED if variant.large else ():
            stack.enter_context(patch.multiple(module, **numbers))
        return _attempt(graph, refs, backend, variant.options)


def _attempt(graph: Graph, refs: Sequence[Reference], backend: str, options: Mapping[str, Any]) -> Attempt:
    torch._dynamo.reset()
    model = model_of(graph)
    more: dict[str, Any] = {"options": dict(options)} if options else {}
    compiled = torch.compile(model, backend=backend, dynamic=dynamic_option(graph), **more)
    returned: list[Results] = []
    for ref in refs:
        try:
            results = call(graph, compiled, ref.second, mark=graph.dynamic == "mark", weights=model.weights)
        except Exception as error:
            text = f"call {ref.second + 1}: {type(error).__name__}: {error}"
            return Attempt("error", text, frozenset(), tuple(returned))
        returned.append(results)
        found = complaints(results, ref)
        if found and ref.trials < CONFIRMING_TRIALS:
            ref.widen(CONFIRMING_TRIALS)
            found = complaints(results, ref)
        if found:
            text = "\n".join(f"call {ref.second + 1}: {subject}: {line}" for subject, line in found.items())
            return Attempt("wrong", text, frozenset(found), tuple(returned))
    return Attempt("ok", "", frozenset(), tuple(returned))


def _finding(graph: Graph, refs: Sequence[Reference], attempt: Attempt) -> Outcome:
    """The outcome of a graph that a variant fails: which variants do, and whether AOTAutograd alone does the same, or
    eager mode has no numbers to compare with."""
    if attempt.status == "wrong" and attempt.subjects <= refs[len(attempt.results) - 1].erratic():
        return Outcome("torch", f"eager's own numbers are erratic: {attempt.text}")
    if is_torchs(attempt, attempt_with(graph, refs, "aot_eager", Variant()), refs):
        return Outcome("torch", attempt.text)
    table = {name: attempt_with(graph, refs, "icpu", variant).status for name, variant in VARIANTS.items()}
    torch._dynamo.reset()
    summary = ", ".join(f"{name} {result}" for name, result in table.items())
    kind = re.sub(r"\d+", "N", _cause(attempt.text)) if attempt.status == "error" else _stage(table)
    text = f"{attempt.text}\nvariants: {summary}\nstage: {_stage(table)}"
    return Outcome(attempt.status, text, f"{attempt.status}: {kind}"[:200])


def is_torchs(attempt: Attempt, front: Attempt, refs: Sequence[Reference]) -> bool:
    """Whether torch without a compiler (`front`: the same calls with aot_eager) does the same as a failed attempt: the
    same error, or in all that is wrong the same shapes, strides, aliases and numbers. Decompositions are the compiler's
    choice, so that aot_eager has none."""
    if attempt.status == "error":
        return front.status == "error" and _message(attempt.text) == _message(front.text)
    last = len(attempt.results) - 1
    if last >= len(front.results):
        return False
    return not attempt.subjects & complaints(attempt.results[last], refs[last].of(front.results[last])).keys()


def _message(text: str) -> str:
    """The start of an error, without the name of the backend."""
    return " ".join(re.sub(r"backend='\w+'", "", text).split())[:400]


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
    if table["threads"] != "ok":
        return "parallel code"
    large = table["large"] != "ok" or table["large in threads"] != "ok"
    return "code for large operands" if large else "only sometimes"
