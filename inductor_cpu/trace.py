"""What a compile tells a person: timings, dumps, logs and the report.

One `Trace` belongs to one compile and is passed as an argument. With no dump folder it keeps the timings and logs.
Logs go to the loggers `inductor_cpu.<name>`; `ICPU_LOGS="schedule,+codegen"` shows a line for each result of a stage
and, with `+`, the result.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inductor_cpu.errors import UserError

LOGS = ("backend", "pipeline", "graph", "lower", "schedule", "codegen", "runtime")
"""The names that `ICPU_LOGS` knows, each of something that logs; `all` means every one."""

_FOLDER_NUMBERS = itertools.count()


@dataclass(frozen=True)
class StageTime:
    """One stage of one compile: how long it took, in milliseconds."""

    stage: str
    ms: float


@dataclass(frozen=True)
class KernelInfo:
    """One generated kernel: whether it is vectorized, and what kept it (or single ops of it) scalar."""

    name: str
    vectorized: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExternInfo:
    """Calls of one ATen operator: how many, why it has no kernel of ours, and why they do not go through C++ (empty if
    they do)."""

    op: str
    count: int
    reason: str
    why_python: str = ""


@dataclass(frozen=True)
class CompileReport:
    """What one compile did. Its text is for people. `measure_packed` gives `packed_weight_bytes`."""

    graph: str
    kind: str
    timings: tuple[StageTime, ...] = ()
    kernels: tuple[KernelInfo, ...] = ()
    externs: tuple[ExternInfo, ...] = ()
    ops_before_fusion: int = 0
    notes: tuple[str, ...] = ()
    measure_packed: Callable[[], int] = field(default=lambda: 0, compare=False, repr=False)

    @property
    def packed_weight_bytes(self) -> int:
        """Memory of the packed copies of weights as they are now: they are made at the first call and go with the
        model."""
        return self.measure_packed()

    @property
    def vectorized(self) -> int:
        """Number of vectorized kernels."""
        return sum(k.vectorized for k in self.kernels)

    @property
    def extern_calls(self) -> int:
        """Number of calls of ATen operators."""
        return sum(e.count for e in self.externs)

    @property
    def python_externs(self) -> int:
        """Number of ATen calls that have to go through Python."""
        return sum(e.count for e in self.externs if e.why_python)

    @property
    def total_ms(self) -> float:
        """Time of all stages."""
        return sum(t.ms for t in self.timings)

    def __str__(self) -> str:
        native = self.extern_calls - self.python_externs
        lines = [
            f"graph {self.graph} ({self.kind})",
            f"  kernels: {len(self.kernels)}, vectorized {self.vectorized}/{len(self.kernels)},"
            f" made of {self.ops_before_fusion} loops before fusion",
        ]
        lines.extend(f"    {number} scalar: {reason}" for reason, number in count_reasons(self.kernels))
        for k in self.kernels:
            if k.reasons or not k.vectorized:
                lines.append(f"    {k.name}: {'vectorized' if k.vectorized else 'scalar'}")
                lines.extend(f"      - {reason}" for reason in k.reasons)
        lines.append(f"  extern calls: {self.extern_calls} ({native} native, {self.python_externs} through Python)")
        for e in sorted(self.externs, key=lambda e: (-e.count, e.op)):
            how = f" (through Python: {e.why_python})" if e.why_python else ""
            lines.append(f"    {e.count} x {e.op}{how}: {e.reason}")
        lines.append(f"  packed weights: {self.packed_weight_bytes} bytes")
        lines.append(f"  compile time: {self.total_ms:.0f} ms")
        lines.extend(f"    {stage}: {ms:.1f} ms" for stage, ms in _sum_by_stage(self.timings).items())
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)


def _sum_by_stage(timings: tuple[StageTime, ...]) -> dict[str, float]:
    total: dict[str, float] = {}
    for t in timings:
        total[t.stage] = total.get(t.stage, 0.0) + t.ms
    return total


def count_reasons(kernels: Iterable[KernelInfo]) -> tuple[tuple[str, int], ...]:
    """(reason, number of kernels that it keeps scalar), most frequent first."""
    return tuple(Counter(reason for k in kernels if not k.vectorized for reason in k.reasons).most_common())


def count_externs(calls: Mapping[tuple[str, str, str], int]) -> tuple[ExternInfo, ...]:
    """Rows of a report from counts by (op, reason, why through Python), most frequent first."""
    rows = (ExternInfo(op, n, reason, why_python) for (op, reason, why_python), n in calls.items())
    return tuple(sorted(rows, key=lambda e: (-e.count, e.op)))


@dataclass
class Trace:
    """Timings, logs and dumps of one compile.

    `graph` names the compile (`inference_0`); `root` is the dump folder of the user or None. Stages that run more than
    once appear more than once in the timings. Not for use by several threads at once.
    """

    graph: str = "graph"
    root: str | None = None
    folder: Path | None = field(init=False, default=None)
    _timings: list[StageTime] = field(init=False, default_factory=list)
    _number: int = field(init=False, default=0)
    _stage: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.root is None:
            return
        # The process id keeps apart the processes that share one folder.
        name = f"{os.getpid()}_{next(_FOLDER_NUMBERS):03d}_{_file_name(self.graph)}"
        folder = Path(self.root).expanduser().absolute() / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the dump folder {folder}: {error}. Check ICPU_DUMP.") from error
        self.folder = folder

    @property
    def dumping(self) -> bool:
        """Whether dumps are written. Ask before building an expensive text."""
        return self.folder is not None

    @property
    def dump_path(self) -> str | None:
        """The dump folder of this compile as text, for an InternalError."""
        return None if self.folder is None else str(self.folder)

    @property
    def current_stage(self) -> str:
        """The innermost stage that runs now or, after an exception, the one that raised it; empty before the first."""
        return self._stage

    @property
    def timings(self) -> tuple[StageTime, ...]:
        """The stages that are done, in order."""
        return tuple(self._timings)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as stage `name`, also when it raises."""
        outer, self._stage = self._stage, name
        start = time.perf_counter()
        try:
            yield
            self._stage = outer
        finally:
            self._timings.append(StageTime(name, (time.perf_counter() - start) * 1e3))

    def record(
        self, stage: str, text: Callable[[], str], note: str = "", before: int | None = None, after: int | None = None
    ) -> None:
        """Log what a stage made, and write it to `NN_<stage>.txt`: a header (what made it, its ms, counts or
        "unchanged", `note`), then `text`, which is asked for only if someone reads it."""
        log = logging.getLogger(f"inductor_cpu.{stage}")
        header = self._header(stage, note, before, after)
        log.info("%s", header[0])
        if self.folder is None and not log.isEnabledFor(logging.DEBUG):
            return
        lines = "\n".join((*(f"# {line}" for line in header), "", text().rstrip("\n")))
        log.debug("\n%s", lines)
        if self.folder is not None:
            _write(self.folder / f"{self._number:02d}_{_file_name(stage)}.txt", lines + "\n")
            self._number += 1

    def add_file(self, name: str, text: str) -> None:
        """Write `name` as it is, for example a kernel's C++ or the compiler's command."""
        if self.folder is not None:
            _write(self.folder / _file_name(name), text)

    def _header(self, stage: str, note: str, before: int | None, after: int | None) -> list[str]:
        times = [t.ms for t in self._timings if t.stage == stage]
        parts = [f"made by {stage}"]
        if times:
            parts.append(f"{times[-1]:.2f} ms")
        if before is not None and after is not None:
            parts.append("unchanged" if before == after else f"{before} -> {after}")
        return [f"{self.graph}: {', '.join(parts)}", *note.splitlines()]


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the dump {path}: {error}. Check ICPU_DUMP.") from error


def set_logs(spec: str) -> None:
    """Show the logs that `spec` names: words of `LOGS` separated by commas, `+name` for details, `all` for every one.

    This is what `ICPU_LOGS` does. Raises UserError for a name that does not exist.
    """
    levels: dict[str, int] = {}
    for word in filter(None, (w.strip() for w in spec.split(","))):
        level = logging.DEBUG if word.startswith("+") else logging.INFO
        name = word.lstrip("+")
        if name not in LOGS and name != "all":
            raise UserError(f"ICPU_LOGS: nothing logs as {name!r}. Names: all, {', '.join(LOGS)}")
        levels.update(dict.fromkeys(LOGS if name == "all" else (name,), level))
    if not levels:
        return
    root = logging.getLogger("inductor_cpu")
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        root.addHandler(handler)
        root.propagate = False
    for name, level in levels.items():
        logging.getLogger(f"inductor_cpu.{name}").setLevel(level)
