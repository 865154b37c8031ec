"""icpu's own counters over the models of a run, as Markdown tables: the suites as instruments."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from bench_suites.backends import is_icpu
from bench_suites.store import Row

MEBI = 2**20


def _icpu(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each model and icpu's result, where it has one."""
    for row in rows:
        for backend, result in row["backends"].items():
            if is_icpu(backend):
                yield f"{row['job']['suite']}/{row['job']['model']}", result


def reported(rows: Sequence[Row]) -> list[tuple[str, dict[str, Any]]]:
    """The name of each model and icpu's counters, where icpu compiled anything."""
    return [(name, result["reports"]) for name, result in _icpu(rows) if result.get("reports")]


def externs(rows: Sequence[Row]) -> Counter[str]:
    """Calls of ATen operators over all models."""
    total: Counter[str] = Counter()
    for _, report in reported(rows):
        total.update(report["externs"])
    return total


def vectorized(rows: Sequence[Row]) -> tuple[int, int]:
    """Kernels that are vectorized, and all kernels."""
    reports = [report for _, report in reported(rows)]
    return sum(r["vectorized"] for r in reports), sum(r["kernels"] for r in reports)


def vectorization(rows: Sequence[Row]) -> str:
    """Vectorized kernels by model, and why the others are scalar, with the number of kernels for each reason."""
    lines = [[n, r["vectorized"], r["kernels"], _counted(r["scalar_reasons"])] for n, r in reported(rows)]
    done, all_kernels = vectorized(rows)
    total: Counter[str] = Counter()
    for _, report in reported(rows):
        total.update(report["scalar_reasons"])
    last = ["all", done, all_kernels, _counted(dict(total.most_common()))]
    return _table(["model", "vectorized", "kernels", "why not"], [*lines, last])


def _counted(reasons: Mapping[str, int]) -> str:
    return "; ".join(f"{number} x {reason}" for reason, number in reasons.items())


def fallbacks(rows: Sequence[Row]) -> str:
    """Calls of ATen operators, with reasons; graphs in eager mode and graph breaks by model."""
    reasons: dict[str, str] = {}
    models: Counter[str] = Counter()
    for _, report in reported(rows):
        reasons = {**report["extern_reasons"], **reasons}
        models.update(report["externs"].keys())
    calls = [[op, n, models[op], reasons.get(op, "")[:120]] for op, n in externs(rows).most_common()]
    text = _table(["operator", "calls", "models", "reason"], calls)
    breaks = [
        [
            name,
            sum(result["breaks"].values()),
            "; ".join([*(result["reports"] or {}).get("eager_graphs", ()), *result["breaks"]])[:200],
        ]
        for name, result in _icpu(rows)
        if result["breaks"] or (result["reports"] or {}).get("eager_graphs")
    ]
    return text + ("\n\n" + _table(["model", "graph breaks", "reasons"], breaks) if breaks else "")


def memory(rows: Sequence[Row]) -> str:
    """Peak MiB of a warm call (weights, what a backend keeps, temporaries), and the packed weights of icpu."""
    names = list(dict.fromkeys(name for row in rows for name in row["backends"]))
    lines = []
    for row in rows:
        peaks = [_mebibytes(row["backends"].get(name, {}).get("peak_bytes")) for name in names]
        packed = [r["reports"]["packed_bytes"] for n, r in row["backends"].items() if is_icpu(n) and r.get("reports")]
        lines.append(
            [f"{row['job']['suite']}/{row['job']['model']}", *peaks, _mebibytes(packed[0] if packed else None)]
        )
    return _table(["model", *(f"{name} MiB" for name in names), "packed MiB"], lines)


def compile_time(rows: Sequence[Row]) -> str:
    """Seconds of the first call by backend, and icpu's stages in milliseconds."""
    names = list(dict.fromkeys(name for row in rows for name in row["backends"]))
    lines = []
    for row in rows:
        firsts = [row["backends"].get(name, {}).get("first_call_s") for name in names]
        stages = [r["reports"]["stage_ms"] for n, r in row["backends"].items() if is_icpu(n) and r.get("reports")]
        text = ", ".join(f"{k} {v:.0f}" for k, v in sorted(stages[0].items(), key=lambda s: -s[1])) if stages else ""
        lines.append(
            [f"{row['job']['suite']}/{row['job']['model']}", *("" if f is None else f"{f:.2f}" for f in firsts), text]
        )
    table = _table(["model", *(f"{name} s" for name in names), "stages of icpu, ms"], lines)
    medians = [
        f"{name} {statistics.median(found):.2f} s"
        for name in names
        if (found := [f for row in rows if (f := row["backends"].get(name, {}).get("first_call_s")) is not None])
    ]
    return f"{table}\n\nmedian first call: {', '.join(medians)}"


METRICS: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "vectorization": vectorization,
    "fallbacks": fallbacks,
    "memory": memory,
    "compile": compile_time,
}


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / MEBI:.0f}"


def _table(headers: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    return str(tabulate(lines, headers, tablefmt="github"))
