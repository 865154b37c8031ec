"""Ours and the libraries' ways to compute the same, as functions without arguments that can take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from inductor_cpu.config import snapshot
from inductor_cpu.graph.decompositions import decompositions
from inductor_cpu.lower.rules import RULES
from inductor_cpu.pipeline import compile_graph
from inductor_cpu.trace import Trace

mkldnn = torch.ops.mkldnn

Call = Callable[[], Any]

#: Seconds that the rounds of one row may take, and how many there are at least and at most.
BUDGET, FEWEST, MOST = 0.4, 7, 400


@dataclass
class Row:
    """One line of the table.

    work: of one call, in operations, or bytes where memory is the limit; limit: measures how much of it the machine
    does in a second, None where the competitor "read" is the limit; seconds: medians by competitor, of "limit" what the
    work takes at that pace; bars: (what, reached)."""

    kind: str
    name: str
    threads: int
    work: float
    limit: Callable[[], float] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    bars: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.seconds["read" if self.limit is None else "limit"] / self.seconds["icpu"]

    def times(self, other: str) -> float:
        """How many times faster ours is."""
        return self.seconds[other] / self.seconds["icpu"]

    def bar(self, what: str, value: float, least: float) -> None:
        """Note whether `value` is at least `least`."""
        self.bars.append((f"{what} {value:.2f} >= {least:g}", value >= least))


def ours(module: nn.Module, *inputs: torch.Tensor | None) -> Call:
    """What icpu makes of a module, without the guards that torch.compile checks at each call."""
    found: list[tuple[Callable[[list[Any]], Any], list[Any]]] = []

    def compiler(gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[[list[Any]], Any]:
        context = TracingContext.get()
        assert context.fw_metadata is not None
        static = frozenset(context.fw_metadata.static_input_indices)
        graph = compile_graph(gm, kind="inference", config=snapshot(), trace=Trace("bench"), static_inputs=static)

        def call(args: list[Any]) -> Any:
            found.append((graph, list(args)))
            return graph(args)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, inference_compiler=compiler, decompositions=decompositions(RULES))
    with torch.no_grad():
        torch.compile(module, backend=backend, dynamic=False)(*inputs)
    graph, args = found[-1]
    return lambda: graph(list(args))


def libraries(x: torch.Tensor, weight: torch.Tensor) -> dict[str, Call]:
    """The BLAS's product, and oneDNN's with a packed weight, which in bf16 needs more than AVX2."""
    calls: dict[str, Call] = {"blas": lambda: torch.mm(x, weight.t())}
    if x.dtype == torch.float32 or mkldnn._is_mkldnn_bf16_supported():
        packed = mkldnn._reorder_linear_weight(weight, None)
        calls["onednn"] = lambda: mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    return calls


def compete(benchmark: Any, row: Row, calls: Mapping[str, Call]) -> Row:
    """Let all take turns: the others and the limit before each round of ours, which pytest-benchmark times. Fills
    `row.seconds`."""
    times: dict[str, list[float]] = {name: [] for name in calls if name != "icpu"}
    paces: list[float] = []

    def others() -> None:
        if row.limit is not None:
            paces.append(row.limit())
        for name, taken in times.items():
            start = time.perf_counter()
            calls[name]()
            taken.append(time.perf_counter() - start)

    for _ in range(2):
        for call in calls.values():
            call()
    start = time.perf_counter()
    for call in calls.values():
        call()
    rounds = int(BUDGET / max(time.perf_counter() - start, 1e-9))
    benchmark.pedantic(calls["icpu"], setup=others, rounds=min(max(rounds, FEWEST), MOST), iterations=1)
    row.seconds = {name: statistics.median(taken) for name, taken in times.items()}
    row.seconds["icpu"] = benchmark.stats.stats.median
    if paces:
        row.seconds["limit"] = row.work / statistics.median(paces)
    benchmark.extra_info.update(threads=row.threads, share=row.share, **row.seconds)
    return row
