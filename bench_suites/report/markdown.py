"""The table of the seeds as Markdown, for a README."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from bench_suites.report.figures import Figures

HEADERS = (
    "suite",
    "backend",
    "pass",
    "speedup",
    "first call",
    "memory",
    "vectorized",
    "with breaks",
    "most frequent ATen calls",
)


def table(lines: Sequence[Figures]) -> str:
    """One line a suite and backend. Speedup is a geometric mean over eager of the models that pass, memory the sum over
    all models over eager's."""
    return str(tabulate([cells(line) for line in lines], HEADERS, tablefmt="github", disable_numparse=True))


def cells(line: Figures) -> list[str]:
    """The cells of one line, as text."""
    rate = f"{line.passed}/{line.run}" + (f" ({100 * line.passed / line.run:.0f} %)" if line.run else "")
    done = "" if line.vectorized is None else f"{line.vectorized[0]}/{line.vectorized[1]}"
    return [
        line.group + (f" ({line.skipped} skipped)" if line.skipped else ""),
        line.backend,
        rate,
        "" if line.speedup is None else f"{line.speedup:.2f}x",
        "" if line.first_call_s is None else f"{line.first_call_s:.1f} s",
        "" if line.memory is None else f"{line.memory:.2f}x",
        done,
        "" if line.breaks is None else str(line.breaks),
        ", ".join(f"{short(op)} {count}" for op, count in line.externs),
    ]


def short(op: str) -> str:
    """An operator's name without its namespace and a default overload."""
    return op.removeprefix("aten.").removesuffix(".default")
