"""`python -m tests.fuzz`: random graphs, or with --index random index expressions, for some minutes.

Exits with 1 if there was a finding. Findings go to --out as scripts; `progress.json` there records the seeds done, and
a run without --seed goes on after them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="first seed (default: after the last one in --out, or 0)")
    parser.add_argument("--minutes", type=float, default=5.0, help="stop starting graphs after so many minutes")
    parser.add_argument("--graphs", type=int, help="stop after so many graphs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz", help="folder of findings and progress")
    parser.add_argument("--processes", type=int, default=1, help="graphs judged at the same time")
    parser.add_argument("--all", action="store_true", help="compile every graph in all ways")
    parser.add_argument(
        "--patience", type=float, default=150.0, help="seconds until a graph hangs (busy machines: more)"
    )
    parser.add_argument("--index", action="store_true", help="fuzz index expressions")
    parser.add_argument("--emulate", action="store_true", help="as on a CPU with AVX-512 and AMX (tests/emulation)")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the graph of a seed as a script, and stop")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run; the exit code."""
    args = arguments(argv)
    # Before the package is imported: it reads its environment once.
    os.environ.setdefault("ICPU_VERIFY", "1")
    os.environ.setdefault("ICPU_CACHE_DIR", str(ROOT / "build" / "fuzz_kernel_cache"))
    from tests.emulation.machine import VARIABLE  # noqa: PLC0415  (after the environment is set)
    from tests.fuzz import campaign, index_campaign  # noqa: PLC0415  (the same)

    if args.emulate:
        os.environ[VARIABLE] = "1"

    progress_file = args.out / ("index.json" if args.index else "progress.json")
    first = args.seed if args.seed is not None else campaign.next_seed(progress_file)
    seeds: Iterator[int] = itertools.count(first) if args.graphs is None else iter(range(first, first + args.graphs))
    if args.show is not None:
        print(campaign.script_of_seed(args.show))
        return 0
    started = time.monotonic()
    run = index_campaign.run if args.index else campaign.run
    summary = run(seeds, campaign.Limits(60 * args.minutes, args.processes, args.all, args.patience), args.out)
    summary = {"first_seed": first, **summary, "minutes": round((time.monotonic() - started) / 60, 2)}
    args.out.mkdir(parents=True, exist_ok=True)
    with progress_file.open("a") as out:
        out.write(json.dumps(summary) + "\n")
    print(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in summary.items()))
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
