"""python -m bench_suites.kernels: run the corpus (a part of it), or print the page of files that runs wrote."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from bench_suites.kernels.report import load, page


def main(arguments: list[str]) -> int:
    """The commands; the exit code is pytest's."""
    parser = argparse.ArgumentParser(prog="python -m bench_suites.kernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="time, from warm caches; options of pytest may follow, as -k softmax")
    run.add_argument("--out", type=Path, help="pytest-benchmark's JSON file of the figures")
    run.add_argument("--prepare", action="store_true", help="compile, and check against eager, in place of timing")
    report = commands.add_parser("report", help="print the page of one or several files")
    report.add_argument("files", nargs="+", type=Path)
    chosen, rest = parser.parse_known_args(arguments)
    if chosen.command == "report":
        print(page(load(chosen.files)))
        return 0
    options = ["--benchmark-disable"] if chosen.prepare else ["--benchmark-quiet"]
    if chosen.out and not chosen.prepare:
        options.append(f"--benchmark-json={chosen.out}")
    code = pytest.main(["-q", *options, *rest, str(Path(__file__).with_name("bench_kernels.py"))])
    if chosen.out and not chosen.prepare and chosen.out.exists():
        print(page(load([chosen.out])))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
