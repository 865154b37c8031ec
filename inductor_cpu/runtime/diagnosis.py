"""One run of a compiler, and what to tell a person when it fails: whose fault it is, and what helps."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from inductor_cpu.errors import IcpuError, InternalError, UserError
from inductor_cpu.runtime.cache import KernelCache
from inductor_cpu.runtime.process import Outcome, ProcessGroup

_LINES = 12
"""Lines of the compiler that an error shows."""

_NO_MEMORY = (
    "The system probably ran out of memory: run fewer compilers at a time (setting compile_threads, "
    "ICPU_COMPILE_THREADS=1), or stop other programs."
)
_NO_SPACE = "Free space on the disk of {cache}, or set ICPU_CACHE_DIR to a folder on another one."
_INCOMPLETE = (
    "The compiler is not installed completely. Get all of it with `apt-get install g++`, `dnf install gcc-c++` or "
    "`conda install -c conda-forge gxx`, or name another one in CXX."
)

#: What the compiler says when the machine, and not the source, is at fault; and the remedy.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"No space left on device|Disk quota exceeded", _NO_SPACE),
    (r"File size limit exceeded|File too large", "Raise the limit of the size of files (`ulimit -f`)."),
    (r"Killed signal|[Oo]ut of memory|virtual memory exhausted|[Cc]annot allocate memory|std::bad_alloc", _NO_MEMORY),
    (
        r"Python\.h: No such file",
        "The headers of this Python are missing. Get them with `apt-get install python3-dev`, `dnf install "
        "python3-devel`, or use a Python from conda.",
    ),
    (
        r"fatal error: '?[\w./]+'?( file not found|: No such file)|cannot execute|installation problem|"
        r"cannot find '?(ld|as|cc1plus|-l)|unable to execute command|error while loading shared libraries",
        _INCOMPLETE,
    ),
    (
        r"internal compiler error|Segmentation fault|Illegal instruction|Bus error|PLEASE submit a (full )?bug report",
        "The compiler itself crashed. Name another one, or another version, in CXX.",
    ),
    (r"Read-only file system", "Set ICPU_CACHE_DIR to a folder of your own that can be written."),
)


class TimeLimitError(UserError):
    """A compiler ran for too long."""


def run_compiler(
    command: Sequence[str],
    processes: ProcessGroup,
    cache: KernelCache,
    source: Path,
    output: Path,
    time_limit: int,
    nice: int = 0,
) -> None:
    """Run the compiler that makes `output` for at most `time_limit` seconds. Its temporary files go beside `output`.

    Raises UserError, with the remedy, if the machine is at fault. Else InternalError. Both have the command, the first
    lines that it said and the kept source."""
    try:
        outcome = processes.run(command, time_limit, nice, output.parent)
    except OSError as error:
        raise UserError(
            f"the C++ compiler {command[0]!r} does not start any more: {error.strerror or error}. Install it again, or "
            "name another one in CXX."
        ) from error
    if outcome.code != 0 or not output.exists():
        raise failure(outcome, cache, source, time_limit)


def failure(outcome: Outcome, cache: KernelCache, source: Path, time_limit: int) -> IcpuError:
    """The error for a compiler that failed. Keeps the source and what the compiler said in the cache."""
    kept = cache.keep_failed(source.name, source.read_text())
    shown = shlex.join(str(kept) if kept is not None and word == str(source) else word for word in outcome.command)
    cache.keep_failed(f"{source.stem}.log", f"{shown}\n\n{outcome.stderr}")
    lines = [line for line in outcome.stderr.splitlines() if line.strip()][:_LINES]
    text = "\n".join([f"source: {kept or 'not kept'}", f"command: {shown}", *lines])
    if outcome.timed_out:
        return TimeLimitError(
            f"the C++ compiler ran longer than {time_limit} s and was stopped. If it only is slow, allow more: setting "
            f"cpp.compile_timeout, ICPU_CPP_COMPILE_TIMEOUT=<seconds>. If it hangs, name another one in CXX.\n{text}"
        )
    remedy = _remedy(outcome)
    if remedy is not None:
        return UserError(f"the C++ compiler {_ended(outcome.code)}. {remedy.format(cache=cache.root)}\n{text}")
    return InternalError("runtime", f"the C++ compiler {_ended(outcome.code)}.\n{text}")


def _remedy(outcome: Outcome) -> str | None:
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, outcome.stderr):
            return remedy
    if outcome.code < 0:
        return _NO_MEMORY if outcome.code == -signal.SIGKILL else "Somebody stopped it: try again."
    return None


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}" if code else "ended without an error and without a result"
    try:
        return f"was stopped by {signal.Signals(-code).name}"
    except ValueError:
        return f"was stopped by signal {-code}"
