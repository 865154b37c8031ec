"""Results on disk: one JSON line a model in `results.jsonl`, the machine in `machine.json`, a flat `results.csv`."""

from __future__ import annotations

import csv
import json
import os
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench_suites.job import Job

Row = dict[str, Any]

COLUMNS = (
    "suite model dtype mode dynamic threads batch backend status median_ms first_call_s peak_bytes kernels vectorized"
    " extern_calls graph_breaks error_to_fp64 error"
).split()


class Store:
    """The results of one folder. Each row is written whole, at once, and survives whatever ends the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "results.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    def dumps(self, job: Job) -> Path:
        """The folder for the dumps of a job."""
        return self.folder / "dumps" / file_name(job.key)

    def add(self, job: Job, row: Row) -> None:
        """Append the row of a job; what it printed when it failed goes to a file of its own."""
        row = {**row, "backends": {name: dict(result) for name, result in row["backends"].items()}}
        logs = [part.pop("log", "") for part in (row, *row["backends"].values())]
        if any(logs):
            path = self.folder / "logs" / f"{file_name(job.key)}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n\n".join(log for log in logs if log))
            row["log_file"] = str(path.relative_to(self.folder))
        if self.dumps(job).is_dir():
            row["dump_folder"] = str(self.dumps(job).relative_to(self.folder))
        line = json.dumps({"key": job.key, "job": job.plain(), **row})
        with self.path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rows(self) -> list[Row]:
        """The rows by key, the last one of each, in the order of their first writing."""
        latest: dict[str, Row] = {}
        for row in _lines(self.path):
            latest[row["key"]] = row
        return list(latest.values())

    def done(self, backends: Sequence[str]) -> set[str]:
        """The keys that need no further run for these backends."""
        return {row["key"] for row in self.rows() if set(backends) <= set(row["job"]["backends"])}

    def drop_torn_line(self) -> None:
        """Cut off a last line that a killed process left unfinished, so that the next row starts on its own."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            with self.path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)

    def write_machine(self, machine: Row) -> None:
        """Keep the description of the machine; a resumed run keeps the first."""
        path = self.folder / "machine.json"
        if not path.exists():
            path.write_text(json.dumps(machine, indent=1))

    def machine(self) -> Row:
        """The machine of the run; empty when none was written."""
        path = self.folder / "machine.json"
        found: Row = json.loads(path.read_text()) if path.exists() else {}
        return found

    def write_csv(self) -> None:
        """Write `results.csv`: one line a model and backend."""
        with (self.folder / "results.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for row in self.rows():
                writer.writerows(_flat(row))


def file_name(key: str) -> str:
    """A key as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", key)


def _lines(path: Path) -> Iterable[Row]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            # The torn last line of a run that was killed while it wrote.
            continue


def _flat(row: Row) -> Iterable[Row]:
    job = row["job"]
    common = {k: job[k] for k in ("suite", "model", "dtype", "mode", "dynamic", "threads", "batch")}
    if not row["backends"]:
        yield {**common, "status": row["status"], "error": row.get("error", "")}
    for backend, result in row["backends"].items():
        reports = result.get("reports") or {}
        yield {
            **common,
            "backend": backend,
            "status": result["status"],
            "median_ms": statistics.median(result["ms"]) if result.get("ms") else "",
            "first_call_s": result.get("first_call_s", ""),
            "peak_bytes": result.get("peak_bytes", ""),
            "kernels": reports.get("kernels", ""),
            "vectorized": reports.get("vectorized", ""),
            "extern_calls": sum(reports["externs"].values()) if reports else "",
            "graph_breaks": sum(result.get("breaks", {}).values()),
            "error_to_fp64": result.get("error_to_fp64", ""),
            "error": result.get("error", ""),
        }
