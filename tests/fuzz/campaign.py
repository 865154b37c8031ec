"""A run of the graph fuzzer: seeds in, findings as scripts and a summary out."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inductor_cpu.config import snapshot
from tests.fuzz.check import VARIANTS, Outcome
from tests.fuzz.generate import generate
from tests.fuzz.graph import Graph
from tests.fuzz.script import standalone
from tests.fuzz.shrink import shrink
from tests.fuzz.workers import SECONDS, Job, Pool

#: Shrinking the findings of a run takes at most this part of its time again.
SHRINKING = 0.4


@dataclass(frozen=True)
class Limits:
    """seconds: for starting graphs. processes: at the same time. all_variants: compile in all ways. patience: seconds
    until a graph hangs."""

    seconds: float
    processes: int = 1
    all_variants: bool = False
    patience: float = SECONDS


def next_seed(progress: Path) -> int:
    """The first seed that no recorded run has done."""
    if not progress.exists():
        return 0
    rows = [json.loads(line) for line in progress.read_text().splitlines()]
    return max((row["first_seed"] + row["graphs"] for row in rows), default=0)


def run(seeds: Iterator[int], limits: Limits, out: Path) -> dict[str, int]:
    """Judge the graphs of `seeds` until the time is over; findings are shrunk and written to `out`."""
    counts: Counter[str] = Counter()
    findings: list[tuple[Graph, Outcome]] = []
    known: set[str] = set()
    with Pool(limits.processes, limits.patience) as pool:
        for job, graph, outcome in pool.run(_jobs(seeds, limits)):
            counts[outcome.status] += 1
            if outcome.status in ("torch", "invalid"):
                print(f"seed {job.seed}: {outcome.status}: {outcome.detail.splitlines()[0]}", flush=True)
            if sum(counts.values()) % 100 == 0:
                print(f"{sum(counts.values())} graphs, up to seed {job.seed}", flush=True)
            if outcome.finding:
                print(f"seed {job.seed}: {outcome.signature}\n  {outcome.detail.splitlines()[0]}", flush=True)
                failing = graph if graph is not None else generate(job.seed)
                findings.append((failing, outcome))
                _write(out, failing, outcome)
    with Pool(1, limits.patience) as pool:
        for graph, outcome in findings:
            share = SHRINKING * limits.seconds / len(findings)
            title = f"{outcome.signature}: {' '.join(graph.ops)}"
            small, final = _shrunk(pool, graph, outcome, share)
            key = f"{outcome.signature}: {' '.join(small.ops)}"
            if key in known:
                continue
            known.add(key)
            path = _write(out, small, final)
            print(
                f"seed {graph.seed}: {len(graph.steps)} steps ({title[:80]}), shrunk to {small.ops}: {path}", flush=True
            )
    _forget_kernels()
    return {"graphs": sum(counts.values()), **{k: counts[k] for k in sorted(counts)}, "findings": len(findings)}


def _jobs(seeds: Iterator[int], limits: Limits) -> Iterator[Job]:
    end = time.monotonic() + limits.seconds
    for seed in seeds:
        if time.monotonic() > end:
            return
        yield Job(seed, variants=tuple(VARIANTS) if limits.all_variants else None)


def _shrunk(pool: Pool, graph: Graph, outcome: Outcome, seconds: float) -> tuple[Graph, Outcome]:
    """The smallest graph that fails the same way, and its outcome."""
    last = [outcome]

    def fails(candidate: Graph) -> bool:
        found = pool.judge(candidate)
        same = found.status == outcome.status and (outcome.status == "wrong" or found.signature == outcome.signature)
        if same:
            last[0] = found
        return same

    return shrink(graph, fails, seconds), last[0]


def _write(out: Path, graph: Graph, outcome: Outcome) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"seed_{graph.seed}.py"
    path.write_text(
        standalone(graph, f"tests.fuzz, seed {graph.seed}: {outcome.signature}\n{outcome.detail[:3000]}\n{graph}")
    )
    return path


def script_of_seed(seed: int) -> str:
    """The graph of a seed as a standalone script."""
    return standalone(generate(seed), f"tests.fuzz, seed {seed}")


def _forget_kernels() -> None:
    """Remove the kernels of this run: random graphs do not come again. What every graph needs stays."""
    root = snapshot().cache_dir
    if root is not None:
        for folder in ("libs", "kernels"):
            shutil.rmtree(Path(root) / folder, ignore_errors=True)
