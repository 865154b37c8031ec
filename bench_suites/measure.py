"""Timing in turns, accuracy against fp64, and tables."""

from __future__ import annotations

import copy
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch._dynamo.utils import same

from bench_suites.models import RECIPES, Model
from inductor_cpu.runtime.background import wait_for_background_builds


@dataclass(frozen=True)
class Accuracy:
    """Largest relative error (RMSE over the RMS of the fp64 output) of both, and whether `same` accepts the second."""

    eager_error: float
    compiled_error: float
    passes: bool


#: Seconds after which threads of other programs, which wait for work in a loop, have left the cores.
_UNTIL_THREADS_REST = 0.05


def take_turns(
    functions: Mapping[str, Callable[[], Any]], seconds: float = 5.0, least: int = 5, *, apart: bool = False
) -> dict[str, float]:
    """Median milliseconds of each function. They run in turn (A B C A B C), so that noise meets all of them alike.

    Rounds go on for `seconds`, at least `least` of them. Each function has to be warm. apart: each has the cores and
    caches to itself when it is timed, after a pause and a call that is not: functions of other programs have threads of
    their own. What icpu builds beside the program is waited for: it takes the cores, and calls are faster with it.
    """
    wait_for_background_builds()
    times: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or time.perf_counter() < end:
        for name, function in functions.items():
            if apart:
                time.sleep(_UNTIL_THREADS_REST)
                function()
            start = time.perf_counter()
            function()
            times[name].append((time.perf_counter() - start) * 1e3)
        rounds += 1
    return {name: statistics.median(t) for name, t in times.items()}


@contextmanager
def beside_others(processes: int) -> Iterator[None]:
    """With so many processes that compute all the time, in a session of their own as other programs are."""
    with ExitStack() as stack:
        for _ in range(processes):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        yield


def first_call(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def tensors(output: Any) -> list[torch.Tensor]:
    """The tensors in a model's output, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        return [t for item in output.values() for t in tensors(item)]
    if isinstance(output, list | tuple):
        return [t for item in output for t in tensors(item)]
    return []


def fp64_reference(model: Model) -> Any:
    """The model's output computed in double precision."""
    double = Model(model.name, copy.deepcopy(model.module), model.args, model.kwargs).to(torch.float64)
    with torch.no_grad():
        return double()


def relative_error(output: Any, reference: Any) -> float:
    """RMSE over the RMS of the reference, the largest over all floating-point tensors."""
    errors = [0.0]
    for value, exact in zip(tensors(output), tensors(reference), strict=True):
        if exact.is_floating_point() and exact.numel():
            scale = exact.square().mean().sqrt().item()
            error = (value.double() - exact.double()).square().mean().sqrt().item()
            errors.append(error / scale if scale else error)
    return max(errors)


def check(model: Model, eager: Any, compiled: Any, reference: Any) -> Accuracy:
    """Compare as PyTorch's own suites do: `torch._dynamo.utils.same` with an fp64 reference, tensor by tensor."""
    results = (tensors(eager), tensors(compiled), tensors(reference))
    passes = same(*results, tol=RECIPES[model.name].tolerance, equal_nan=True)
    return Accuracy(relative_error(eager, reference), relative_error(compiled, reference), passes)


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers; nan of none."""
    logs = [math.log(v) for v in values]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def machine() -> str:
    """The CPU's name, its cores as torch uses them, and torch's version."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return (
        f"{names[0] if names else platform.processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; floats have three significant digits."""
    cells = [[_cell(value) for value in row] for row in rows]
    return str(tabulate(cells, headers, tablefmt="github", disable_numparse=True))


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if value != 0 and abs(value) < 1e-2:
        return f"{value:.1e}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
