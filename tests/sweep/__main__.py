"""`python -m tests.sweep`: sweep the operators of PyTorch's database. README.md tells how to read the result."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Before torch and the package are imported: both read their environment once.
os.environ.setdefault("ICPU_VERIFY", "1")
os.environ.setdefault("ICPU_CACHE_DIR", str(ROOT / "build" / "sweep_kernel_cache"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ICPU_FALLBACK_RANDOM", "1")  # random numbers are compared with eager's

from tests.sweep.cases import DATABASES, DTYPES, KINDS, all_cases  # noqa: E402
from tests.sweep.report import read_expected, read_rows, report, to_json, unexpected  # noqa: E402
from tests.sweep.workers import Workers  # noqa: E402


def main() -> int:
    """Run what the command line says; 1 if a failure is not in the list of expected ones."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    shard, shards = (int(part) for part in args.shard.split("/"))
    cases = list(all_cases(args.databases, args.dtypes, args.kinds, args.filter))[shard - 1 :: shards]
    path = args.out / f"rows-{shard}-of-{shards}.jsonl"
    if not args.resume and not args.report:
        for old in args.out.glob("rows*.jsonl") if shards == 1 else [path]:
            old.unlink(missing_ok=True)
    done = read_rows(args.out)
    again = [row.case for row in done.values() if args.retry and row.failed]
    todo = [case for case in cases if case not in done or case in again]
    if not args.report:
        _sweep(args, todo, path)
    rows = {case: row for case, row in read_rows(args.out).items() if case in set(cases)}
    expected = read_expected()
    print(report(list(rows.values()), expected))
    print(f"{len(rows)} of {len(cases)} cases are done; rows in {args.out}")
    return 1 if unexpected(rows.values(), expected) else 0


def _sweep(args: argparse.Namespace, todo: list, path: Path) -> None:
    workers = Workers(args.processes, args.timeout, args.samples, args.backend)
    deadline = time.monotonic() + 60 * args.minutes
    with path.open("a", buffering=1) as file:
        for row in workers.rows(todo, deadline):
            file.write(to_json(row) + "\n")
            if row.failed or args.verbose:
                print(f"{row.status} {row.case} ({row.seconds:.1f} s): {row.detail}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th case, from the I-th on")
    parser.add_argument("--filter", default="", metavar="REGEX", help="cases whose 'database op' matches")
    parser.add_argument("--databases", type=_list(DATABASES), default=list(DATABASES))
    parser.add_argument("--dtypes", type=_list(DTYPES), default=list(DTYPES))
    parser.add_argument("--kinds", type=_list(KINDS), default=list(KINDS))
    parser.add_argument("--samples", type=int, default=0, help="most samples of a case, evenly taken; 0: all")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "sweep", metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="keep the rows that DIR has")
    parser.add_argument("--retry", action="store_true", help="with --resume: try what failed again")
    parser.add_argument("--report", action="store_true", help="only print the figures of the rows that DIR has")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no case after so long")
    parser.add_argument("--timeout", type=float, default=180, help="seconds that a case may take")
    parser.add_argument("--backend", default="icpu", help="for example aot_eager, to see what is not icpu's fault")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _list(known: object):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        wrong = [name for name in names if name not in known]  # type: ignore[operator]
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: not one of {', '.join(known)}")  # type: ignore[call-overload]
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
