"""Rows on disk, the list of expected failures, and the figures."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.sweep.rows import Case, Row

EXPECTED = Path(__file__).with_name("expected.txt")


@dataclass(frozen=True)
class Expected:
    """A line of expected.txt: four patterns (database, op, dtype, kind; `*` is any) and why such a case fails."""

    patterns: tuple[str, str, str, str]
    reason: str

    def covers(self, case: Case) -> bool:
        """Whether the line is about this case."""
        names = (case.database, case.op, case.dtype, case.kind)
        return all(fnmatch.fnmatchcase(name, pattern) for name, pattern in zip(names, self.patterns, strict=True))

    def __str__(self) -> str:
        return " ".join(self.patterns)


def read_expected(path: Path = EXPECTED) -> list[Expected]:
    """The lines of the list. Raises ValueError for a line without a reason."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=4)
        if len(words) < 5:
            raise ValueError(f"{path}: four patterns and a reason, not {line!r}")
        lines.append(Expected((words[0], words[1], words[2], words[3]), words[4]))
    return lines


def to_json(row: Row) -> str:
    """A row as a line."""
    values = asdict(row)
    return json.dumps({**values.pop("case"), **values})


def read_rows(folder: Path) -> dict[Case, Row]:
    """The rows of a folder, the last of each case. A line that a kill cut short is left out."""
    rows: dict[Case, Row] = {}
    for path in sorted(folder.glob("rows*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                values = json.loads(line)
            except json.JSONDecodeError:
                continue
            case = Case(*(values.pop(name) for name in ("database", "op", "dtype", "kind")))
            rows[case] = Row(case, **{**values, "notes": tuple(values["notes"])})
    return rows


def unexpected(rows: Iterable[Row], expected: Sequence[Expected]) -> list[Row]:
    """Failing rows that no line covers."""
    return [row for row in rows if row.failed and not any(line.covers(row.case) for line in expected)]


def stale(rows: Iterable[Row], expected: Sequence[Expected]) -> list[Expected]:
    """Lines whose cases were tried and all passed: they can go."""
    tried: dict[Expected, list[bool]] = defaultdict(list)
    for row in rows:
        for line in expected:
            if row.status != "none" and line.covers(row.case):
                tried[line].append(row.failed)
    return [line for line, bad in tried.items() if not any(bad)]


def report(rows: Sequence[Row], expected: Sequence[Expected]) -> str:
    """The figures and the failures, as text."""
    kinds = list(dict.fromkeys(row.case.kind for row in rows))
    lines = ["kind        pairs  passed     %  wrong  error  crash  timeout   calls  no call in eager"]
    for kind in [*kinds, "all"]:
        of_kind = [row for row in rows if kind in (row.case.kind, "all")]
        lines.append(_figures(kind, of_kind))
    lines.append(_pairs(rows))
    new, old = unexpected(rows, expected), stale(rows, expected)
    lines.append(f"expected failures: {len(expected)} lines; failures that no line covers: {len(new)}")
    lines += [f"{row.status} {row.case}: {row.detail} {' '.join(f'[{n}]' for n in row.notes)}" for row in new]
    lines += [f"passes, remove it from {EXPECTED.name}: {line}" for line in old]
    return "\n".join(lines)


def _pairs(rows: Sequence[Row]) -> str:
    """How many pairs of an operator and a dtype pass in every kind that was tried."""
    passed: dict[tuple[str, str, str], bool] = {}
    for row in rows:
        if row.status != "none":
            pair = (row.case.database, row.case.op, row.case.dtype)
            passed[pair] = passed.get(pair, True) and row.status == "pass"
    good, count = sum(passed.values()), len(passed)
    return (
        f"(operator, dtype) pairs that pass in every kind tried: {good} of {count}, {100 * good / max(count, 1):.1f} %"
    )


def _figures(name: str, rows: Sequence[Row]) -> str:
    counts = Counter(row.status for row in rows)
    pairs = len(rows) - counts["none"]
    calls = sum(row.calls for row in rows)
    share = 100.0 * counts["pass"] / pairs if pairs else 0.0
    return (
        f"{name:10} {pairs:6} {counts['pass']:7} {share:5.1f} {counts['fail']:6} {counts['error']:6} "
        f"{counts['crash']:6} {counts['timeout']:8} {calls:7} {counts['none']:17}"
    )
