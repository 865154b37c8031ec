"""The table at the end: a line for each row, the bars, and what was reached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tabulate import tabulate

from bench_suites import machine
from bench_suites.gemm.contest import Row
from bench_suites.timing import geometric_mean

ROWS = pytest.StashKey[list[Row]]()

#: What a geometric mean over the rows of a kind should be: kind -> (competitor, at least).
MEANS = {"bf16": ("onednn", 1.6), "fp32": ("best", 1.1)}


def pytest_configure(config: pytest.Config) -> None:
    """An empty table."""
    config.stash[ROWS] = []


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> list[Row]:
    """Where finished rows go."""
    return request.config.stash[ROWS]


@pytest.fixture(params=sorted({1, torch.get_num_threads()}), ids=lambda n: f"{n}-threads")
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """One thread, and all."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    rows = config.stash[ROWS]
    if not rows:
        return
    lines = [_line(row) for row in rows]
    head = ("kind", "row", "threads", "icpu us", "rate", "of limit", "times faster than", "bars")
    terminalreporter.write_line("")
    terminalreporter.write_line(machine.sentence(machine.describe()))
    terminalreporter.write_line(tabulate(lines, headers=head, disable_numparse=True))
    for kind, (other, least) in MEANS.items():
        for threads in sorted({row.threads for row in rows}):
            its_rows = [row for row in rows if (row.kind, row.threads) == (kind, threads)]
            found = [row.times(other) for row in its_rows if other in row.seconds]
            if found:
                mean = geometric_mean(found)
                verdict = "reached" if mean >= least else "MISSED"
                terminalreporter.write_line(
                    f"{kind}, {threads} threads: {mean:.2f} times {other} in the mean, bar {least}: {verdict}"
                )
    bars = [reached for row in rows for _, reached in row.bars]
    terminalreporter.write_line(f"{sum(bars)} of {len(bars)} bars of single rows reached")


def _line(row: Row) -> tuple[str, ...]:
    rate = row.work / row.seconds["icpu"]
    others = [name for name in row.seconds if name not in ("icpu", "read", "limit", "gelu", "best")]
    return (
        row.kind,
        row.name,
        str(row.threads),
        f"{row.seconds['icpu'] * 1e6:.0f}",
        f"{rate / 1e9:.1f} GB/s" if row.limit is None else f"{rate / 1e12:.2f} T/s",
        f"{row.share:.0%}",
        ", ".join(f"{name} {row.times(name):.2f}" for name in others),
        "; ".join(f"{what} {'ok' if reached else 'MISSED'}" for what, reached in row.bars),
    )
