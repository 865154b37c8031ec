"""python -m bench_suites.kernels: run the corpus (a part of it), also with small inputs, print the page of files that
runs wrote, or compare two checkouts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from bench_suites.kernels import small, turns
from bench_suites.kernels.report import load, page

HERE = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    """The commands; the exit code is pytest's."""
    parser = argparse.ArgumentParser(prog="python -m bench_suites.kernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="time, from warm caches; --threads and pytest's options may follow, as -k softmax"
    )
    run.add_argument("--out", type=Path, help="pytest-benchmark's JSON file of the figures")
    run.add_argument("--prepare", action="store_true", help="compile, and check against eager, in place of timing")
    report = commands.add_parser("report", help="print the page of one or several files")
    report.add_argument("files", nargs="+", type=Path)
    near = commands.add_parser("small", help="time kernels whose data stays in the second-level cache against stock's")
    near.add_argument("words", nargs="*", help="kernels with one of these words in their names; all without")
    compare = commands.add_parser("turns", help="time kernels in turns with another checkout's")
    compare.add_argument("other", type=Path, help="the other checkout's folder")
    compare.add_argument("words", nargs="*", help="kernels with one of these words in their names; all without")
    compare.add_argument("--rounds", type=int, default=9)
    compare.add_argument("--threads", type=int, default=1)
    chosen, rest = parser.parse_known_args(arguments)
    if rest and chosen.command != "run":
        parser.error(f"not understood: {' '.join(rest)} (words come before options)")
    if chosen.command == "report":
        print(page(load(chosen.files)))
        return 0
    if chosen.command in ("small", "turns"):
        names = turns.chosen(chosen.words)
        if not names:
            parser.error(f"no kernel has one of these words in its name: {' '.join(chosen.words)}")
    if chosen.command == "small":
        print(small.page(small.measure(names)))
        return 0
    if chosen.command == "turns":
        found = turns.compare(HERE, chosen.other, names, chosen.rounds, chosen.threads)
        print(turns.page(found))
        if missing := sorted(set(names) - {t.name for t in found}):
            print(f"\nnot in {chosen.other}: {', '.join(missing)}")
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
