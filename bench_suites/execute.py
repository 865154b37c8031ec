"""One model in this process: build it, check every backend on the code that is then timed, and time them in turn."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import nn
from torch._dynamo.utils import counters as dynamo_counters
from torch.utils import _pytree as pytree

from bench_suites import memory
from bench_suites.accuracy import Outcome, collect, difference, relative_error
from bench_suites.backends import compiler, counters
from bench_suites.job import Job
from bench_suites.suites.case import Case, Request, Unavailable
from bench_suites.suites.table import find
from bench_suites.timing import take_turns
from inductor_cpu.trace import CompileReport

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "amp-bf16": torch.float32,
    "int8": torch.float32,
}
"""What the weights and floating inputs of a run are converted to. AMP converts inside of the call."""

Result = dict[str, Any]
SEED = 1234
LOG_TAIL = 4000


@dataclass(frozen=True)
class Judge:
    """What is right: eager's outcome, and the one in double precision, computed when it is first asked for."""

    expected: Outcome
    exact: Callable[[], Outcome | None]
    tolerance: float

    def objection(self, actual: Outcome) -> str | None:
        """Why `actual` is wrong, or None. Most outcomes are as near to eager's as the tolerance asks, and then double
        precision, which takes two to three calls' time and memory, is not needed."""
        wrong = difference(self.expected, actual, None, self.tolerance)
        return None if wrong is None else difference(self.expected, actual, self.exact(), self.tolerance)

    def error(self, actual: Outcome) -> float | None:
        """The relative distance to the outcome in double precision; None for a model that has none."""
        exact = self.exact()
        return None if exact is None else relative_error(actual, exact)


@dataclass(frozen=True)
class Competitor:
    """One backend: what it made of the case, and the module whose weights and gradients it uses."""

    case: Case
    job: Job
    module: nn.Module
    function: Callable[..., Any]

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, torch.Tensor | None]:
        """What is checked and timed: the output of an inference; output and loss of a step with its backward pass."""
        if self.job.mode == "inference":
            with torch.no_grad(), _autocast(self.job):
                return self.function(*args, **kwargs), None
        self.module.zero_grad(set_to_none=True)
        with _autocast(self.job):
            output = self.function(*args, **kwargs)
            loss = self.case.loss(output)
        loss.backward()
        return output, loss

    def outcome(self) -> Outcome:
        """A call on fresh inputs with fresh random numbers, and what it gave."""
        return self.watched_outcome()[0]

    def watched_outcome(self) -> tuple[Outcome, int | None]:
        """The same, and the peak resident bytes of the call."""
        args, kwargs = _fresh(self.case)
        seed_everything()
        (output, loss), peak = memory.peak_of(lambda: self.call(args, kwargs))
        return collect(self.module, output, loss), peak

    def rewind(self) -> None:
        """Undo what a training step did to the buffers: counters and means of batch norms, tables that a first call
        makes in place of a buffer of another shape."""
        if self.module is self.case.module:
            return
        for name, first in self.case.module.named_buffers(remove_duplicate=False):
            owner, _, attribute = name.rpartition(".")
            module = self.module.get_submodule(owner)
            buffer = module.get_buffer(attribute)
            if buffer.shape != first.shape:
                setattr(module, attribute, first.clone())
            elif not torch.equal(buffer, first):
                buffer.detach().copy_(first)

    def timed(self) -> Callable[[], Any]:
        """A function without arguments that makes one call."""
        args, kwargs = _fresh(self.case)
        return lambda: self.call(args, kwargs)


def run_job(job: Job) -> Result:
    """Everything about one model, as plain data. Raises only for a defect of these suites: a backend's failure is a
    status of that backend, a model's one of the row."""
    # Dynamo counts what all backends made of a function.
    limit = torch._dynamo.config.recompile_limit * len(job.backends)
    with torch._dynamo.config.patch(recompile_limit=limit):
        return _run(job)


def _run(job: Job) -> Result:
    result: Result = {"load": list(os.getloadavg()), "backends": {}}
    try:
        case = build_case(job)
    except Unavailable as reason:
        return {**result, "status": "skipped", "error": str(reason)}
    except Exception as error:
        return {**result, "status": "skipped", "error": f"does not build: {first_line(error)}"}
    result["note"] = case.note
    try:
        expected = _run_eager(case, job)
    except Exception as error:
        return {**result, "status": "skipped", "error": f"eager fails: {first_line(error)}"}
    exact = functools.cache(functools.partial(_exact, case, job))
    judge = Judge(expected, exact, find(job.suite, job.model)[0].tolerance(job.mode, job.dtype))
    result["eager_error"] = judge.error(expected) if job.repeat else None
    calls: dict[str, Callable[[], Any]] = {}
    for name in dict.fromkeys(("eager", *job.backends)):
        row, competitor = _compete(case, job, name, judge)
        if name == "eager" and row["status"] != "pass":
            return {**result, "status": "skipped", "error": f"eager itself differs from run to run: {row['error']}"}
        if name in job.backends:
            result["backends"][name] = row
            # Without timing nobody calls it again: its weights and gradients are not kept beside the next backend's.
            if competitor is not None and job.repeat:
                calls[name] = competitor.timed()
        del competitor
    times = take_turns(calls, job.repeat)
    for name, values in times.items():
        result["backends"][name]["ms"] = [round(v, 4) for v in values]
    result["status"] = _worst(result["backends"])
    return result


def build_case(job: Job) -> Case:
    """The model and its inputs in the job's mode and dtype, from a fixed seed."""
    _, row = find(job.suite, job.model)
    if job.mode not in row.modes:
        raise Unavailable(f"has no {job.mode}")
    seed_everything()
    case = row.build(Request(job.mode, job.batch, job.tiny, job.torchbench_dir))
    module = case.module.train() if job.mode == "training" else case.module.eval().requires_grad_(False)
    if job.mode == "inference":
        _settle_statistics(case)
    if job.dtype == "int8":
        module = torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)
    return convert(replace(case, module=module), DTYPES[job.dtype])


def convert(case: Case, dtype: torch.dtype) -> Case:
    """The case with weights (in place) and floating inputs of `dtype`."""
    cast = functools.partial(_cast, dtype=dtype)
    args, kwargs = pytree.tree_map(cast, (case.args, dict(case.kwargs)))
    return replace(case, module=case.module.to(dtype), args=args, kwargs=kwargs)


def seed_everything() -> None:
    """The same random numbers from here on, whatever ran before."""
    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


def first_line(error: BaseException) -> str:
    """`Kind: the first line that says something`, for a table; with the next one where it ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return f"{type(error).__name__}: {said}"[:400]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(dtype) if value.is_floating_point() else value


def _settle_statistics(case: Case) -> None:
    """Batch norms as after training: their statistics are those of the inputs. Fresh ones (mean 0, variance 1) would
    hide a wrong use of them, and let the values of a deep network without other scaling grow beyond any tolerance."""
    norms = [m for m in case.module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    norms = [m for m in norms if m.running_mean is not None and m.running_var is not None]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        # The average over all calls: of this one only.
        norm.momentum = None
        norm.train()
    try:
        with torch.no_grad():
            args, kwargs = _fresh(case)
            case.module(*args, **kwargs)
    except ValueError:
        # A single value per channel has no variance; such a norm keeps what it had.
        pass
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _compete(case: Case, job: Job, name: str, judge: Judge) -> tuple[Result, Competitor | None]:
    """Compile one backend, check its first call and a warm one, and give its row and, when it can be timed, the
    competitor."""
    row: Result = {"status": "pass", "breaks": {}, "reports": None, "ms": []}
    before = memory.settle()
    breaks = Counter(dynamo_counters["graph_break"])
    reports: list[CompileReport] = []
    try:
        competitor = prepare(case, job, name, reports)
        start = time.perf_counter()
        outcome = competitor.outcome()
        row["first_call_s"] = time.perf_counter() - start
        wrong = judge.objection(outcome)
        row["error_to_fp64"] = judge.error(outcome) if job.repeat else None
        del outcome
        competitor.rewind()
        peak = None
        # Eager mode has nothing to warm up: where its memory is not asked for, one comparison with itself is enough.
        if job.repeat or name != "eager":
            warm, peak = competitor.watched_outcome()
            if wrong is None and (wrong := judge.objection(warm)) is not None:
                wrong = f"the second call: {wrong}"
            del warm
    except Exception as error:
        tail = "".join(traceback.format_exception(error))[-LOG_TAIL:]
        return {**row, "status": "fail", "error": first_line(error), "log": tail}, None
    finally:
        row["breaks"] = {_one_line(k): v for k, v in (Counter(dynamo_counters["graph_break"]) - breaks).items()}
        if reports:
            row["reports"] = counters(reports)
    # Without timing, double precision may have been computed in between.
    row["peak_bytes"] = None if peak is None or not job.repeat else _bytes_of(case.module) + max(0, peak - before)
    if wrong is not None:
        row.update(status="mismatch", error=wrong)
    return row, competitor


def prepare(case: Case, job: Job, name: str, reports: list[CompileReport]) -> Competitor:
    """A backend that is ready for its first call; icpu's reports go to `reports`. In training it has a module of its
    own, for its gradients."""
    module = copied(case, job) if job.mode == "training" else case.module
    function = case.compile(module, compiler(name, reports.append, dynamic=job.dynamic, eager_random=True))
    return Competitor(case, job, module, function)


def copied(case: Case, job: Job) -> nn.Module:
    """Another module with the same weights: a copy, or one built again where a module cannot be copied."""
    try:
        return copy.deepcopy(case.module)
    except Exception:
        # Modules that keep non-leaf tensors (weight norm) refuse.
        return build_case(job).module


def _fresh(case: Case) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of the inputs: some models write into theirs."""
    copy_of = functools.partial(pytree.tree_map, lambda t: t.clone() if isinstance(t, torch.Tensor) else t)
    return copy_of(case.args), copy_of(dict(case.kwargs))


@contextlib.contextmanager
def _autocast(job: Job) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16, enabled=job.dtype == "amp-bf16"):
        yield


def _run_eager(case: Case, job: Job) -> Outcome:
    return prepare(case, job, "eager", []).outcome()


def _exact(case: Case, job: Job) -> Outcome | None:
    """The outcome in double precision; None for a model that has none (an operator or a buffer without it).

    Of a quantized model it is that of the model before: rounding to 8 bits turns the last bits of a float, which no two
    backends share, into whole steps, and what can be asked is that the compiled steps are as near to the truth.
    """
    for default in (torch.get_default_dtype(), torch.float64):
        try:
            if job.dtype == "int8":
                double = convert(build_case(replace(job, dtype="float32")), torch.float64)
            else:
                double = convert(replace(case, module=copied(case, job)), torch.float64)
            with _default_dtype(default):
                return _run_eager(double, replace(job, dtype="float32"))
        except Exception:
            # Models that make a tensor of the least double do so in the default dtype, which has no such number.
            continue
    return None


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _bytes_of(module: nn.Module) -> int:
    """Bytes of the parameters and buffers, which every backend needs and only the first finds not yet in memory."""
    return sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))


def _worst(rows: Mapping[str, Result]) -> str:
    order = ("fail", "mismatch")
    return next((s for s in order if any(r["status"] == s for r in rows.values())), "pass")


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else ""
