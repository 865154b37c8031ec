"""Two checkouts' kernels in turns: what a change of the compiler does to the corpus. Each checkout has a process of its
own, for one kernel after the other; both take turns, in changing order.

The module is also the program of these processes, run with the other checkout's packages, whose `bench_suites` need not
have it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from tabulate import tabulate

from bench_suites.kernels.row import Size
from bench_suites.kernels.table import FAMILIES, Variant, variants

WARM_CALLS = 3
TURN_SECONDS = 0.1  # of calls, in each turn
CALLS = (3, 200)


@dataclass(frozen=True)
class Turns:
    """One kernel: the seconds of the fastest call of each turn, here and in the other checkout."""

    name: str
    here: tuple[float, ...]
    there: tuple[float, ...]

    @property
    def fastest(self) -> float:
        """How many times as fast as the other, by the fastest calls."""
        return min(self.there) / min(self.here)

    @property
    def median(self) -> float:
        """The same in the median of the turns, each against the other's turn beside it."""
        return statistics.median(there / here for here, there in zip(self.here, self.there, strict=True))


class Checkout:
    """A process that times the kernels of one checkout."""

    def __init__(self, folder: Path, threads: int) -> None:
        if not (folder / "bench_suites" / "kernels").is_dir():
            raise FileNotFoundError(f"{folder} is no checkout of this project: it has no bench_suites/kernels")
        self._folder = folder
        environment = os.environ | {"PYTHONPATH": str(folder.resolve())}
        command = [sys.executable, "-P", str(Path(__file__).resolve()), str(threads)]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Checkout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def ask(self, **question: Any) -> Any:
        """The answer to one question; ChildProcessError where the process has ended."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line.startswith("{"):  # others print, too
                return json.loads(line)["answer"]
        raise ChildProcessError(f"the process of {self._folder} ended, exit code {self._process.wait()}")


def chosen(words: Sequence[str]) -> list[str]:
    """Names of kernels: those that have one of the words in them, all without words."""
    names = [variant.name for family in FAMILIES for variant in variants(family)]
    return [name for name in names if not words or any(word in name for word in words)]


def compare(here: Path, there: Path, names: Sequence[str], rounds: int, threads: int = 1) -> list[Turns]:
    """Both checkouts' times of kernels; a kernel that one of them does not have is left out."""
    found = []
    with Checkout(here, threads) as mine, Checkout(there, threads) as other:
        for name in names:
            if not (mine.ask(prepare=name) and other.ask(prepare=name)):
                continue
            times: dict[Checkout, list[float]] = {mine: [], other: []}
            for number in range(rounds):
                for checkout in (mine, other) if number % 2 else (other, mine):
                    times[checkout].append(checkout.ask(time=name))
            found.append(Turns(name, tuple(times[mine]), tuple(times[other])))
    return found


def page(found: Sequence[Turns]) -> str:
    """The table: times, and how many times as fast this checkout is."""
    rows = [
        (t.name, f"{min(t.there) * 1e6:.0f}", f"{min(t.here) * 1e6:.0f}", f"{t.fastest:.2f}", f"{t.median:.2f}")
        for t in found
    ]
    headers = ("kernel", "there us", "here us", "here is faster", "in the median")
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 4))


def _prepare(name: str) -> Callable[[], object] | None:
    """The kernel with its inputs, compiled and warm."""
    all_variants: dict[str, Variant] = {v.name: v for family in FAMILIES for v in variants(family)}
    if name not in all_variants:
        return None
    variant = all_variants[name]
    torch._dynamo.reset()
    inputs = variant.row.build(variant.dtype, Size.FULL)
    function = torch.compile(variant.row.function, backend="icpu", dynamic=False)

    def call() -> None:
        function(*inputs)

    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call()
    return call


def _time(call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls."""
    with torch.no_grad():
        start = time.perf_counter()
        call()
        calls = min(max(int(TURN_SECONDS / (time.perf_counter() - start)), CALLS[0]), CALLS[1])
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)


def _serve(threads: int) -> None:
    """Answers the questions of a `Checkout`."""
    torch.set_num_threads(threads)
    kernel: Callable[[], object] | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if "prepare" in question:
            kernel = _prepare(question["prepare"])
            answer: Any = kernel is not None
        else:
            assert kernel is not None, "nothing is prepared"
            answer = _time(kernel)
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
