"""One case: its calls compiled in batches and compared with eager; of a batch that fails, call by call."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch._dynamo import trace_rules
from torch._dynamo.exc import TorchDynamoException
from torch.utils._pytree import tree_leaves, tree_map

from inductor_cpu.errors import IcpuError
from tests.sweep.cases import entry_of
from tests.sweep.compare import Tolerance, difference, tolerance_of
from tests.sweep.gradients import gradients_of
from tests.sweep.rows import Case, Row
from tests.sweep.samples import Call, batches, calls_of, clone_tree, spread

#: Calls in one compiled function: one run of the C++ compiler.
BATCH = 16
#: Failing calls that a row describes; the rest of the batch is not looked at any more.
MOST_PROBLEMS = 2

# The database's functions are torch's own test code, which Dynamo does not look into by itself.
trace_rules.LEGACY_MOD_INLINELIST.add("torch.testing._internal")


@dataclass(frozen=True)
class Problem:
    """What went wrong: `status` as in a row."""

    status: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """What one call gave: results, the arguments as they are afterwards, gradients; or the error it raised."""

    results: Any = None
    arguments: Any = None
    gradients: Any = None
    error: BaseException | None = None


def check(case: Case, most: int = 0, backend: str = "icpu") -> Row:
    """Compare up to `most` calls of a case (0: all) with eager."""
    start = time.monotonic()
    try:
        calls = calls_of(case)
    except Exception as error:
        return Row(case, "none", detail=f"the database gives no samples: {type(error).__name__}: {error}"[:300])
    calls = spread(calls, most)
    tolerance = tolerance_of(entry_of(case), case.op, signs=case.kind == "special", strides=case.kind == "layouts")
    trial = Trial(case, tolerance, backend)
    problems: list[str] = []
    status, tried = "pass", 0
    for batch in batches(calls, BATCH):
        if len(problems) >= MOST_PROBLEMS:
            break
        done, found = trial.batch(batch)
        tried += done
        for label, problem in found[: MOST_PROBLEMS - len(problems)]:
            problems.append(f"{label}: {problem.text}")
            status = "fail" if "fail" in (status, problem.status) else problem.status
    if not tried:
        status = "none"
    seconds = round(time.monotonic() - start, 2)
    return Row(case, status, tried, seconds, " || ".join(problems), tuple(sorted(trial.notes)))


class Trial:
    """Runs batches of calls of one case in eager mode and compiled."""

    def __init__(self, case: Case, tolerance: Tolerance, backend: str) -> None:
        self.case, self.tolerance, self.backend = case, tolerance, backend
        self.notes: set[str] = set()

    def batch(self, calls: list[Call]) -> tuple[int, list[tuple[str, Problem]]]:
        """How many calls eager could do, and the problems of those, by label."""
        if self.case.kind == "errors":
            return len(calls), [(c.label, p) for c in calls if (p := self.error_problem(c)) is not None]
        eager = [(call, self.run(call_all, [call])) for call in calls]
        working = [call for call, outcomes in eager if outcomes[0].error is None]
        if not working:
            return 0, []
        if self.problem(working) is None:
            return len(working), []
        found: list[tuple[str, Problem]] = []
        for call in working:
            if (problem := self.problem([call])) is not None:
                self.explain(call)
                found.append((call.label, problem))
                if len(found) == MOST_PROBLEMS:
                    break
        if not found:
            found = [("only together", self.problem(working) or Problem("fail", "not repeatable"))]
        return len(working), found

    def explain(self, call: Call) -> None:
        """Note when the fault is not icpu's: the same call fails with torch's own pass-through backend."""
        if self.backend == "icpu" and (problem := Trial(self.case, self.tolerance, "aot_eager").problem([call])):
            self.notes.add(f"aot_eager too: {problem.text[:160]}")

    def problem(self, calls: list[Call]) -> Problem | None:
        """Whether these calls, compiled as one function, differ from eager."""
        expected = self.run(call_all, calls)
        try:
            actual = self.compiled(calls)
        except Exception as error:
            return Problem("error", f"{type(error).__name__}: {_first_line(error)}")
        for call, left, right in zip(calls, expected, actual, strict=True):
            text = self.differs(call, left, right)
            if text is not None:
                return Problem("fail", text)
        return None

    def compiled(self, calls: list[Call]) -> list[Outcome]:
        with _noted(self.notes):
            try:
                return self.run(self.compile(fullgraph=True), calls)
            except TorchDynamoException as error:
                if isinstance(error, IcpuError):
                    raise
                self.notes.add(f"graph break: {_first_line(error)}")
                return self.run(self.compile(fullgraph=False), calls)

    def compile(self, fullgraph: bool) -> Callable[..., Any]:
        torch._dynamo.reset()
        dynamic = self.case.kind == "dynamic"
        compiled = torch.compile(call_all, backend=self.backend, fullgraph=fullgraph, dynamic=dynamic)
        assert callable(compiled)
        return compiled

    def run(self, function: Callable[..., Any], calls: Sequence[Call]) -> list[Outcome]:
        """Run the calls from one seed. The error of a single call in eager mode is its outcome."""
        try:
            return self.outcomes(function, calls)
        except Exception as error:
            if function is call_all and len(calls) == 1:
                return [Outcome(error=error)]
            raise

    def outcomes(self, function: Callable[..., Any], calls: Sequence[Call]) -> list[Outcome]:
        """What the calls give when `function` makes all of them."""
        functions = [call.fresh() for call in calls]
        inputs = [clone_tree((call.args, call.kwargs)) for call in calls]
        gradients = self.case.kind == "gradients"
        torch.manual_seed(0)
        with warnings.catch_warnings(), nullcontext() if gradients else torch.no_grad():
            warnings.simplefilter("ignore")
            results = function(functions, inputs)
            results = [call.process(result) for call, result in zip(calls, results, strict=True)]
            slopes = gradients_of(functions, inputs, results) if gradients else [None] * len(calls)
            return [
                Outcome(result, (given, _state(module)), slope)
                for result, given, module, slope in zip(results, inputs, functions, slopes, strict=True)
            ]

    def differs(self, call: Call, expected: Outcome, actual: Outcome) -> str | None:
        """What is wrong with the outcome of one call."""
        cache: list[Outcome | None] = []

        def exact() -> Outcome | None:
            if not cache:
                cache.append(self.reference(call))
            return cache[0]

        for part, name in (("results", ""), ("arguments", "argument: "), ("gradients", "gradient: ")):
            text = difference(
                getattr(expected, part), getattr(actual, part), self.tolerance, lambda p=part: _tensors_of(exact(), p)
            )
            if text is not None:
                return name + text
        return None

    def reference(self, call: Call) -> Outcome | None:
        """The call in fp64 with the same arguments; None where the operator has no fp64 or draws random numbers, which
        would be others."""
        args, kwargs = tree_map(_widened, clone_tree((call.args, call.kwargs)))
        wide = Call(call.label, lambda: _wide_function(call), args, kwargs, call.process)
        torch.manual_seed(0)
        before = torch.get_rng_state()
        outcome = self.run(call_all, [wide])[0]
        random = not torch.equal(before, torch.get_rng_state())
        return None if random or outcome.error is not None else outcome

    def error_problem(self, call: Call) -> Problem | None:
        """An error of eager has to be of the same type when compiled, or of the type that Dynamo makes of it."""
        expected = self.run(call_all, [call])[0].error
        if expected is None:
            return None
        errors: dict[str, BaseException | None] = {}
        for backend in (self.backend, "aot_eager"):
            try:
                Trial(self.case, self.tolerance, backend).compiled([call])
                errors[backend] = None
            except Exception as error:
                errors[backend] = error
            if type(errors[backend]) is type(expected):
                return None
        actual, passed_through = errors[self.backend], errors["aot_eager"]
        if type(actual) is type(passed_through):
            self.notes.add(f"Dynamo: {type(actual).__name__} in place of {type(expected).__name__}")
            return None
        return Problem("error", f"{type(actual).__name__}: {_first_line(actual)} in place of {type(expected).__name__}")


def call_all(functions: list[Callable[..., Any]], inputs: list[Any]) -> list[Any]:
    """The function that is compiled: every call in order."""
    results = []
    for function, (args, kwargs) in zip(functions, inputs, strict=True):
        results.append(function(*args, **kwargs))
    return results


def _state(function: Any) -> Any:
    return dict(function.state_dict()) if isinstance(function, torch.nn.Module) else None


def _wide_function(call: Call) -> Callable[..., Any]:
    function = call.fresh()
    return function.double() if isinstance(function, torch.nn.Module) else function


def _widened(leaf: Any) -> Any:
    low = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
    low |= dict.fromkeys((torch.complex32, torch.complex64), torch.complex128)
    if isinstance(leaf, torch.dtype):
        return low.get(leaf, leaf)
    if isinstance(leaf, torch.Tensor) and leaf.dtype in low:
        return leaf.detach().to(low[leaf.dtype]).requires_grad_(leaf.requires_grad)
    return leaf


def _tensors_of(outcome: Outcome | None, part: str) -> list[torch.Tensor | None]:
    leaves = [] if outcome is None else tree_leaves(getattr(outcome, part))
    return [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]


def _first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " / ".join(lines[:2])[:300]


@contextmanager
def _noted(notes: set[str]) -> Iterator[None]:
    """Add to `notes` what the backend warns of: graphs that run in eager mode."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "eager mode" in record.getMessage():
                notes.add("eager: " + record.getMessage().split("eager mode: ")[-1][:200])

    handler = Handler(logging.WARNING)
    loggers = [logging.getLogger(f"inductor_cpu.{name}") for name in ("backend", "pipeline")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
