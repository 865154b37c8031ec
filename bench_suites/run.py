"""`python -m bench_suites run SUITE`: every model of a suite in its own process, backends in turn."""

from __future__ import annotations

import argparse
import math
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from bench_suites import machine, metrics, supervise
from bench_suites.backends import check_names
from bench_suites.execute import DTYPES
from bench_suites.job import Job
from bench_suites.store import Row, Store
from bench_suites.suites.table import NAMES, load

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument("suite", choices=[*NAMES, "all"])
    parser.add_argument("--backends", default="eager,inductor,icpu", help="names, separated by commas")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--mode", default="inference", choices=["inference", "training"])
    parser.add_argument("--dynamic", action="store_true", help="torch.compile(dynamic=True)")
    parser.add_argument("--threads", type=int, help="threads of each model; 1 gives single-core figures")
    parser.add_argument("--batch-size", type=int, help="in place of each model's own")
    parser.add_argument("--models", help="only these, separated by commas")
    parser.add_argument("--filter", type=re.compile, help="only models whose name matches this expression")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N", help="part I of N (I from 1)")
    parser.add_argument("--quick", action="store_true", help="only the selection that takes about ten minutes")
    parser.add_argument("--tiny", action="store_true", help="the same architectures, few narrow layers where possible")
    parser.add_argument("--cold", action="store_true", help="empty kernel caches for every model")
    parser.add_argument("--repeat", type=int, default=30, help="timed rounds; 0: check only")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds until a model is given up")
    parser.add_argument("--memory", type=float, default=16.0, help="GiB that a model may take")
    parser.add_argument("--torchbench-dir", help="a checkout of pytorch/benchmark")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="start no further model after so long")
    parser.add_argument("--out", type=Path, help="folder of the results (default: bench_results/<time>)")
    parser.add_argument("--resume", action="store_true", help="leave out what is in the folder already")
    parser.add_argument("--dump", action="store_true", help="keep every stage of icpu's compiles (large)")
    parser.add_argument("--metric", choices=list(metrics.METRICS), help="print a table of icpu's own counters")


def main(args: argparse.Namespace) -> int:
    """Run what the arguments ask for; 0 when every model that was run passes, 1 else, 130 when it ended early."""
    backends = args.backends.split(",")
    check_names(backends)
    jobs = list(select(args, backends))
    folder = args.out or Path("bench_results") / time.strftime("%Y%m%d-%H%M%S")
    store = Store(folder)
    store.drop_torn_line()
    store.write_machine(machine.describe())
    if args.resume:
        done = store.done(backends)
        jobs = [job for job in jobs if job.key not in done]
    print(f"{machine.sentence(store.machine())}; random weights; results in {folder}", file=sys.stderr)
    # A polite end from outside (timeout, a job scheduler) is treated like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = run_all(jobs, store, args)
    store.write_csv()
    keys = {job.key for job in select(args, backends)}
    rows = [row for row in store.rows() if row["key"] in keys]
    print(summary(rows))
    if args.metric:
        print(metrics.METRICS[args.metric](rows))
    if interrupted:
        print("ended early; what is done is kept, --resume goes on", file=sys.stderr)
        return INTERRUPTED
    return 0 if all(row["status"] in ("pass", "skipped") for row in rows) else 1


def select(args: argparse.Namespace, backends: Sequence[str]) -> Iterator[Job]:
    """The jobs that the arguments name, this shard's only. Raises ValueError for a model that no suite has."""
    wanted = set(args.models.split(",")) if args.models else None
    suites = [load(name) for name in (NAMES if args.suite == "all" else (args.suite,))]
    if wanted is not None:
        unknown = wanted - {row.name for suite in suites for row in suite.rows}
        if unknown:
            raise ValueError(f"no model {', '.join(sorted(unknown))} in {args.suite}")
    index, count = args.shard
    number = -1
    for suite in suites:
        for row in suite.rows:
            if args.mode not in row.modes or (args.quick and not row.quick):
                continue
            if (wanted is not None and row.name not in wanted) or (args.filter and not args.filter.search(row.name)):
                continue
            number += 1
            if number % count == index:
                yield Job(
                    suite.name,
                    row.name,
                    tuple(backends),
                    dtype=args.dtype,
                    mode=args.mode,
                    dynamic=args.dynamic,
                    threads=args.threads,
                    batch=args.batch_size,
                    tiny=args.tiny,
                    repeat=args.repeat,
                    torchbench_dir=args.torchbench_dir,
                )


def run_all(jobs: Sequence[Job], store: Store, args: argparse.Namespace) -> bool:
    """Run the jobs one after the other, storing each. Whether Ctrl-C or the time ended it early."""
    limits = supervise.Limits(args.timeout, int(args.memory * 2**30))
    end = math.inf if args.stop_after is None else time.monotonic() + args.stop_after
    with tqdm(jobs, unit="model", disable=None) as bar:
        for job in bar:
            if time.monotonic() > end:
                return True
            bar.set_description(f"{job.suite}/{job.model}")
            try:
                with tempfile.TemporaryDirectory(prefix="icpu-cold-") as caches:
                    added = environment(job, caches if args.cold else None)
                    if args.dump:
                        added["ICPU_DUMP"] = str(store.dumps(job).absolute())
                    row = supervise.run(job, limits, added)
            except KeyboardInterrupt:
                return True
            store.add(job, row)
            if row["status"] not in ("pass", "skipped"):
                bar.write(f"{job.key}: {row['status']}: {first_error(row)}", file=sys.stderr)
    return False


def environment(job: Job, caches: str | None) -> dict[str, str]:
    """What a worker's environment has in addition: its threads, and empty cache folders for a cold run."""
    added = {}
    if job.threads:
        # OpenMP reads it when it is loaded, before the worker's first line.
        added["OMP_NUM_THREADS"] = str(job.threads)
    if caches is not None:
        added["ICPU_CACHE_DIR"] = f"{caches}/icpu"
        added["TORCHINDUCTOR_CACHE_DIR"] = f"{caches}/inductor"
    return added


def first_error(row: Row) -> str:
    """What went wrong, in a line: the row's own error, or its first backend's."""
    if row.get("error"):
        return str(row["error"])
    failed = [(name, r) for name, r in row["backends"].items() if r["status"] != "pass"]
    return f"{failed[0][0]}: {failed[0][1].get('error', '')}" if failed else ""


def summary(rows: Sequence[Row]) -> str:
    """Passed n of m by suite; models that could not be built or run in eager mode are counted apart."""
    lines = []
    for suite in dict.fromkeys(row["job"]["suite"] for row in rows):
        of_suite = [row for row in rows if row["job"]["suite"] == suite]
        run = [row for row in of_suite if row["status"] != "skipped"]
        passed = sum(row["status"] == "pass" for row in run)
        skipped = len(of_suite) - len(run)
        lines.append(f"{suite}: {passed}/{len(run)} pass" + (f", {skipped} skipped" if skipped else ""))
    return "\n".join(lines)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 1 to N")
    return int(index) - 1, int(count)
