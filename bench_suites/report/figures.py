"""The figures of a run: results grouped by suite, dtype and mode, and what the tables and plots show of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_suites import metrics
from bench_suites.backends import is_icpu
from bench_suites.store import Row
from bench_suites.timing import geometric_mean, speedup

MOST_EXTERNS = 5


@dataclass(frozen=True)
class Group:
    """The rows that one line of figures is about."""

    title: str
    rows: tuple[Row, ...]

    @property
    def backends(self) -> list[str]:
        """The backends in the order of the run; those that only some rows have at the end."""
        return list(dict.fromkeys(name for row in self.rows for name in row["job"]["backends"]))


@dataclass(frozen=True)
class Speedup:
    """A model's ratio over eager, with its confidence interval."""

    model: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Figures:
    """The line of one backend in one group: the table of the seeds."""

    group: str
    backend: str
    passed: int
    run: int
    skipped: int
    speedup: float | None
    first_call_s: float | None
    memory: float | None
    vectorized: tuple[int, int] | None
    breaks: int | None
    externs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Failure:
    """A row that is no pass, or a pass that ran only in part compiled; `links` are files beside the results."""

    group: str
    model: str
    backend: str
    status: str
    error: str
    links: tuple[tuple[str, str], ...]


def groups(rows: Sequence[Row]) -> list[Group]:
    """The rows by what they measure, in the order of their first row."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(title(row["job"]), []).append(row)
    return [Group(name, tuple(of_group)) for name, of_group in found.items()]


def title(job: Mapping[str, Any]) -> str:
    """`timm, inference float32, 1 thread`."""
    parts = [f"{job['suite']}, {job['mode']} {job['dtype']}"]
    if job["threads"]:
        parts.append(f"{job['threads']} thread{'s' if job['threads'] > 1 else ''}")
    parts += ["dynamic shapes"] if job["dynamic"] else []
    parts += ["tiny"] if job["tiny"] else []
    return ", ".join(parts)


def speedups(group: Group, backend: str) -> list[Speedup]:
    """The ratios over eager of the models that pass, the largest first."""
    found = []
    for row in group.rows:
        base, other = row["backends"].get("eager", {}).get("ms"), row["backends"].get(backend, {})
        if base and other.get("ms") and other["status"] == "pass":
            found.append(Speedup(row["job"]["model"], *speedup(base, other["ms"])))
    return sorted(found, key=lambda s: -s.ratio)


def values(group: Group, backend: str, name: str) -> dict[str, float]:
    """One measured value (`first_call_s`, `peak_bytes`) of a backend by model, where there is one."""
    found = {row["job"]["model"]: row["backends"].get(backend, {}).get(name) for row in group.rows}
    return {model: value for model, value in found.items() if value is not None}


def memory_ratios(group: Group, backend: str) -> dict[str, float]:
    """Peak memory over eager's by model."""
    base, other = values(group, "eager", "peak_bytes"), values(group, backend, "peak_bytes")
    return {m: other[m] / base[m] for m in other if base.get(m) and other[m]}


def memory_of_all(group: Group, backend: str) -> float | None:
    """The peak memory of all models together over eager's. A mean of ratios would be that of the smallest model: a few
    megabytes of the compiler's are a thousand times a model of kilobytes."""
    base, other = values(group, "eager", "peak_bytes"), values(group, backend, "peak_bytes")
    both = [m for m in other if m in base]
    total = sum(base[m] for m in both)
    return sum(other[m] for m in both) / total if total else None


def figures(group: Group) -> list[Figures]:
    """One line a backend."""
    return [_line(group, backend) for backend in group.backends]


def _line(group: Group, backend: str) -> Figures:
    rows = [row for row in group.rows if backend in row["job"]["backends"]]
    run = [row for row in rows if row["status"] != "skipped"]
    ratios = speedups(group, backend)
    firsts = values(group, backend, "first_call_s")
    compiled = [{**row, "backends": {k: v for k, v in row["backends"].items() if k == backend}} for row in rows]
    own = is_icpu(backend)
    return Figures(
        group.title,
        backend,
        sum(row["backends"].get(backend, {}).get("status") == "pass" for row in run),
        len(run),
        len(rows) - len(run),
        geometric_mean(r.ratio for r in ratios) if ratios and backend != "eager" else None,
        statistics.median(firsts.values()) if firsts and backend != "eager" else None,
        memory_of_all(group, backend) if backend != "eager" else None,
        metrics.vectorized(compiled) if own else None,
        None if backend == "eager" else sum(bool(r["backends"].get(backend, {}).get("breaks")) for r in run),
        tuple(metrics.externs(compiled).most_common(MOST_EXTERNS)) if own else (),
    )


def failures(found: Sequence[Group]) -> list[Failure]:
    """Everything that is not a plain pass: failures first, then skipped models, then passes with graph breaks."""
    lines = [failure for group in found for row in group.rows for failure in _failures(group, row)]
    order = {"skipped": 1, "graph breaks": 2, "eager graphs": 2}
    return sorted(lines, key=lambda f: (order.get(f.status, 0), f.group, f.model, f.backend))


def _failures(group: Group, row: Row) -> list[Failure]:
    links = tuple((name, row[key]) for name, key in (("log", "log_file"), ("dumps", "dump_folder")) if row.get(key))
    model = row["job"]["model"]
    if not row["backends"]:
        return [Failure(group.title, model, "", row["status"], row.get("error", ""), links)]
    lines = []
    for backend, result in row["backends"].items():
        eager = (result.get("reports") or {}).get("eager_graphs")
        if is_icpu(backend) and not result.get("reports"):
            eager = ["nothing was compiled"]
        if result["status"] != "pass":
            lines.append(Failure(group.title, model, backend, result["status"], result.get("error", ""), links))
        elif eager:
            lines.append(Failure(group.title, model, backend, "eager graphs", eager[0], ()))
        elif result["breaks"]:
            count = sum(result["breaks"].values())
            lines.append(
                Failure(group.title, model, backend, "graph breaks", f"{count}: {next(iter(result['breaks']))}", ())
            )
    return lines
