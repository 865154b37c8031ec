"""One job in a process of its own, under a memory limit and a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench_suites.job import Job

POLL_SECONDS = 0.25
"""Between two looks at the memory. Each walks over all processes of the machine, next to a model that is timed."""
LOG_TAIL = 4000


@dataclass(frozen=True)
class Limits:
    """Seconds and resident bytes (of the process and its children) that one model may take."""

    seconds: float
    bytes: int


def run(job: Job, limits: Limits, environment: dict[str, str]) -> dict[str, Any]:
    """The row of a job: its result, or a status that says how its process ended (timeout, memory, crash, error).

    Raises KeyboardInterrupt after ending the process.
    """
    with tempfile.TemporaryDirectory(prefix="icpu-bench-") as name:
        folder = Path(name)
        job_path, result_path, log_path = folder / "job.json", folder / "result.json", folder / "log.txt"
        job_path.write_text(json.dumps(job.plain()))
        command = [sys.executable, "-m", "bench_suites.worker", str(job_path), str(result_path)]
        start = time.perf_counter()
        with log_path.open("wb") as log:
            # A session of its own: Ctrl-C reaches the supervisor only, and the whole group can be ended.
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
            )
            try:
                ended, peak = _watch(process, limits)
            finally:
                _end(process)
        row: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 2), "process_peak_bytes": peak}
        if ended is None and result_path.exists():
            return {**json.loads(result_path.read_text()), **row}
        tail = log_path.read_text(errors="replace")[-LOG_TAIL:]
        status, error = ended or _ending(process.returncode, tail)
        return {"status": status, "error": error, "log": tail, "backends": {}, **row}


def _watch(process: subprocess.Popen[bytes], limits: Limits) -> tuple[tuple[str, str] | None, int]:
    """Wait for the end or a limit: (status, error) of the limit that was met or None, and the peak resident bytes."""
    peak = 0
    end = time.monotonic() + limits.seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return None, peak
        resident = _resident(process.pid)
        peak = max(peak, resident)
        if resident > limits.bytes:
            return ("memory", f"took more than {limits.bytes / 2**30:.3g} GiB"), peak
        if time.monotonic() > end:
            return ("timeout", f"no answer in {limits.seconds:g} s"), peak


def _resident(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int, log: str) -> tuple[str, str]:
    if code < 0:
        return "crash", f"ended by {signal.Signals(-code).name}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return "error", lines[-1][:400] if lines else f"exit code {code}"
