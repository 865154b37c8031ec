"""`python -m bench_suites compare A B`: what changed between two runs, failing on a regression beyond the noise."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bench_suites.report import figures
from bench_suites.store import Row, Store


@dataclass(frozen=True)
class Change:
    """One difference between the runs. A regression makes the command fail."""

    key: str
    backend: str
    what: str
    before: str
    after: str
    regression: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument("before", type=Path, metavar="A", help="folder of the earlier run")
    parser.add_argument("after", type=Path, metavar="B", help="folder of the later run")
    parser.add_argument("--threshold", type=float, default=0.05, help="least share of speed that counts")


def main(args: argparse.Namespace) -> int:
    """Print the changes; 1 when one of them is a regression."""
    for folder in (args.before, args.after):
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder of results")
    before = {row["key"]: row for row in Store(args.before).rows()}
    after = {row["key"]: row for row in Store(args.after).rows()}
    changes = [c for key in before if key in after for c in compare(before[key], after[key], args.threshold)]
    lines = [[c.key, c.backend, c.what, c.before, c.after, "regression" if c.regression else ""] for c in changes]
    both, first, second = before.keys() & after.keys(), before.keys() - after.keys(), after.keys() - before.keys()
    print(f"{len(both)} models in both runs, {len(first)} only in A, {len(second)} only in B")
    if lines:
        print(tabulate(lines, ["model", "backend", "what", "A", "B", ""], tablefmt="github", disable_numparse=True))
    return 1 if any(c.regression for c in changes) else 0


def compare(before: Row, after: Row, threshold: float) -> Iterator[Change]:
    """The changes of one model."""
    key = before["key"]
    if not after["backends"] or not before["backends"]:
        if before["status"] != after["status"]:
            worse = before["status"] == "pass"
            yield Change(key, "", "status", before["status"], f"{after['status']}: {after.get('error', '')}", worse)
        return
    for backend in before["backends"].keys() & after["backends"].keys():
        old, new = before["backends"][backend], after["backends"][backend]
        if old["status"] != new["status"]:
            text = new["status"] if new["status"] == "pass" else f"{new['status']}: {new.get('error', '')}"
            yield Change(key, backend, "status", old["status"], text, old["status"] == "pass")
        yield from _speed(before, after, backend, threshold)
        yield from _counters(key, backend, old, new)


def _speed(before: Row, after: Row, backend: str, threshold: float) -> Iterator[Change]:
    """A change of the ratio over eager, which is from one process and so free of the machine's state: beyond the
    threshold, and with intervals that do not meet."""
    old = figures.speedups(figures.groups([before])[0], backend)
    new = figures.speedups(figures.groups([after])[0], backend)
    if backend == "eager" or not old or not new:
        return
    slower = new[0].high < old[0].low and new[0].ratio < old[0].ratio * (1 - threshold)
    faster = new[0].low > old[0].high and new[0].ratio > old[0].ratio * (1 + threshold)
    if slower or faster:
        yield Change(before["key"], backend, "speed over eager", _ratio(old[0]), _ratio(new[0]), slower)


def _ratio(found: figures.Speedup) -> str:
    return f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"


def _counters(key: str, backend: str, old: Row, new: Row) -> Iterator[Change]:
    """Changes of icpu's counters; more scalar kernels, ATen calls or graph breaks are regressions."""
    first, second = old.get("reports"), new.get("reports")
    if not first or not second:
        return
    counts = {
        "scalar kernels": [r["kernels"] - r["vectorized"] for r in (first, second)],
        "ATen calls": [sum(r["externs"].values()) for r in (first, second)],
        "graph breaks": [sum(r["breaks"].values()) for r in (old, new)],
    }
    for what, (one, two) in counts.items():
        if one != two:
            yield Change(key, backend, what, str(one), str(two), two > one)
