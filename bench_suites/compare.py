"""`make figures`: icpu, eager, stock Inductor and other programs, on the same models, in turn in one process.

Each model runs in a process of its own with a time limit, so that one failure is one row. First calls are measured in
further processes: cold with empty caches, warm with the caches that the cold one left. The table is Markdown; the
figures also go to `<out>/<time>.json`, each as soon as it is known. Only ratios from one run mean something on a shared
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import inductor_cpu
from bench_suites import measure
from bench_suites.backends import Frozen, freezes
from bench_suites.models import RECIPES, Model, build
from bench_suites.peers import PEERS
from inductor_cpu.trace import count_reasons

Result = dict[str, Any]


@dataclass(frozen=True)
class Backend:
    """One competitor. `compile` gives the arguments of torch.compile, None for eager mode."""

    compile: Mapping[str, Any] | None


BACKENDS: Mapping[str, Backend] = {
    "eager": Backend(None),
    "icpu": Backend({"backend": "icpu"}),
    "inductor": Backend({"backend": "inductor"}),
    "inductor-freezing": Backend({"backend": "inductor", "options": {"freezing": True}}),
    "inductor-max-autotune": Backend({"backend": "inductor", "options": {"freezing": True, "max_autotune": True}}),
    "aot_eager": Backend({"backend": "aot_eager"}),
}
DTYPES = ("float32", "bfloat16")


def _function(model: Model, backend: str) -> Callable[..., Any]:
    """What a backend or a peer makes of a model. A peer converts it here, a backend at the first call."""
    return PEERS[backend](model) if backend in PEERS else _compiled(model.module, backend)


def _compiled(module: Callable[..., Any], backend: str) -> Callable[..., Any]:
    settings = BACKENDS[backend].compile
    if settings is None:
        return module
    # A copy: torch.compile takes entries out of `options`.
    arguments: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in settings.items()}
    frozen = freezes(arguments)
    function = torch.compile(module, **arguments)
    return Frozen(function) if frozen else function


def _model(job: Result) -> Model:
    return build(job["model"], getattr(torch, job["dtype"]), batch=job["batch"])


@torch.no_grad()
def run_speed(job: Result) -> Result:
    """Median ms of each backend in turn, and accuracy of each compiled one on what is timed."""
    model = _model(job)
    reference = measure.fp64_reference(model)
    eager = model()
    functions: dict[str, Callable[[], Any]] = {}
    result: Result = {"accuracy": {}, "failures": {}}
    for backend in job["backends"]:
        try:
            function = _function(model, backend)
            output = model(function)
        except Exception as error:
            # One competitor that fails must not take the others' figures away; the table shows the failure.
            result["failures"][backend] = f"{type(error).__name__}: {str(error)[:500]}"
            continue
        accuracy = measure.check(model, eager, output, reference)
        result["accuracy"][backend] = vars(accuracy)
        functions[backend] = lambda function=function: model(function)  # type: ignore[misc]
    with measure.beside_others(job["beside"]):
        result["ms"] = measure.take_turns(functions, job["seconds"], apart=not PEERS.keys().isdisjoint(functions))
    if "icpu" in functions:
        explained = inductor_cpu.explain(model.module, *model.args, **model.kwargs)
        result["kernels"], result["vectorized"] = len(explained.kernels), explained.vectorized
        result["extern_calls"] = explained.extern_calls
        result["scalar_reasons"] = dict(count_reasons(explained.kernels))
    return result


@torch.no_grad()
def run_first_call(job: Result) -> Result:
    """Seconds of the first call of one backend, in this fresh process, with the caches that the environment names."""
    model = _model(job)
    model()
    seconds, _ = measure.first_call(lambda: model(_function(model, job["backend"])))
    return {"seconds": seconds}


@torch.no_grad()
def run_overhead(job: Result) -> Result:
    """Microseconds of one `x + 1` on 16 elements, by backend, in turn; medians over batches of calls."""
    x = torch.randn(16)
    functions = {b: _compiled(_code_copy(), b) for b in job["backends"] if b not in PEERS}
    for function in functions.values():
        function(x)
    calls = 2000
    times = measure.take_turns({b: (lambda f=f: [f(x) for _ in range(calls)]) for b, f in functions.items()}, 4.0)  # type: ignore[misc]
    return {"us": {b: ms * 1e3 / calls for b, ms in times.items()}}


def _code_copy() -> Callable[[torch.Tensor], torch.Tensor]:
    """`x + 1` with code of its own: Dynamo keeps what it compiled by code object, and would search through all."""

    def add_one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    add_one.__code__ = add_one.__code__.replace()
    return add_one


TASKS: Mapping[str, Callable[[Result], Result]] = {
    "speed": run_speed,
    "first_call": run_first_call,
    "overhead": run_overhead,
}


def spawn(task: str, job: Result, limit: float, caches: Path | None = None) -> Result:
    """Run a task in a fresh process. A failure or a timeout is a result with `error`.

    `caches` replaces the cache folders of icpu and of stock Inductor; None keeps the user's.
    """
    environment = dict(os.environ)
    if caches is not None:
        environment["ICPU_CACHE_DIR"] = str(caches / "icpu")
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    command = [sys.executable, "-m", "bench_suites.compare", "--task", task, "--job", json.dumps(job)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {limit:.0f} s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    answer: Result = json.loads(done.stdout.splitlines()[-1])
    return answer


def first_calls(job: Result, backends: Sequence[str], limit: float, warm_runs: int = 3) -> Result:
    """Cold and warm seconds by backend. Warm: the median of `warm_runs` further processes, backends in turn."""
    with tempfile.TemporaryDirectory(prefix="icpu-bench-") as folder:
        root = Path(folder)
        jobs = {b: {**job, "backend": b} for b in backends}
        result: Result = {b: {"cold": spawn("first_call", jobs[b], limit, root / b)} for b in backends}
        warm: dict[str, list[Result]] = {b: [] for b in backends}
        for _ in range(warm_runs):
            for b in backends:
                warm[b].append(spawn("first_call", jobs[b], limit, root / b))
        for b in backends:
            seconds = [w["seconds"] for w in warm[b] if "seconds" in w]
            result[b]["warm"] = {"seconds": statistics.median(seconds)} if seconds else warm[b][0]
    return result


def speed_rows(results: Mapping[str, Result], backends: Sequence[str]) -> Iterator[list[object]]:
    """The lines of the speed table, then the geometric means by dtype."""
    others = [b for b in backends if b != "icpu"]
    for key, result in results.items():
        if "error" in result:
            yield [key, *["failed"] * (len(backends) + len(others)), result["error"][:60], "", ""]
            continue
        ms = result["ms"]
        marks = {b: "" if result["accuracy"].get(b, {}).get("passes") else " (WRONG)" for b in ms}
        yield [
            key,
            *(f"{ms[b]:.3g}{marks[b]}" if b in ms else "failed" for b in backends),
            *(f"{ms[b] / ms['icpu']:.2f}x" if b in ms and "icpu" in ms else "-" for b in others),
            result["accuracy"].get("icpu", {}).get("compiled_error", "-"),
            f"{result.get('vectorized', '-')}/{result.get('kernels', '-')}",
            result.get("extern_calls", "-"),
        ]
    for dtype in DTYPES:
        rows = [r["ms"] for k, r in results.items() if k.endswith(dtype) and "icpu" in r.get("ms", {})]
        if rows:
            means = [measure.geometric_mean(ms[b] / ms["icpu"] for ms in rows if b in ms) for b in others]
            cells = [f"{m:.3f}x" for m in means]
            yield [f"geometric mean {dtype} ({len(rows)})", *[""] * len(backends), *cells, "", "", ""]


def _first_call_rows(results: Mapping[str, Result]) -> Iterator[list[object]]:
    for key, by_backend in results.items():
        for backend, result in by_backend.items():
            yield [key, backend, *(result[k].get("seconds", result[k].get("error")) for k in ("cold", "warm"))]


def compare(args: argparse.Namespace, keep: Callable[[Result], None]) -> None:
    """Run what the arguments ask for, printing each table as it is done. keep: is given all figures so far, whenever
    there are more."""
    report: Result = {"machine": measure.machine(), "speed": {}, "first_call": {}}
    beside = f", beside {args.beside} processes that compute" if args.beside else ""
    print(f"{report['machine']}; batch {args.batch}, random weights{beside}\n", flush=True)
    for name in args.models:
        for dtype in args.dtypes:
            job = {"model": name, "dtype": dtype, "batch": args.batch, "backends": args.backends}
            job.update(seconds=args.seconds, beside=args.beside)
            print(f"... {name} {dtype}", file=sys.stderr, flush=True)
            report["speed"][f"{name} {dtype}"] = spawn("speed", job, args.limit)
            keep(report)
    others = [b for b in args.backends if b != "icpu"]
    headers = ["model", *(f"{b} ms" for b in args.backends), *(f"over {b}" for b in others)]
    print(measure.table([*headers, "error", "vectorized", "externs"], list(speed_rows(report["speed"], args.backends))))
    for key, result in report["speed"].items():
        for backend, failure in result.get("failures", {}).items():
            print(f"\n{key}, {backend} failed: {failure}")
    for name in args.first_call:
        print(f"... first call of {name}", file=sys.stderr, flush=True)
        job = {"model": name, "dtype": "float32", "batch": args.batch}
        competitors = ["aot_eager", *(b for b in args.backends if b != "eager")]
        report["first_call"][name] = first_calls(job, competitors, args.limit)
        keep(report)
    if args.first_call:
        print(
            "\n" + measure.table(["model", "backend", "cold s", "warm s"], list(_first_call_rows(report["first_call"])))
        )
    if args.overhead:
        report["overhead"] = spawn("overhead", {"backends": args.backends}, args.limit)
        print(f"\nx + 1 on 16 elements, microseconds a call: {report['overhead']}")
        keep(report)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--backends", nargs="+", default=["icpu", "eager", "inductor"], choices=[*BACKENDS, *PEERS])
    parser.add_argument("--first-call", nargs="*", default=["resnet50", "bert-base"], choices=list(RECIPES))
    parser.add_argument("--no-overhead", dest="overhead", action="store_false", help="leave out x + 1")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--beside", type=int, default=0, help="processes that compute while models are timed")
    parser.add_argument("--seconds", type=float, default=10.0, help="time to measure each model")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds until a process is given up")
    parser.add_argument("--out", type=Path, default=Path("bench_results"), help="folder of the JSON file")
    parser.add_argument("--task", choices=list(TASKS), help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main() -> None:
    """One task when the command line names one (a child process), else the whole comparison."""
    args = parse()
    if args.task is not None:
        print(json.dumps(TASKS[args.task](json.loads(args.job))))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / time.strftime("%Y%m%d-%H%M%S.json")
    compare(args, lambda report: path.write_text(json.dumps(report, indent=1)))
    print(f"\nfigures: {path}")


if __name__ == "__main__":
    main()
