"""`python -m bench_suites report DIR...`: one self-contained page and a Markdown table of stored results."""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import jinja2

from bench_suites import machine
from bench_suites.report import figures, markdown, plots
from bench_suites.store import Row, Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs")
    parser.add_argument("--out", type=Path, help="the page (default: report.html in the first folder)")


def main(args: argparse.Namespace) -> int:
    """Write the page and, beside it, the Markdown, which is printed too."""
    rows, machines = load(args.folders)
    if not rows:
        raise ValueError(f"no results in {', '.join(map(str, args.folders))}")
    path = args.out or args.folders[0] / "report.html"
    path.write_text(page(rows, machines, path.parent))
    groups = figures.groups(rows)
    text = "\n\n".join([*machines, markdown.table([f for group in groups for f in figures.figures(group)])])
    path.with_suffix(".md").write_text(text + "\n")
    print(text)
    print(f"\n{path}")
    return 0


def load(folders: list[Path]) -> tuple[list[Row], list[str]]:
    """The rows of all folders, each with the folder that its links start from, and a sentence on each machine."""
    rows: list[Row] = []
    machines: list[dict[str, Any]] = []
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder of results")
        store = Store(folder)
        rows += [{**row, "folder": str(folder)} for row in store.rows()]
        if store.machine():
            machines.append(store.machine())
    return rows, machine.sentences(machines)


def page(rows: list[Row], machines: list[str], beside: Path) -> str:
    """The page as text. Links are relative to the folder `beside`."""
    rows = [_relative(row, beside) for row in rows]
    groups = figures.groups(rows)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html.j2").render(
        machines=machines,
        headers=markdown.HEADERS,
        lines=[markdown.cells(f) for group in groups for f in figures.figures(group)],
        failures=figures.failures(groups),
        sections=[_section(group) for group in groups],
    )


def _relative(row: Row, beside: Path) -> Row:
    found = {
        k: os.path.relpath(Path(row["folder"]) / row[k], beside) for k in ("log_file", "dump_folder") if row.get(k)
    }
    return {**row, **found}


def _section(group: figures.Group) -> dict[str, Any]:
    compiled = [b for b in group.backends if b != "eager"]
    return {
        "title": group.title,
        "backends": compiled,
        "plots": [
            (name, svg)
            for name, svg in (
                ("Speedup", plots.speedup_plot(group)),
                ("First call", plots.compile_plot(group)),
                ("Memory", plots.memory_plot(group)),
            )
            if svg is not None
        ],
        "models": [_model(row, compiled) for row in sorted(group.rows, key=lambda r: str(r["job"]["model"]).lower())],
    }


def _model(row: Row, backends: list[str]) -> dict[str, Any]:
    found = figures.groups([row])[0]
    eager = row["backends"].get("eager", {}).get("ms")
    return {
        "name": row["job"]["model"],
        "status": row["status"],
        "note": row.get("note", ""),
        "eager": _milliseconds(statistics.median(eager)) if eager else "",
        "cells": [_cell(found, row["backends"].get(b, {}), b) for b in backends],
    }


def _milliseconds(value: float) -> str:
    """Three digits, and all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(group: figures.Group, result: Row, backend: str) -> dict[str, str]:
    ratios = figures.speedups(group, backend)
    reports = result.get("reports")
    return {
        "status": result.get("status", ""),
        "speedup": f"{ratios[0].ratio:.2f}" if ratios else "",
        # A single round has no spread.
        "interval": f"{ratios[0].low:.2f} to {ratios[0].high:.2f}" if ratios and len(result["ms"]) > 1 else "",
        "first": f"{result['first_call_s']:.1f}" if "first_call_s" in result else "",
        "kernels": f"{reports['vectorized']}/{reports['kernels']}" if reports else "",
        "externs": str(sum(reports["externs"].values())) if reports else "",
    }
